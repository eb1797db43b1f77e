package ndcheck

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/softnd/softnd/nd"
)

// Options configures [Wrap]. The zero value suits a single process.
type Options struct {
	// Rank is the number of this process in reports, from 0.
	Rank int
	// Journal is shared by the processes of a job. If it is nil, the checker knows this process only.
	Journal *Journal
	// Ignore are rules that are not reported.
	Ignore []*Rule
	// Faults says that a fault plan acts on the job. The checker does not explain failures then which the plan may have
	// made up.
	Faults bool
	// Report gets each finding once that the program does not expect: see [nd.Expect]. Later findings of the same rule at the
	// same lines are ignored. It must be safe for concurrent use, and must not call the provider. If it is nil, findings are
	// written to stderr.
	Report func(Finding)
}

// checker is the state of one wrapped provider.
type checker struct {
	rank    int
	journal *Journal
	report  func(Finding)
	ignored []*Rule
	faults  bool
	numbers [kinds]atomic.Uint32 // of objects, from 1
	ids     atomic.Uint64        // numbers of requests

	waiting sync.Mutex // guards waits; held until the journal has the change, since a later one must not come before it
	waits   waits

	mu           sync.Mutex // guards the rest, and the fields of all objects that say so
	seen         map[findingKey]struct{}
	expected     map[string][]*Expectation // by the name of their object, "" = all objects
	expectations map[string]*Expectation   // by key
	adapters     []*adapter
	endpoints    map[uint64]*endpoint // by number; a closed one stays while results of it may follow
	requests     map[uint64]*request  // in flight, by number
	sinks        map[*request]struct{}
	unanswered   map[*request]struct{} // initiator requests, until the program may know that they are complete
	regions      map[nd.Token]*region  // registered ones, by local token
	windows      map[*window]struct{}  // bound ones
	churn        map[string]int        // registrations that served one request, by line
	accepts      bool                  // the program has waited in GetConnectionRequest
	hasUnwatched bool                  // an endpoint has, or had, a peer that is not watched
	learnedAt    int64                 // when the program has last learned something about other processes
	isEnding     bool                  // End has been called
	over         bool                  // End has returned
}

type findingKey struct {
	rule            *Rule
	site, otherSite string
	expected        *Expectation
}

func newChecker(o Options) *checker {
	c := &checker{rank: o.Rank, journal: o.Journal, report: o.Report, ignored: o.Ignore, faults: o.Faults, seen: make(map[findingKey]struct{}),
		expected: make(map[string][]*Expectation), expectations: make(map[string]*Expectation),
		endpoints: make(map[uint64]*endpoint), requests: make(map[uint64]*request), sinks: make(map[*request]struct{}), unanswered: make(map[*request]struct{}),
		regions: make(map[nd.Token]*region), windows: make(map[*window]struct{}), churn: make(map[string]int)}
	if c.journal == nil {
		c.journal, _ = NewJournal(make([]byte, JournalSize), nil) // cannot fail: the memory is zero
	}
	if c.report == nil {
		c.report = func(f Finding) { fmt.Fprint(os.Stderr, "softnd check: ", f) }
	}
	return c
}

// Kinds of objects, which are numbered separately.
const (
	adapters = iota
	connectors
	listeners
	queues
	sharedQueues
	regions
	windows
	endpoints
	kinds
)

func (c *checker) number(kind int) uint32 { return c.numbers[kind].Add(1) }

// found reports a finding, unless it has been reported for these lines before. The caller does not hold c.mu.
// about are the objects that it is about.
func (c *checker) found(f Finding, about ...object) {
	if slices.Contains(c.ignored, f.Rule) {
		return
	}
	f.Rank = c.rank
	c.mu.Lock()
	f.Expected = c.expects(f.Rule, about)
	key := findingKey{f.Rule, f.Site, f.OtherSite, f.Expected}
	_, again := c.seen[key]
	c.seen[key] = struct{}{}
	over := c.over
	c.mu.Unlock()
	if again || over {
		return
	}
	c.journal.add(record{Finding: &f})
	if f.Expected == nil {
		c.report(f)
	}
}

// Provider is a provider whose use is watched.
type Provider struct {
	*checker
	inner
}

// inner is the provider that is used. The name keeps it out of the interface of Provider, whose embedded value it is.
type inner = nd.Provider

// Wrap returns a provider that forwards all calls to p and watches them. Objects of p that were made otherwise
// cannot be used together with objects of the result.
func Wrap(p nd.Provider, o Options) *Provider {
	w := &Provider{newChecker(o), p}
	w.journal.use(1)
	if list, err := p.QueryAddressList(); err == nil && len(list) > 0 {
		w.journal.enter(o.Rank, list[0])
	}
	return w
}

// Synchronised tells the checker that the process has synchronised with others without the provider, for example
// in a barrier.
func (p *Provider) Synchronised() { p.synchronised() }

func (c *checker) synchronised() {
	c.mu.Lock()
	suspect := c.learned()
	c.mu.Unlock()
	c.reportChanges(suspect)
}

// InTrouble tells the checker that the program has seen a failure of the job, and may give up its objects in any state.
func (p *Provider) InTrouble() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.adapters {
		a.fails()
	}
}

// ResolveRoute implements [nd.RouteResolver], also if the provider below does not.
func (p *Provider) ResolveRoute(remote netip.Addr) (netip.Addr, error) {
	return nd.ResolveRoute(p.inner, remote)
}

// Close implements [nd.Provider].
func (p *Provider) Close() error {
	p.End()
	return p.inner.Close()
}
