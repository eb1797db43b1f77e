package faultplan

// TWIN c/src/endpoint/faultplan.c.

import (
	"fmt"
	"sync"
)

// Plan is the rules that apply to this process, and their counters. Safe for concurrent use.
type Plan struct {
	rules    []Rule // private: no peer can change them
	counters []*Counters
}

// New returns the plan of a process that has the rules itself. The counters are private to it.
func New(rules []Rule) *Plan {
	p := &Plan{rules: rules, counters: make([]*Counters, len(rules))}
	for i := range rules {
		p.counters[i] = new(Counters)
	}
	return p
}

// Load returns the plan in an arena. It copies each rule once, and checks the copy: digest must be
// the Digest of the rules. The counters are those in the arena. They decide nothing, because a peer
// can overwrite them.
func Load(records []Record, digest string) (*Plan, error) {
	p := &Plan{rules: make([]Rule, len(records)), counters: make([]*Counters, len(records))}
	for i := range records {
		p.rules[i] = records[i].Rule // plain: the creator wrote it before this process was started
		p.counters[i] = &records[i].Counters
	}
	if have := Digest(p.rules); have != digest {
		return nil, fmt.Errorf("the %d fault rules in shared memory have digest %.16s, the launcher wrote %.16s: a process has changed them", len(records), have, digest)
	}
	for i := range p.rules {
		if err := p.rules[i].check(); err != nil {
			return nil, fmt.Errorf("fault rule %d: unknown %w: build ndrun and the program with one release of softnd", i+1, err)
		}
	}
	return p, nil
}

// Store writes the rules into the records of an arena that no other process uses yet. From then on
// the plan counts there.
func (p *Plan) Store(records []Record) {
	for i := range p.rules {
		records[i].Rule = p.rules[i]
		p.counters[i] = &records[i].Counters
	}
}

// Rules returns the rules, which the caller must not change.
func (p *Plan) Rules() []Rule { return p.rules }

// Counts returns how often rule i has matched and fired.
func (p *Plan) Counts(i int) (matched, fired uint64) {
	return p.counters[i].Matched.Load(), p.counters[i].Fired.Load()
}

// Injector decides which operations of one rank meet a rule. Safe for concurrent use.
//
// The decisions depend on the rank's own operations only. All that they use is private: the n-th
// operation of a rank is its own n-th. Other ranks have no influence, and words in the arena neither.
type Injector struct {
	plan  *Plan
	rank  int
	match []int // indices of the rules that name the rank

	mu     sync.Mutex
	counts []rankCounts      // of the rules in match
	seen   [2]map[any]uint64 // numbers of tokens and windows; see WindowNumber
}

// rankCounts is what one rank has counted for one rule.
type rankCounts struct{ matched, fired uint64 }

// For returns the injector of a rank, and nil if no rule names the rank. -1 is a member that is no
// rank: only rules without ranks name it.
func (p *Plan) For(rank int) *Injector {
	in := &Injector{plan: p, rank: rank}
	for i := range p.rules {
		if p.rules[i].Ranks.has(rank) {
			in.match = append(in.match, i)
		}
	}
	if in.match == nil {
		return nil
	}
	in.counts = make([]rankCounts, len(in.match))
	return in
}

// Event is a moment in the life of an operation.
type Event struct {
	Operation Operation
	Phase     Phase
	Peer      int    // rank of the peer; -1 if it is no rank, or not known
	Endpoint  uint64 // number of the endpoint; 0 = the operation has none
	Window    uint64 // number of the window or token; 0 = the operation has none
	Size      uint64 // bytes
}

// Fired is a rule that acts now.
type Fired struct {
	*Rule
	Number int // of the rule in its plan, from 1
}

// String names the rule for messages.
func (f Fired) String() string {
	if name := f.name(); name != "" {
		return fmt.Sprintf("fault rule %d (%s)", f.Number, name)
	}
	return fmt.Sprintf("fault rule %d", f.Number)
}

// Next counts an event, and returns the rule that acts at it. If several are due, the first of the plan
// acts, and the others do not. It counts the firing before it returns, because the action may end the process.
func (in *Injector) Next(e Event) (f Fired, ok bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for k, i := range in.match {
		r := &in.plan.rules[i]
		if !r.describes(&e) {
			continue
		}
		c := &in.counts[k]
		c.matched++
		in.plan.counters[i].Matched.Add(1)
		if ok || r.Times != 0 && c.fired >= r.Times || !r.isDue(c.matched, i, in.rank) {
			continue
		}
		c.fired++
		in.plan.counters[i].Fired.Add(1)
		f, ok = Fired{r, i + 1}, true
	}
	return f, ok
}

// UsesWindows reports whether a rule asks for the number of a window.
func (in *Injector) UsesWindows() bool {
	for _, i := range in.match {
		if in.plan.rules[i].Window != 0 {
			return true
		}
	}
	return false
}

// WindowNumber returns the number of the remote token, or, if token is 0, of the window, that a request
// names. The first token of the rank's requests has number 1, and the next different one number 2. The same
// holds for windows. It returns 0 if the request names neither.
func (in *Injector) WindowNumber(token uint32, window any) uint64 {
	kind, key := 0, any(token)
	if token == 0 {
		kind, key = 1, window
	}
	if key == nil {
		return 0
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.seen[kind] == nil {
		in.seen[kind] = make(map[any]uint64)
	}
	number, ok := in.seen[kind][key]
	if !ok {
		number = uint64(len(in.seen[kind])) + 1
		in.seen[kind][key] = number
	}
	return number
}

// describes reports whether the rule is about an event. The end of a connection and the overrun of a queue need an endpoint.
func (r *Rule) describes(e *Event) bool {
	if e.Endpoint == 0 && (r.Action == uint32(Drop) || r.Action == uint32(Overrun)) {
		return false
	}
	return r.Operations&e.Operation.Set() != 0 && r.Phase == uint32(e.Phase) &&
		(r.Endpoint == 0 || r.Endpoint == e.Endpoint) && (r.Window == 0 || r.Window == e.Window) &&
		e.Size >= r.MinSize && e.Size <= r.MaxSize && r.Peers.has(e.Peer)
}

// isDue reports whether the rule acts at the n-th operation of a rank, counted from 1. index is that of the rule.
func (r *Rule) isDue(n uint64, index, rank int) bool {
	first := r.Nth
	if first == 0 {
		first = max(r.Every, 1)
	}
	switch {
	case n < first, r.Every != 0 && (n-first)%r.Every != 0, r.Every == 0 && r.Nth != 0 && n != r.Nth:
		return false
	}
	return r.Threshold == 0 || draw(r.Seed, uint64(index), uint64(rank), n) < r.Threshold
}

// draw returns a random number that depends on its arguments only. It is the output of SplitMix64
// after each argument was mixed into the state.
func draw(arguments ...uint64) (x uint64) {
	for _, a := range arguments {
		x += a + 0x9e3779b97f4a7c15
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		x ^= x >> 31
	}
	return x
}
