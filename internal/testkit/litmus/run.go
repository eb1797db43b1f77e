package litmus

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/softnd/softnd/nd"
)

// MemorySize is enough memory for one process.
const MemorySize = 4096

// Request is a request of an initiator to the target. Near and Far are the places of the data in the memories of the two. Before
// the post, the initiator stores Value into Filled bytes from Near on.
type Request struct {
	Type      nd.RequestType // RequestRead, RequestWrite, RequestSend without data, or an atomic
	Immediate uint32         // of a Write or Send, unless it is 0
	Endpoint  int            // 0 or 1
	Context   uint64
	Near, Far int
	Length    int
	Value     byte
	Operands  [2]uint64 // of an atomic
	Flags     nd.OpFlags
}

// Filled is the number of bytes that an initiator fills before a request.
const Filled = 8 * wordsOfLong

// Initiator is process A or B. It fails the test if a call fails.
type Initiator interface {
	Post(r Request)
	Poll(room []nd.Result) []nd.Result // polls the only queue, once or until there is a result
	Peek(at int) byte                  // returns a byte of the memory
}

// Target is process C.
type Target interface {
	Memory() []byte
	Receive() // posts a receive without memory to the first endpoint
	Poll(room []nd.Result) []nd.Result
}

// Setup has the processes of the tests.
type Setup struct {
	T          testing.TB
	Initiators [2]Initiator
	Target     Target
	Random     *rand.Rand // decides which side acts next
}

// Run runs one test, in one goroutine, and returns its outcome.
func (s *Setup) Run(l *Test) string {
	s.T.Helper()
	memory := s.Target.Memory()
	clear(memory)
	var (
		posted, done [2]int
		seen, order  string
		results      [8]nd.Result
	)
	words, err := nd.View[atomic.Uint64](memory)
	if err != nil {
		s.T.Fatal(err)
	}
	look := func(location, word int) byte { return byte(words[spacing/8*location+word].Load()) } // an engine may change it at this moment
	sends := slices.ContainsFunc(l.initiate[0], func(a act) bool { return a.does.takesReceive() })
	if sends {
		s.Target.Receive()
	}
	for step := 0; ; step++ {
		if step > 1e6 {
			s.T.Fatalf("%s: no end: posted %v, done %v", l.name, posted, done)
		}
		i := s.Random.IntN(len(l.initiate))
		acts, me := l.initiate[i], s.Initiators[i]
		if n := posted[i]; n < len(acts) && !(acts[n].wait && done[i] < n) && s.Random.IntN(2) == 0 {
			me.Post(acts[n].request(n))
			posted[i]++
			if l.early && acts[n].does.brings() {
				seen = fmt.Sprint(me.Peek(spacing * n))
			}
		}
		for _, r := range me.Poll(results[:]) {
			if r.Status != nd.Success {
				s.T.Fatalf("%s: %v", l.name, r)
			}
			done[i]++
			order += fmt.Sprint(r.RequestContext)
		}
		if l.observe != nil && seen == "" {
			if seen = l.observe(look); seen != "" && l.counted {
				seen += fmt.Sprint(done[0])
			}
		}
		if got := s.Target.Poll(results[:]); len(got) > 0 {
			if number, ok := got[0].Immediate(); ok && number != immediate {
				s.T.Fatalf("%s: the number %#x has arrived, want %#x", l.name, number, immediate)
			}
			word := 0
			if slices.ContainsFunc(l.initiate[0], func(a act) bool { return a.long }) {
				word = s.Random.IntN(wordsOfLong)
			}
			seen = fmt.Sprint(look(x, word))
			order += "r"
			sends = false
		}
		if done[0] == len(l.initiate[0]) && done[1] == len(l.initiate[1]) && !sends && (l.observe == nil || seen != "") {
			break
		}
	}
	var outcome strings.Builder
	for i, acts := range l.initiate {
		for n, a := range acts {
			if a.does.brings() && !l.early {
				outcome.WriteString(fmt.Sprint(s.Initiators[i].Peek(spacing * n)))
			}
		}
	}
	outcome.WriteString(seen)
	for _, location := range l.final {
		outcome.WriteString(fmt.Sprint(look(location, 0)))
	}
	if l.results {
		outcome.WriteString(order)
	}
	return outcome.String()
}

// request returns the request for an action. Its number is the request's context, and its place in the initiator's memory.
func (a *act) request(n int) Request {
	r := Request{Type: nd.RequestWrite, Endpoint: a.endpoint, Context: uint64(n), Near: spacing * n, Far: spacing * a.location, Length: 8, Value: a.value, Flags: a.flags}
	if a.long {
		r.Length = Filled
	}
	const eachByte = 0x0101010101010101
	operand := uint64(a.value) * eachByte
	switch a.does {
	case writesImm:
		r.Immediate = immediate
	case sendsImm:
		r.Type, r.Length, r.Immediate = nd.RequestSend, 0, immediate
	case sends:
		r.Type, r.Length = nd.RequestSend, 0
	case reads:
		r.Type = nd.RequestRead
	case adds:
		r.Type, r.Value, r.Operands[0] = nd.RequestFetchAndAdd, notStored, operand
	case swaps:
		r.Type, r.Value, r.Operands[0] = nd.RequestSwap, notStored, operand
	case takes:
		r.Type, r.Value, r.Operands[1] = nd.RequestCompareAndSwap, notStored, operand
	}
	return r
}

const (
	immediate = 0x5eed_1e57
	notStored = 9 // in the place for the old value of an atomic, before its post
)

// Outcomes counts the outcomes of many runs.
type Outcomes struct {
	runs   int
	byTest []map[string]int
}

// Run runs all tests, and fails if one has an outcome that is not allowed.
func (o *Outcomes) Run(s *Setup) {
	s.T.Helper()
	for len(o.byTest) < len(Tests) {
		o.byTest = append(o.byTest, map[string]int{})
	}
	for i := range Tests {
		l := &Tests[i]
		outcome := s.Run(l)
		if !slices.Contains(strings.Fields(l.allowed), outcome) {
			s.T.Errorf("%s: outcome %s, allowed are %s", l.name, outcome, l.allowed)
		}
		o.byTest[i][outcome]++
	}
	o.runs++
}

// enough runs show each outcome that is allowed. With fewer, the rarest may be missing.
const enough = 300

// Check fails the test for an outcome that is allowed and has not occurred.
func (o *Outcomes) Check(t testing.TB) {
	t.Helper()
	for i, counts := range o.byTest {
		l := &Tests[i]
		t.Logf("%-52s %v", l.name, counts)
		for _, outcome := range strings.Fields(l.allowed) {
			if counts[outcome] == 0 && o.runs >= enough {
				t.Errorf("%s: outcome %s is allowed, but no seed has it", l.name, outcome)
			}
		}
	}
}
