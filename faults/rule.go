// Package faults makes a job fail on purpose. A plan is a list of rules. Each rule describes operations
// of a rank, selects some of them, and says what happens there: the operation fails with a status, is
// late, or transfers a wrong byte; or the connection, the queue or the process ends.
//
//	plan, err := faults.New(0, faults.Rule{Operations: []string{"write"}, Nth: 3, Action: "fail", Status: nd.AccessViolation})
//	...
//	softndtest.Run(t, 2, rank, softnd.WithFaults(plan))
//	if err := plan.Check(); err != nil { // a rule never acted
//		t.Error(err)
//	}
//
// The words of a [Rule] are those of the file that ndrun --faults reads; docs/faults.md explains each
// of them.
package faults

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/softnd/softnd/internal/faultplan"
	"github.com/softnd/softnd/nd"
)

// Rule is one rule of a plan. A field with its zero value restricts nothing, or has the default that
// its comment names. Action is required, and so are the fields that the action needs.
type Rule struct {
	Name string // in reports and errors, at most 64 bytes

	// The operations that the rule describes.
	Operations []string // such as "write"; required
	Ranks      []int    // ranks that post or call; default: all
	Peers      []int    // ranks at the other end
	Endpoint   int      // number of the rank's endpoint, from 1
	Window     int      // number of the window or of the remote token, from 1
	MinSize    uint64   // bytes
	MaxSize    uint64   // bytes; 0: no limit
	Phase      string   // "post", "execute" or "complete"; default: "execute" for requests, "post" for calls

	// Which of these operations of a rank it acts at. By default, at all of them.
	Nth         int     // at the n-th, from 1
	Every       int     // at every n-th; with Nth: from the Nth on
	Probability float64 // at random, above 0 and at most 1
	Times       int     // at most so often at each rank; 0: no limit

	Action string        // such as "fail"; required
	Status nd.Status     // for "fail"
	Delay  time.Duration // for "delay"
	Offset uint64        // for "corrupt": of the byte
	XOR    byte          // for "corrupt": bits to invert; default: all
	After  uint64        // bytes of the transfer that are copied before the action
}

// RuleError says which field of which rule is wrong.
type RuleError struct {
	Rule   int    // index in the list
	Field  string // name of the field of [Rule]
	Detail string // the problem, and the change that solves it
}

func (e *RuleError) Error() string {
	return fmt.Sprintf("rule %d: %s: %s", e.Rule+1, e.Field, e.Detail)
}

// compile returns the compiled form of a rule. An error has no rule number yet.
func (r *Rule) compile(seed uint64) (c faultplan.Rule, err *RuleError) {
	wrong := func(field, format string, args ...any) (faultplan.Rule, *RuleError) {
		return faultplan.Rule{}, &RuleError{Field: field, Detail: fmt.Sprintf(format, args...)}
	}
	c = faultplan.Rule{
		Endpoint: uint64(r.Endpoint), Window: uint64(r.Window), MinSize: r.MinSize, MaxSize: r.MaxSize,
		Nth: uint64(r.Nth), Every: uint64(r.Every), Times: uint64(r.Times), Seed: seed,
		After: r.After, Delay: uint64(r.Delay), Offset: r.Offset, Status: uint32(r.Status), Flip: uint32(r.XOR),
	}
	if len(r.Name) > len(c.Name) || !utf8.ValidString(r.Name) || strings.ContainsFunc(r.Name, func(c rune) bool { return c < ' ' }) {
		return wrong("Name", "%q: want one line of at most %d bytes", r.Name, len(c.Name))
	}
	copy(c.Name[:], r.Name)
	if len(r.Operations) == 0 {
		return wrong("Operations", "missing: name at least one")
	}
	for _, name := range r.Operations {
		o, ok := operations[name]
		if !ok {
			return wrong("Operations", "unknown operation %q: want %s", name, list(words(operations)))
		}
		c.Operations |= o.Set()
	}
	calls := c.Operations&requests == 0
	if !calls && c.Operations&^requests != 0 {
		return wrong("Operations", "%s are requests, %s are calls: write a rule for each kind", list(wordsOf(c.Operations&requests)), list(wordsOf(c.Operations&^requests)))
	}
	for _, n := range []struct {
		field string
		value int
	}{{"Endpoint", r.Endpoint}, {"Window", r.Window}, {"Nth", r.Nth}, {"Every", r.Every}, {"Times", r.Times}} {
		if n.value < 0 {
			return wrong(n.field, "%d: want 1 or more", n.value)
		}
	}
	for _, ranks := range []struct {
		field string
		list  []int
		set   *faultplan.Set
	}{{"Ranks", r.Ranks, &c.Ranks}, {"Peers", r.Peers, &c.Peers}} {
		for _, rank := range ranks.list {
			if rank < 0 || rank > 1023 {
				return wrong(ranks.field, "%d: want ranks from 0 to 1023", rank)
			}
			ranks.set.Add(rank)
		}
	}
	for _, m := range []struct {
		field string
		used  bool
		of    uint64
		what  string
	}{
		{"Peers", len(r.Peers) > 0, toPeer, "peer"}, {"Endpoint", r.Endpoint != 0, onEndpoint, "endpoint"},
		{"Window", r.Window != 0, onWindows, "window and no remote token"}, {"MinSize", r.MinSize != 0, transfers, "size"}, {"MaxSize", r.MaxSize != 0, transfers, "size"},
	} {
		if none := c.Operations &^ m.of; m.used && none != 0 {
			return wrong(m.field, "the operation %s has no %s: remove one of them", list(wordsOf(none)), m.what)
		}
	}
	if r.MaxSize != 0 && r.MaxSize < r.MinSize {
		return wrong("MaxSize", "%d is less than the minimum %d: exchange them", r.MaxSize, r.MinSize)
	}
	if c.MaxSize == 0 {
		c.MaxSize = math.MaxUint64
	}
	switch p := r.Probability; {
	case p != p || p < 0 || p > 1:
		return wrong("Probability", "%v: want a number above 0 and at most 1", p)
	case p > 0 && (r.Nth != 0 || r.Every != 0):
		return wrong("Probability", "the rule also counts operations: use either a probability, or nth and every")
	case p > 0 && p < 1:
		c.Threshold = max(uint64(p*(1<<63))*2, 1)
	}
	action, ok := actions[r.Action]
	switch {
	case r.Action == "":
		return wrong("Action", "missing: want %s", list(words(actions)))
	case !ok:
		return wrong("Action", "unknown action %q: want %s", r.Action, list(words(actions)))
	}
	c.Action = uint32(action)
	if of, limited := only[action]; limited && c.Operations&^of != 0 {
		return wrong("Action", "%s does not apply to %s, only to %s", r.Action, list(wordsOf(c.Operations&^of)), list(wordsOf(of)))
	}
	return r.compileAction(c, action, calls)
}

// compileAction completes compile: the phase, and the fields of the action.
func (r *Rule) compileAction(c faultplan.Rule, action faultplan.Action, calls bool) (faultplan.Rule, *RuleError) {
	wrong := func(field, format string, args ...any) (faultplan.Rule, *RuleError) {
		return faultplan.Rule{}, &RuleError{Field: field, Detail: fmt.Sprintf(format, args...)}
	}
	phase, ok := phases[r.Phase]
	switch {
	case r.Phase != "" && !ok:
		return wrong("Phase", "unknown phase %q: want %s", r.Phase, list(words(phases)))
	case calls && r.Phase != "" && phase != faultplan.Post:
		return wrong("Phase", "the call %s has only the phase post: omit the phase", list(r.Operations))
	case calls:
		phase = faultplan.Post
	case r.Phase == "":
		phase = faultplan.Execute
	}
	c.Phase = uint32(phase)
	if c.Operations&faultplan.Receive.Set() != 0 && phase == faultplan.Complete {
		return wrong("Phase", "a receive has no phase complete: use execute, before the message is stored")
	}
	for _, f := range []struct {
		field string
		set   bool
		of    faultplan.Action
	}{
		{"Status", r.Status != 0, faultplan.Fail}, {"Delay", r.Delay != 0, faultplan.Delay},
		{"Offset", r.Offset != 0, faultplan.Corrupt}, {"XOR", r.XOR != 0, faultplan.Corrupt},
	} {
		if f.set && action != f.of {
			return wrong(f.field, "the action %s does not use it: remove it", r.Action)
		}
	}
	switch action {
	case faultplan.Fail:
		if detail := r.checkStatus(phase, calls); detail != "" {
			return wrong("Status", "%s", detail)
		}
	case faultplan.Delay:
		switch {
		case r.Delay <= 0:
			return wrong("Delay", "%v: want a duration above 0", r.Delay)
		case phase == faultplan.Post && !calls:
			return wrong("Phase", "a post never blocks: use execute or complete")
		case c.Operations&faultplan.ConnectionRequest.Set() != 0:
			return wrong("Operations", "a connection-request cannot be late: delay the accept")
		}
	}
	if c.Operations&faultplan.ConnectionRequest.Set() != 0 && action == faultplan.Fail {
		return wrong("Action", "a connection-request cannot fail with a status: use refuse")
	}
	if (action == faultplan.Corrupt || action == faultplan.InvalidateNow) && phase != faultplan.Execute {
		return wrong("Phase", "%s acts on data in flight: use execute", r.Action)
	}
	if action == faultplan.Corrupt {
		if c.Flip == 0 {
			c.Flip = 0xff
		}
		if r.Offset >= c.MaxSize {
			return wrong("Offset", "byte %d is beyond the size of at most %d: choose a smaller offset", r.Offset, c.MaxSize)
		}
		c.MinSize = max(c.MinSize, r.Offset+1) // a shorter transfer does not have the byte
	}
	if r.After != 0 {
		switch {
		case c.Operations&^inParts != 0 || phase != faultplan.Execute:
			return wrong("After", "want the phase execute of %s", list(wordsOf(inParts)))
		case action == faultplan.Corrupt:
			return wrong("After", "corrupt has an offset instead: remove it")
		case r.After >= c.MaxSize:
			return wrong("After", "%d bytes are not less than the size of at most %d", r.After, c.MaxSize)
		}
		c.MinSize = max(c.MinSize, r.After+1)
	}
	return c, nil
}

// checkStatus says what is wrong with Status, or returns "".
func (r *Rule) checkStatus(phase faultplan.Phase, calls bool) string {
	switch {
	case r.Status == 0:
		return "missing: name the status of the failure"
	case !r.Status.Failed() || strings.HasPrefix(r.Status.String(), "Status("):
		return fmt.Sprintf("%s is no failure of the model", r.Status.String())
	case calls || phase == faultplan.Post:
		return ""
	}
	for _, name := range r.Operations {
		if o := operations[name]; !isResult(o, r.Status) {
			return fmt.Sprintf("%s is not the status of a result of %s: want %s", r.Status.String(), name, list(statusNames(slices.Concat(resultStatuses[o], everyResult))))
		}
	}
	return ""
}

func statusNames(statuses []nd.Status) (names []string) {
	for _, s := range statuses {
		names = append(names, s.String())
	}
	return names
}

// list joins words for a message.
func list(words []string) string { return strings.Join(words, ", ") }
