package endpoint

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// The litmus tests of one-sided communication. Initiators A and B have two endpoints each, all connected with
// target C, whose memory holds the locations x, y and z. Every outcome that the model allows must occur with some seed, and
// no other outcome with any.

// act is an action of one initiator.
type act struct {
	read     bool // else a Write of value
	send     bool // else a message, whose receipt lets C look at its memory
	endpoint int
	location int
	value    byte
	flags    nd.OpFlags
	wait     bool // for the results of all earlier requests, before the action
	long     bool // of wordsOfLong words, each with the value
}

func write(location int, value byte) act { return act{location: location, value: value} }
func read(location int) act              { return act{read: true, location: location} }

func (a act) on(endpoint int) act { a.endpoint = endpoint; return a }
func (a act) fenced() act         { a.flags |= nd.ReadFence; return a }
func (a act) waiting() act        { a.wait = true; return a }

const (
	x, y, z     = 0, 1, 2
	wordsOfLong = 16
	spacing     = 256 // bytes between two locations
)

// litmus is one test. Its outcome begins with the values that Reads have returned. Then follow what C has seen, the final
// values of the locations in final, and, if results is set, the order of results.
type litmus struct {
	name     string
	initiate [2][]act
	observe  func(at func(location, word int) byte) string // what C sees; "" = not yet
	final    []int
	results  bool   // "r" is that of the message
	counted  bool   // how many results there are when C sees something
	early    bool   // look at the sink of the only Read right after its post
	allowed  string // outcomes
}

// seesInOrder lets C poll until second is set, and then look at first.
func seesInOrder(first, firstWord, second, secondWord int) func(func(int, int) byte) string {
	return func(at func(int, int) byte) string {
		if at(second, secondWord) == 0 {
			return ""
		}
		return fmt.Sprint(at(first, firstWord))
	}
}

// The reasons for the outcomes are the rules of docs/weak-order.md, "What stays ordered". No rule orders two endpoints.
var litmusTests = []litmus{
	// A Read sees all earlier Writes of its endpoint. So the Read that runs last sees the Write of the other initiator.
	// Between two endpoints, only a result orders: it comes after the effect.
	{name: "store buffering", allowed: "01 10 11",
		initiate: [2][]act{{write(x, 1), read(y)}, {write(y, 1), read(x)}}},
	{name: "store buffering, fence", allowed: "01 10 11",
		initiate: [2][]act{{write(x, 1), read(y).fenced()}, {write(y, 1), read(x).fenced()}}},
	{name: "store buffering, completion", allowed: "01 10 11",
		initiate: [2][]act{{write(x, 1), read(y).waiting()}, {write(y, 1), read(x).waiting()}}},
	{name: "store buffering, two endpoints", allowed: "00 01 10 11",
		initiate: [2][]act{{write(x, 1), read(y).on(1)}, {write(y, 1), read(x).on(1)}}},
	{name: "store buffering, two endpoints, fence", allowed: "00 01 10 11", // a fence is about Reads of its endpoint
		initiate: [2][]act{{write(x, 1), read(y).on(1).fenced()}, {write(y, 1), read(x).on(1).fenced()}}},
	{name: "store buffering, two endpoints, completion", allowed: "01 10 11",
		initiate: [2][]act{{write(x, 1), read(y).on(1).waiting()}, {write(y, 1), read(x).on(1).waiting()}}},

	// Writes of an endpoint appear in order, so 1 and then 0 needs Reads in the other order. A fence or a result prevents that.
	{name: "message passing", allowed: "00 01 10 11", // y, then x
		initiate: [2][]act{{write(x, 1), write(y, 1)}, {read(y), read(x)}}},
	{name: "message passing, fence", allowed: "00 01 11",
		initiate: [2][]act{{write(x, 1), write(y, 1)}, {read(y), read(x).fenced()}}},
	{name: "message passing, completion", allowed: "00 01 11",
		initiate: [2][]act{{write(x, 1), write(y, 1)}, {read(y), read(x).waiting()}}},
	{name: "message passing, two endpoints, fence", allowed: "00 01 10 11",
		initiate: [2][]act{{write(x, 1), write(y, 1).on(1)}, {read(y), read(x).fenced()}}},
	{name: "message passing, two endpoints, completion", allowed: "00 01 11",
		initiate: [2][]act{{write(x, 1), write(y, 1).on(1).waiting()}, {read(y), read(x).waiting()}}},
	{name: "message passing, polled", allowed: "1",
		initiate: [2][]act{{write(x, 1), write(y, 1)}}, observe: seesInOrder(x, 0, y, 0)},
	{name: "message passing, polled, two endpoints", allowed: "0 1",
		initiate: [2][]act{{write(x, 1), write(y, 1).on(1)}}, observe: seesInOrder(x, 0, y, 0)},
	{name: "message passing, polled, two endpoints, completion", allowed: "1",
		initiate: [2][]act{{write(x, 1), write(y, 1).on(1).waiting()}}, observe: seesInOrder(x, 0, y, 0)},

	// Later Writes may overtake a Read, unless they have a fence or wait for its result.
	{name: "load buffering", allowed: "00 01 10 11",
		initiate: [2][]act{{read(x), write(y, 1)}, {read(y), write(x, 1)}}},
	{name: "load buffering, fence", allowed: "00 01 10",
		initiate: [2][]act{{read(x), write(y, 1).fenced()}, {read(y), write(x, 1).fenced()}}},
	{name: "load buffering, completion", allowed: "00 01 10",
		initiate: [2][]act{{read(x), write(y, 1).waiting()}, {read(y), write(x, 1).waiting()}}},

	{name: "own Write, then Read", allowed: "1", initiate: [2][]act{{write(x, 1), read(x)}}},
	{name: "own Read, then Write", allowed: "0 1", initiate: [2][]act{{read(x), write(x, 1)}}},
	{name: "own Read, then Write, fence", allowed: "0", initiate: [2][]act{{read(x), write(x, 1).fenced()}}},
	{name: "own Read, then Write, completion", allowed: "0", initiate: [2][]act{{read(x), write(x, 1).waiting()}}},
	{name: "two Writes", allowed: "2", final: []int{x}, initiate: [2][]act{{write(x, 1), write(x, 2)}}},
	{name: "two Writes, two endpoints", allowed: "1 2", final: []int{x}, initiate: [2][]act{{write(x, 1), write(x, 2).on(1)}}},
	{name: "two Writes, two endpoints, completion", allowed: "2", final: []int{x}, initiate: [2][]act{{write(x, 1), write(x, 2).on(1).waiting()}}},

	// The bytes of a transfer have no order. All of them come before the result, and before a later message has a result.
	{name: "last word of a Write", allowed: "0 1",
		initiate: [2][]act{{{location: x, value: 1, long: true}}}, observe: seesInOrder(x, 0, x, wordsOfLong-1)},
	{name: "first word of a Write", allowed: "0 1",
		initiate: [2][]act{{{location: x, value: 1, long: true}}}, observe: seesInOrder(x, wordsOfLong-1, x, 0)},
	{name: "a Write, then a message", allowed: "1",
		initiate: [2][]act{{{location: x, value: 1, long: true}, {send: true}}}, observe: nil},
	{name: "sink of a Read, before its result", allowed: "0 1", early: true,
		initiate: [2][]act{{write(x, 1), read(x).waiting()}}},
	{name: "a Write, and then its result", allowed: "10 11", counted: true,
		initiate: [2][]act{{write(x, 1)}}, observe: seesInOrder(x, 0, x, 0)},
	// Results of one queue are in the order of posting. There is no order between queues.
	{name: "results of a Send and its Receive", allowed: "00r 0r0", results: true, initiate: [2][]act{{{send: true}}}},
	{name: "results of one endpoint", allowed: "01", results: true, initiate: [2][]act{{write(x, 1), write(y, 1)}}},
	{name: "results of a Read and a Write", allowed: "001", results: true, initiate: [2][]act{{read(x), write(y, 1)}}},
	{name: "results of two endpoints", allowed: "01 10", results: true, initiate: [2][]act{{write(x, 1), write(y, 1).on(1)}}},
}

// stage has the parties of the litmus tests.
type stage struct {
	t          testing.TB
	initiators [2]*party
	target     *party // in this process
	far        nd.WindowDescriptor
	random     *rand.Rand
}

// newStage connects the parties. The initiators are processes of their own if processes is set.
func newStage(t testing.TB, arena *shm.Arena, seed uint64, processes bool) *stage {
	t.Helper()
	o := sideOptions{Options: Options{Executor: Executor(seed % 2), WeakOrder: &seed}, Size: 4096, OneQueue: true, Private: seed/2%2 == 1}
	s := &stage{t: t, random: rand.New(rand.NewPCG(seed, 1))}
	s.target = newParty(t, arena, "target", o, false)
	for i := range s.initiators {
		s.initiators[i] = newParty(t, arena, fmt.Sprint("initiator ", i), o, processes)
	}
	s.far = s.target.region(0)
	at := s.target.must(order{Do: doListen}).Addr
	for i := range 4 {
		if i > 0 {
			s.target.must(order{Do: doEndpoint})
		}
		initiator := s.initiators[i/2]
		if i%2 > 0 {
			initiator.must(order{Do: doEndpoint})
		}
		accepted := s.target.start(order{Do: doAccept, Endpoint: i, In: 16, Out: 16})
		initiator.must(order{Do: doConnect, Endpoint: i % 2, Addr: at, In: 16, Out: 16})
		initiator.must(order{Do: doComplete, Endpoint: i % 2})
		if r := <-accepted; r.Status != nd.Success {
			t.Fatal(r.Text)
		}
	}
	return s
}

// play runs one test, in one goroutine, and returns its outcome. The random numbers decide which side acts next.
func (s *stage) play(l *litmus) string {
	memory := s.target.local.region(0).bytes()
	clear(memory)
	var (
		posted, done [2]int
		seen, order  string
		results      [8]nd.Result
	)
	look := func(location, word int) byte { return memory[spacing*location+8*word] }
	sends := slices.ContainsFunc(l.initiate[0], func(a act) bool { return a.send })
	if sends {
		s.target.must(orderOf(doReceive))
	}
	for step := 0; ; step++ {
		if step > 1e6 {
			s.t.Fatalf("%s: no end: posted %v, done %v", l.name, posted, done)
		}
		i := s.random.IntN(len(l.initiate))
		acts, me := l.initiate[i], s.initiators[i]
		if n := posted[i]; n < len(acts) && !(acts[n].wait && done[i] < n) && s.random.IntN(2) == 0 {
			s.post(me, &acts[n], n)
			posted[i]++
			if l.early && acts[n].read {
				seen = fmt.Sprint(me.peek(spacing * n))
			}
		}
		for _, r := range me.poll(results[:]) {
			if r.Status != nd.Success {
				s.t.Fatalf("%s: %v", l.name, r)
			}
			done[i]++
			order += fmt.Sprint(r.RequestContext)
		}
		if l.observe != nil && seen == "" {
			if seen = l.observe(look); seen != "" && l.counted {
				seen += fmt.Sprint(done[0])
			}
		}
		if len(s.target.poll(results[:])) > 0 {
			seen = fmt.Sprint(look(x, s.random.IntN(wordsOfLong)))
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
			if a.read && !l.early {
				outcome.WriteString(fmt.Sprint(s.initiators[i].peek(spacing * n)))
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

// poll polls the only queue of a party once. A party in this process stores the results in room.
func (p *party) poll(room []nd.Result) []nd.Result {
	p.t.Helper()
	if p.local != nil {
		return room[:p.local.queues[0].Poll(room)]
	}
	return p.must(order{Do: doPoll, N: len(room)}).Results
}

// peek returns a byte of a party's first region.
func (p *party) peek(off int) byte {
	p.t.Helper()
	return p.must(order{Do: doPeek, Off: off, Len: 1}).Data[0]
}

func orderOf(v verb) order { return order{Do: v} }

// post posts an action. Its number is the request's context, and its place in the initiator's memory.
func (s *stage) post(me *party, a *act, n int) {
	s.t.Helper()
	o := order{Do: doWrite, Endpoint: a.endpoint, Context: uint64(n), Far: at(s.far, spacing*a.location), Flags: a.flags, Parts: mine(spacing*n, 8)}
	if a.long {
		o.Parts[0].Len = 8 * wordsOfLong
	}
	switch {
	case a.read:
		o.Do = doRead
	case a.send:
		o.Do, o.Parts = doSend, nil
	}
	me.must(order{Do: doFillByte, Off: spacing * n, Len: 8 * wordsOfLong, N: int(a.value)})
	me.must(o)
}

// TestLitmus runs 300 seeds in one process and 20 between processes, and 10,000 of each with SOFTND_STRESS=1.
func TestLitmus(t *testing.T) {
	t.Run("one process", func(t *testing.T) { testLitmus(t, weakSeeds(fewer(300), 10_000), false) })
	t.Run("processes", func(t *testing.T) { testLitmus(t, weakSeeds(fewer(20), 10_000), true) })
}

func testLitmus(t *testing.T, seeds int, processes bool) {
	outcomes := make([]map[string]int, len(litmusTests))
	for i := range outcomes {
		outcomes[i] = map[string]int{}
	}
	arena := newArena(t)
	played := 0
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { // the parties leave at its end
			s := newStage(t, arena, seed, processes)
			for i := range litmusTests {
				l := &litmusTests[i]
				outcome := s.play(l)
				if !slices.Contains(strings.Fields(l.allowed), outcome) {
					t.Errorf("%s: outcome %s, allowed are %s", l.name, outcome, l.allowed)
				}
				outcomes[i][outcome]++
			}
			played++
		})
	}
	for i, l := range litmusTests {
		t.Logf("%-52s %v", l.name, outcomes[i])
		for _, outcome := range strings.Fields(l.allowed) {
			if outcomes[i][outcome] == 0 && played >= enoughSeeds {
				t.Errorf("%s: outcome %s is allowed, but no seed has it", l.name, outcome)
			}
		}
	}
}

// enoughSeeds show each outcome that is allowed. With fewer, the rarest may be missing.
const enoughSeeds = 300

// engineRounds returns how often the engines of all sides have driven an endpoint.
func (s *stage) engineRounds() (n uint64) {
	for _, p := range []*party{s.initiators[0], s.initiators[1], s.target} {
		n += p.local.provider.weak.engineRounds.Load()
	}
	return n
}

// The same seed and program have the same outcomes. If the machine interrupts the program, the engines drive its
// endpoints, so such a run does not count.
func TestWeakOrderReplays(t *testing.T) {
	try := func(seed uint64) (all []string, counts bool) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := newStage(t, newArena(t), seed, false) // in a new arena, the sides have the same slots each time
			var results [8]nd.Result
			for _, p := range []*party{s.initiators[0], s.initiators[1], s.target} {
				p.poll(results[:])
			}
			time.Sleep(5 * time.Millisecond) // the engines see the polls
			before := s.engineRounds()
			for i := range litmusTests {
				all = append(all, s.play(&litmusTests[i]))
			}
			counts = s.engineRounds() == before
		})
		return all, counts
	}
	run := func(seed uint64) []string {
		for range 100 {
			if all, counts := try(seed); counts {
				return all
			}
		}
		t.Fatal("the machine interrupts each run")
		return nil
	}
	different := map[string]bool{}
	for seed := range uint64(8) {
		first := run(seed)
		for range 3 {
			if again := run(seed); !slices.Equal(first, again) {
				t.Errorf("seed %d: %v, and then %v", seed, first, again)
			}
		}
		different[fmt.Sprint(first)] = true
	}
	if len(different) < 2 {
		t.Errorf("all seeds have the same outcomes: %v", slices.Collect(maps.Keys(different)))
	}
}
