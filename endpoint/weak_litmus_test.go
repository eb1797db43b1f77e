package endpoint

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/softnd/softnd/internal/testkit/litmus"
	"github.com/softnd/softnd/internal/testkit/scale"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// litmusSide is a side as the litmus tests use it.
type litmusSide struct {
	*side
	region  int                 // of a target
	far     nd.WindowDescriptor // of an initiator
	retries int                 // of a poll
}

func (p litmusSide) Memory() []byte { return p.regionAt(p.region).bytes() }
func (p litmusSide) Receive()       { p.t.Helper(); p.must(order{Do: doReceive}) }

// pollRetries is the maximum number of further polls of a side in another process while its queue is empty. Each message to it costs
// two switches between processes, and most polls return no result. One seed in four has none, so that all sides look after each step.
const pollRetries = 7

// Poll polls the only queue. A side in this process polls once, into room.
func (p litmusSide) Poll(room []nd.Result) []nd.Result {
	p.t.Helper()
	if p.process == nil {
		return room[:p.queues[0].Poll(room)]
	}
	return p.must(order{Do: doPoll, N: len(room), Retries: p.retries}).Results
}

func (p litmusSide) Peek(off int) byte {
	p.t.Helper()
	return p.must(order{Do: doPeek, Off: off, Len: 1}).Data[0]
}

func (p litmusSide) Post(r litmus.Request) {
	p.t.Helper()
	o := order{Endpoint: r.Endpoint, Context: r.Context, Far: at(p.far, r.Far), Flags: r.Flags, Parts: mine(r.Near, r.Length), Operand: r.Operands[0], Swap: r.Operands[1]}
	switch r.Type {
	case nd.RequestWrite:
		o.Do = doWrite
	case nd.RequestRead:
		o.Do = doRead
	case nd.RequestSend:
		o.Do, o.Parts = doSend, nil
	case nd.RequestFetchAndAdd:
		o.Do = doFetchAndAdd
	case nd.RequestCompareAndSwap:
		o.Do = doCompareAndSwap
	case nd.RequestSwap:
		o.Do = doSwap
	}
	if r.Immediate != 0 {
		o.Do, o.Operand = map[verb]verb{doWrite: doWriteImmediate, doSend: doSendImmediate}[o.Do], uint64(r.Immediate)
	}
	p.must(order{Do: doFillByte, Off: r.Near, Len: litmus.Filled, N: int(r.Value)})
	p.must(o)
}

// newLitmusSetup connects the sides. The initiators are processes of their own if processes is set.
func newLitmusSetup(t testing.TB, arena *shm.Arena, seed uint64, processes bool) (s *litmus.Setup, sides []*side) {
	t.Helper()
	o := sideOptions{Options: Options{Executor: Executor(seed % 2), WeakOrder: &seed}, Size: litmus.MemorySize, OneQueue: true, Private: seed/2%2 == 1}
	s = &litmus.Setup{T: t, Random: rand.New(rand.NewPCG(seed, 1))}
	target := newSide(t, arena, "target", o, false)
	memory := target.must(order{Do: doRegion, Len: litmus.MemorySize, Private: o.Private, Rights: nd.AllowLocalWrite | nd.AllowRemoteRead | nd.AllowRemoteWrite | nd.AllowRemoteAtomic})
	retries := pollRetries
	if seed/4%4 == 0 { // seed%4 selects the executor and the memory
		retries = 0
	}
	initiators := make([]*side, 2)
	for i := range initiators {
		initiators[i] = newSide(t, arena, fmt.Sprint("initiator ", i), o, processes)
		s.Initiators[i] = litmusSide{side: initiators[i], far: memory.Far, retries: retries}
	}
	s.Target = litmusSide{side: target, region: memory.N}
	at := target.listen(0)
	for i := range 4 {
		if i > 0 {
			target.must(order{Do: doEndpoint})
		}
		initiator := initiators[i/2]
		if i%2 > 0 {
			initiator.must(order{Do: doEndpoint})
		}
		initiator.connectTo(i%2, target, i, at, 0)
	}
	return s, append(initiators, target)
}

// TestLitmus runs 300 seeds in one process and 20 between processes, and 10,000 of each with SOFTND_STRESS=1.
func TestLitmus(t *testing.T) {
	t.Parallel()
	t.Run("one process", func(t *testing.T) { testLitmus(t, scale.Of(fewer(300), 10_000), false) })
	t.Run("processes", func(t *testing.T) { testLitmus(t, scale.Of(fewer(20), 10_000), true) })
}

func testLitmus(t *testing.T, seeds int, processes bool) {
	var outcomes litmus.Outcomes
	arena := newArena(t)
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { // the sides leave at its end
			s, _ := newLitmusSetup(t, arena, seed, processes)
			outcomes.Run(s)
		})
	}
	outcomes.Check(t)
}

// The same seed and program have the same outcomes. The rounds of an engine depend on the time, so the engines rest.
func TestWeakOrderReplays(t *testing.T) {
	run := func(seed uint64) (all []string) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s, sides := newLitmusSetup(t, newArena(t), seed, false) // in a new arena, the sides have the same slots each time
			for _, p := range sides {
				p.provider.engine.stop()
			}
			for i := range litmus.Tests {
				all = append(all, s.Run(&litmus.Tests[i]))
			}
		})
		return all
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
