package endpoint

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd/faults"
	"github.com/softnd/softnd/internal/faultplan"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndtest"
	"github.com/softnd/softnd/shm"
)

// delays are rules that hold requests, results and messages back at random, which no program may notice but
// by the time.
func delays() []faults.Rule {
	requests := []string{"send", "send-and-invalidate", "read", "write", "atomic", "bind", "invalidate", "invalidate-region", "fast-register"}
	delay := faults.Rule{Probability: 0.05, Action: "delay", Delay: 200 * time.Microsecond}
	execute, complete, arrival := delay, delay, delay
	execute.Operations, complete.Operations, arrival.Operations = requests, requests, []string{"receive"}
	complete.Phase = "complete"
	return []faults.Rule{execute, complete, arrival}
}

// TestConformanceUnderDelays: an endpoint with a fault plan, which never takes the fast path, keeps every promise
// of the model.
func TestConformanceUnderDelays(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	plan, err := faults.New(seed, delays()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the runs, which are parallel
		if err := plan.Check(); err != nil {
			t.Error(err)
		}
	})
	for name, e := range map[string]Executor{"auto": Auto, "target": Target} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arena := newArena(t)
			opener := func(timeout time.Duration) func() (nd.Provider, error) {
				return func() (nd.Provider, error) {
					member, err := arena.Join(shm.NoRank)
					if err != nil {
						return nil, err
					}
					p, err := New(member, Options{Executor: e, ReceiveTimeout: timeout, disconnectTimeout: timeout, Faults: (*faultplan.Plan)(plan).For})
					return hosted{p, member}, err
				}
			}
			ndtest.Run(t, ndtest.Config{
				Open: opener(longTimeout), OpenTimed: opener(shortTimeout), PrivateMemory: e == Target,
				ReceiveTimeout: shortTimeout, DisconnectTimeout: shortTimeout,
			})
		})
	}
}

// TestOracleUnderDelays is TestOracle with such a plan at both ends.
func TestOracleUnderDelays(t *testing.T) {
	t.Parallel()
	rules := rulesOf(t, delays()...)
	for _, e := range []Executor{Auto, Target} {
		s := setup{Executors: [2]Executor{e, e}, Unwired: true, Both: sideOptions{Options: Options{ReceiveTimeout: proctest.Timeout}, FaultRules: rules}}
		t.Run(s.String(), func(t *testing.T) {
			o := newOracle(t, newPair(t, s))
			for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
				o.try(rand.Uint64())
			}
		})
	}
}

// TestFaultSeedRepeats: with the same seed the same operations meet the same faults.
func TestFaultSeedRepeats(t *testing.T) {
	run := func(seed uint64) (wrong string) {
		plan, err := faults.New(seed, on("write", faults.Rule{Probability: 0.3, Action: "corrupt"}))
		if err != nil {
			t.Fatal(err)
		}
		p := &pair{arena: newArena(t)}
		p.a = newSide(t, p.arena, "a", sideOptions{FaultRules: (*faultplan.Plan)(plan).Rules()}, false)
		p.b = newSide(t, p.arena, "b", sideOptions{}, false)
		p.b.must(order{Do: doFillByte, Len: 100})
		p.a.must(order{Do: doFillByte, Len: 1})
		p.connect(p.b.must(order{Do: doListen}).Addr)
		far := p.b.describe(0)
		for i := range 100 {
			p.a.must(order{Do: doWrite, Parts: mine(0, 1), Far: at(far, i)})
			p.a.results(initiatorQueue, 1)
		}
		return fmt.Sprintf("%x", p.b.rangeOf(order{Len: 100}))
	}
	first := run(1)
	if n := strings.Count(first, "ff"); n < 10 || n > 60 {
		t.Errorf("%d of 100 bytes are wrong", n)
	}
	if second := run(1); second != first {
		t.Errorf("with the same seed\n%s\n%s", first, second)
	}
	if run(2) == first {
		t.Error("another seed makes no difference")
	}
}
