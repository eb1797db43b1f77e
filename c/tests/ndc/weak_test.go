package ndc

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/litmus"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndtest"
	"github.com/softnd/softnd/shm"
)

// weakSeeds returns the number of seeds of a test: NDC_WEAK_SEEDS, or few.
func weakSeeds(few int) int {
	if n, err := strconv.Atoi(os.Getenv("NDC_WEAK_SEEDS")); err == nil {
		return n
	}
	return few
}

// litmusSide is a member in the litmus tests, with endpoints that share a queue.
type litmusSide struct {
	member
	endpoints []nd.Endpoint
	far       nd.WindowDescriptor // of an initiator
}

func (p *litmusSide) Memory() []byte { return p.mr.Bytes()[:litmus.MemorySize] }
func (p *litmusSide) Receive()       { check(p.endpoints[0].Receive(0, nd.SGL{})) }

func (p *litmusSide) Poll(room []nd.Result) []nd.Result { return room[:p.cq.Poll(room)] }
func (p *litmusSide) Peek(at int) byte                  { return p.mr.Bytes()[at] }

func (p *litmusSide) Post(r litmus.Request) {
	near := p.mr.Bytes()[r.Near:][:litmus.Filled]
	for i := range near {
		near[i] = r.Value
	}
	ep, data, far := p.endpoints[r.Endpoint], nd.One(nd.SGEOf(p.mr, r.Near, r.Length)), p.far.Address+uint64(r.Far)
	switch r.Type {
	case nd.RequestRead:
		check(ep.Read(r.Context, data, far, p.far.Token, r.Flags))
	case nd.RequestWrite:
		if r.Immediate != 0 {
			check(ep.WriteImmediate(r.Context, data, far, p.far.Token, r.Immediate, r.Flags))
			return
		}
		check(ep.Write(r.Context, data, far, p.far.Token, r.Flags))
	case nd.RequestFetchAndAdd:
		check(ep.FetchAndAdd(r.Context, data.First, far, p.far.Token, r.Operands[0], r.Flags))
	case nd.RequestCompareAndSwap:
		check(ep.CompareAndSwap(r.Context, data.First, far, p.far.Token, r.Operands[0], r.Operands[1], r.Flags))
	case nd.RequestSwap:
		check(ep.Swap(r.Context, data.First, far, p.far.Token, r.Operands[0], r.Flags))
	default:
		if r.Immediate != 0 {
			check(ep.SendImmediate(r.Context, nd.SGL{}, r.Immediate, r.Flags))
			return
		}
		check(ep.Send(r.Context, nd.SGL{}, r.Flags))
	}
}

// newLitmusSetup connects initiators in one language with a target in another one. They leave at the end of t.
func newLitmusSetup(t *testing.T, arena *shm.Arena, languages [2]string, seed uint64) *litmus.Setup {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s := &litmus.Setup{T: t, Random: rand.New(rand.NewPCG(seed, 1))}
	kind := executors[seed%2] + weak + fmt.Sprint(seed)
	private := seed/2%2 == 1
	target, addr := newMember(ctx, t, must(open(arena, languages[1], kind, longTimeout)), private)
	to := &litmusSide{member: target}
	s.Target = to
	for i := range s.Initiators {
		m, _ := newMember(ctx, t, must(open(arena, languages[0], kind, longTimeout)), private)
		from := &litmusSide{member: m, far: nd.DescriptorOf(target.mr)}
		for n := range 2 {
			if n > 0 {
				m.ep = must(m.adapter.CreateEndpoint(ctx, nd.EndpointConfig{ReceiveCQ: m.cq, InitiatorCQ: m.cq}))
			}
			if i+n > 0 {
				target.ep = must(target.adapter.CreateEndpoint(ctx, nd.EndpointConfig{ReceiveCQ: target.cq, InitiatorCQ: target.cq}))
			}
			connect(ctx, m, target, addr)
			from.endpoints, to.endpoints = append(from.endpoints, m.ep), append(to.endpoints, target.ep)
		}
		s.Initiators[i] = from
	}
	return s
}

// TestLitmus plays the litmus tests with initiators and a target in two languages. Over all seeds, each outcome that the model
// allows occurs, and no other.
func TestLitmus(t *testing.T) {
	t.Parallel()
	for _, languages := range pairings {
		t.Run(languages[0]+"-"+languages[1], func(t *testing.T) {
			t.Parallel()
			var outcomes litmus.Outcomes
			arena := newArena(t)
			for seed := range uint64(weakSeeds(300)) {
				t.Run(fmt.Sprint(seed), func(t *testing.T) { outcomes.Run(newLitmusSetup(t, arena, languages, seed)) })
			}
			outcomes.Check(t)
		})
	}
}

// lenient are the scenarios that need more than the model promises. A weak order takes it away, see endpoint/conformance_weak_test.go.
var lenient = []string{"C058", "C111", "C119", "C120", "C121"}

// TestWeakOrderConforms runs the scenarios of the model.
func TestWeakOrderConforms(t *testing.T) {
	t.Parallel() // with TestConformance: a run sleeps most of the time
	var only []string
	for _, sc := range ndtest.Scenarios() {
		if !slices.Contains(lenient, sc.ID) {
			only = append(only, sc.ID)
		}
	}
	each(t, weakExecutors(), func(t *testing.T, name string, cfg ndtest.Config) {
		if executor := strings.Split(name, "/")[1]; weakSeeds(0) == 0 && cfg.PrivateMemory != strings.HasPrefix(executor, "target") {
			t.Skip("NDC_WEAK_SEEDS is not set: each executor has one kind of memory")
		}
		if cfg.Only == nil {
			cfg.Only = only
		}
		ndtest.Run(t, cfg)
	})
}

// TestWeakOrderStress runs the stress test of the suite, which checks the bytes of each transfer.
func TestWeakOrderStress(t *testing.T) {
	each(t, weakExecutors(), func(t *testing.T, _ string, cfg ndtest.Config) { ndtest.Stress(t, cfg, 1, 3) })
}

func weakExecutors() (all []string) {
	for seed := range weakSeeds(2) {
		all = append(all, executors[seed%2]+weak+fmt.Sprint(seed))
	}
	return all
}
