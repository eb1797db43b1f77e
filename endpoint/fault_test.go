package endpoint

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/softnd/softnd/faults"
	"github.com/softnd/softnd/internal/faultplan"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/window"
)

// rulesOf compiles rules.
func rulesOf(t testing.TB, rules ...faults.Rule) []faultplan.Rule {
	t.Helper()
	plan, err := faults.New(1, rules...)
	if err != nil {
		t.Fatal(err)
	}
	return (*faultplan.Plan)(plan).Rules()
}

// on is a rule about one operation.
func on(operation string, r faults.Rule) faults.Rule {
	r.Operations = []string{operation}
	return r
}

// newFaultyPair makes a pair whose side a, or b, has fault rules.
func newFaultyPair(t testing.TB, s setup, a, b []faults.Rule) *pair {
	t.Helper()
	p := &pair{setup: s, arena: newArena(t)}
	side := func(i int, name string, rules []faults.Rule, otherProcess bool) *side {
		o := s.Both
		o.Executor, o.Private = s.Executors[i], s.Private[i]
		if rules != nil {
			o.FaultRules = rulesOf(t, rules...)
		}
		return newSide(t, p.arena, name, o, otherProcess)
	}
	p.a, p.b = side(0, "a", a, false), side(1, "b", b, s.Processes)
	p.a.memory, p.b.memory = p.a.describe(0), p.b.describe(0)
	if !s.Unwired {
		p.connect(p.b.must(order{Do: doListen}).Addr)
	}
	return p
}

// faultSetups are pairs within this process, in which different code copies.
func faultSetups() (all []setup) {
	for _, s := range everySetup(setup{}) {
		if !s.Processes {
			all = append(all, s)
		}
	}
	return all
}

// onFaulty runs a test with each of the faultSetups, and checks that each rule of side a has acted.
func onFaulty(t *testing.T, a []faults.Rule, test func(t *testing.T, p *pair)) {
	t.Helper()
	runEach(t, faultSetups(), func(t *testing.T, s setup) {
		p := newFaultyPair(t, s, a, nil)
		test(t, p)
		p.a.allFired()
	})
}

// allFired checks that each rule of a side has acted.
func (s *side) allFired() {
	s.t.Helper()
	for i := range s.plan.Rules() {
		if matched, fired := s.plan.Counts(i); fired == 0 {
			s.t.Errorf("rule %d of %s has not acted; it matched %d operations", i+1, s.name, matched)
		}
	}
}

// ended checks that the connection has ended at both sides.
func (p *pair) ended(want nd.Status) {
	p.a.t.Helper()
	for _, side := range []*side{p.a, p.b} {
		ep := side.endpointAt(0)
		proctest.Eventually(p.a.t, side.name+" has ended", func() bool { return isClosed(ep.Done()) })
	}
	if err := p.a.endpointAt(0).Err(); nd.StatusOf(err) != want {
		p.a.t.Errorf("%s: %v, want %v", p.a.name, err, want)
	}
}

func TestFaultEndsConnection(t *testing.T) {
	// The third Write fails. The two before it succeed, the one after it and the Receives are canceled.
	onFaulty(t, []faults.Rule{on("write", faults.Rule{Nth: 3, Action: "fail", Status: nd.IOTimeout})}, func(t *testing.T, p *pair) {
		p.a.must(order{Do: doReceive, Context: 9})
		p.b.must(order{Do: doReceive, Context: 8})
		before := p.b.sum(0, 200, 100)
		for i := range 4 {
			p.a.must(order{Do: doWrite, Context: uint64(i), Parts: mine(0, 100), Far: at(p.b.memory, 100*i)})
		}
		p.a.expect(initiatorQueue, success(nd.RequestWrite, 0, 100), success(nd.RequestWrite, 1, 100),
			failure(nd.RequestWrite, 2, nd.IOTimeout), failure(nd.RequestWrite, 3, nd.Canceled))
		p.a.expect(receiveQueue, failure(nd.RequestReceive, 9, nd.Canceled))
		p.b.expect(receiveQueue, failure(nd.RequestReceive, 8, nd.Canceled))
		p.ended(nd.IOTimeout)
		if p.b.sum(0, 200, 100) != before {
			t.Error("the failed Write has written")
		}
	})
}

func TestFaultAfterSuccess(t *testing.T) {
	onFaulty(t, []faults.Rule{on("write", faults.Rule{Phase: "complete", Action: "fail", Status: nd.RemoteError})}, func(t *testing.T, p *pair) {
		p.a.fill(0, 0, 5000, 1)
		p.a.must(order{Do: doWrite, Parts: mine(0, 5000), Far: p.b.memory, Flags: nd.SilentSuccess})
		p.a.expect(initiatorQueue, failure(nd.RequestWrite, 0, nd.RemoteError))
		p.ended(nd.RemoteError)
		if p.b.sum(0, 0, 5000) != p.a.sum(0, 0, 5000) {
			t.Error("the Write has not written")
		}
	})
}

func TestFaultInPost(t *testing.T) {
	rules := []faults.Rule{
		on("write", faults.Rule{Nth: 2, Phase: "post", Action: "fail", Status: nd.NoMoreEntries}),
		on("receive", faults.Rule{Nth: 1, Phase: "post", Action: "fail", Status: nd.InsufficientResources}),
		on("bind", faults.Rule{Nth: 1, Phase: "post", Action: "fail", Status: nd.InsufficientResources}),
		on("fast-register", faults.Rule{Phase: "post", Action: "fail", Status: nd.InsufficientResources}),
	}
	onFaulty(t, rules, func(t *testing.T, p *pair) {
		write := order{Do: doWrite, Parts: mine(0, 8), Far: p.b.memory}
		p.a.must(write)
		p.a.refuse(nd.NoMoreEntries, write)
		p.a.must(write)
		p.a.refuse(nd.InsufficientResources, order{Do: doReceive})
		p.a.must(order{Do: doReceive})
		bind := order{Do: doBind, Window: p.a.must(order{Do: doWindow}).N, Len: 8, Flags: nd.AllowRead}
		p.a.refuse(nd.InsufficientResources, bind)
		p.a.must(bind)
		p.a.expect(initiatorQueue, success(nd.RequestWrite, 0, 8), success(nd.RequestWrite, 0, 8), success(nd.RequestBind, 0, 0))
		p.a.nothing(receiveQueue)
		fast := p.a.fastRegion(4096)
		p.a.refuse(nd.InsufficientResources, order{Do: doFastRegister, Region: fast, Len: 4096, Far: nd.WindowDescriptor{Address: 1 << 20}})
		p.a.must(order{Do: doCloseMapping, Region: fast}) // no registration uses its pages
	})
}

func TestFaultMidTransfer(t *testing.T) {
	t.Parallel()
	const n, k = 3 * window.ChunkSize, window.ChunkSize + 34_467 // in the second chunk
	for _, operation := range []string{"write", "read", "send"} {
		for _, action := range []faults.Rule{{Action: "fail", Status: nd.IOTimeout}, {Action: "invalidate"}, {Action: "drop"}} {
			if operation == "send" && action.Action == "invalidate" {
				continue
			}
			action.After = k
			t.Run(operation+"/"+action.Action, func(t *testing.T) {
				want := map[string]nd.Status{"fail": nd.IOTimeout, "invalidate": nd.AccessViolation, "drop": nd.Canceled}[action.Action]
				runEach(t, faultSetups(), func(t *testing.T, s setup) {
					s.Both.Size = n
					p := newFaultyPair(t, s, []faults.Rule{on(operation, action)}, nil)
					from, to := p.a, p.b
					if operation == "read" {
						from, to = p.b, p.a
					}
					from.fill(0, 0, n, 1)
					to.fill(0, 0, n, 2)
					tail := to.sum(0, k, n-k)
					if operation == "send" {
						p.b.must(order{Do: doReceive, Parts: mine(0, n)})
					}
					do := map[string]order{"write": {Do: doWrite}, "read": {Do: doRead}, "send": {Do: doSend}}[operation]
					if do.Parts = mine(0, n); operation != "send" {
						do.Far = p.b.memory
					}
					p.a.must(do)
					if got := p.a.results(initiatorQueue, 1)[0].Status; got != want {
						t.Fatalf("status %v, want %v: %s", got, want, p.a.why())
					}
					if operation == "send" {
						p.b.expect(receiveQueue, failure(nd.RequestReceive, 0, nd.Canceled))
					}
					cause := map[string]nd.Status{"drop": nd.ConnectionAborted}[action.Action]
					if cause == 0 {
						cause = want
					}
					p.ended(cause)
					if to.sum(0, 0, k) != from.sum(0, 0, k) {
						t.Errorf("the first %d bytes are not all copied", k)
					}
					if to.sum(0, k, n-k) != tail {
						t.Errorf("bytes after the first %d have changed", k)
					}
					p.a.allFired()
				})
			})
		}
	}
}

// TestFaultWithinSmallTransfers: a Write that would fit into a ring entry, and a message that does.
func TestFaultWithinSmallTransfers(t *testing.T) {
	rules := []faults.Rule{on("write", faults.Rule{After: 10, Action: "fail", Status: nd.IOTimeout})}
	onFaulty(t, rules, func(t *testing.T, p *pair) {
		p.a.fill(0, 0, 32, 1)
		p.b.fill(0, 0, 32, 2)
		tail := p.b.sum(0, 10, 22)
		p.a.must(order{Do: doWrite, Parts: mine(0, 32), Far: p.b.memory})
		p.a.expect(initiatorQueue, failure(nd.RequestWrite, 0, nd.IOTimeout))
		if p.b.sum(0, 0, 10) != p.a.sum(0, 0, 10) || p.b.sum(0, 10, 22) != tail {
			t.Error("not the first 10 bytes are copied")
		}
	})
	onFaulty(t, []faults.Rule{on("send", faults.Rule{After: 10, Action: "fail", Status: nd.IOTimeout})}, func(t *testing.T, p *pair) {
		p.b.must(order{Do: doReceive, Parts: mine(0, 32)})
		p.a.must(order{Do: doSend, Parts: mine(0, 32)})
		p.a.expect(initiatorQueue, failure(nd.RequestSend, 0, nd.IOTimeout))
		p.b.expect(receiveQueue, failure(nd.RequestReceive, 0, nd.Canceled))
	})
}

func TestFaultCorrupts(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 40, 48, 1000, 5 * window.ChunkSize / 2} { // the last: in the second chunk
		offset := uint64(n / 2)
		for _, operation := range []string{"write", "read", "send", "receive"} {
			t.Run(fmt.Sprintf("%s of %d", operation, n), func(t *testing.T) {
				rule := on(operation, faults.Rule{Nth: 2, Action: "corrupt", Offset: offset, XOR: 0x10})
				runEach(t, faultSetups(), func(t *testing.T, s setup) {
					rules := [2][]faults.Rule{{rule}, nil}
					if operation == "receive" {
						rules = [2][]faults.Rule{nil, {rule}}
					}
					s.Both.Size = n
					p := newFaultyPair(t, s, rules[0], rules[1])
					defer func() {
						for i, r := range p.a.endpointAt(0).(*queuePair).req.requests {
							if cap(r.Inline) != 0 {
								t.Errorf("request %d keeps the corrupted copy", i)
							}
						}
					}()
					from, to := p.a, p.b
					if operation == "read" {
						from, to = p.b, p.a
					}
					for i := range 3 {
						from.fill(0, 0, n, uint64(i))
						original := from.sum(0, 0, n)
						do := map[string]order{"write": {Do: doWrite}, "read": {Do: doRead}, "send": {Do: doSend}, "receive": {Do: doSend}}[operation]
						if do.Parts = mine(0, n); do.Do != doSend {
							do.Far = p.b.memory
						} else {
							p.b.must(order{Do: doReceive, Parts: mine(0, n)})
						}
						p.a.must(do)
						p.a.results(initiatorQueue, 1)
						if do.Do == doSend {
							p.b.results(receiveQueue, 1)
						}
						if from.sum(0, 0, n) != original {
							t.Error("the data of the sender has changed")
						}
						b := to.rangeOf(order{Len: n})
						if i == 1 {
							if to.sum(0, 0, n) == original {
								t.Error("no byte is wrong")
							}
							b[offset] ^= 0x10
						}
						if to.sum(0, 0, n) != original {
							t.Errorf("transfer %d: a wrong byte where no rule asks for one", i)
						}
					}
				})
			})
		}
	}
}

func TestFaultDelays(t *testing.T) {
	t.Parallel()
	const delay = 30 * time.Millisecond
	for _, phase := range []string{"execute", "complete"} {
		t.Run(phase, func(t *testing.T) {
			onFaulty(t, []faults.Rule{on("write", faults.Rule{Nth: 2, Phase: phase, Action: "delay", Delay: delay})}, func(t *testing.T, p *pair) {
				began := time.Now()
				for i := range 3 {
					p.a.must(order{Do: doWrite, Context: uint64(i), Parts: mine(0, 100), Far: p.b.memory})
				}
				p.a.expect(initiatorQueue, success(nd.RequestWrite, 0, 100))
				if p.a.expect(initiatorQueue, success(nd.RequestWrite, 1, 100)); time.Since(began) < delay {
					t.Errorf("complete after %v", time.Since(began))
				}
				p.a.expect(initiatorQueue, success(nd.RequestWrite, 2, 100))
			})
		})
	}
	t.Run("receive", func(t *testing.T) {
		runEach(t, faultSetups(), func(t *testing.T, s setup) {
			p := newFaultyPair(t, s, nil, []faults.Rule{on("receive", faults.Rule{Nth: 1, Action: "delay", Delay: delay})})
			for _, n := range []int{8, 100_000} {
				p.b.must(order{Do: doReceive, Context: uint64(n), Parts: mine(0, n)})
			}
			began := time.Now()
			for _, n := range []int{8, 100_000} {
				p.a.must(order{Do: doSend, Parts: mine(0, n)})
			}
			if p.b.expect(receiveQueue, success(nd.RequestReceive, 8, 8)); time.Since(began) < delay {
				t.Errorf("received after %v", time.Since(began))
			}
			p.b.expect(receiveQueue, success(nd.RequestReceive, 100_000, 100_000))
		})
	})
}

// TestFaultDelayEndsWithoutPolls: no call of the program drives the endpoint meanwhile.
func TestFaultDelayEndsWithoutPolls(t *testing.T) {
	rules := []faults.Rule{on("write", faults.Rule{Phase: "complete", Action: "delay", Delay: 10 * time.Millisecond})}
	onFaulty(t, rules, func(t *testing.T, p *pair) {
		awaitEngineSleeps(t, p.a)
		p.a.must(order{Do: doWrite, Parts: mine(0, 8), Far: p.b.memory})
		q := p.a.queues[initiatorQueue].(*completionQueue)
		proctest.Eventually(t, "the engine completes the request", func() bool { return !q.ring.IsEmpty() })
	})
}

// TestFaultDelayNeedsPolling: no ring announces the end of a delay, so a process that sleeps wakes up in time.
func TestFaultDelayNeedsPolling(t *testing.T) {
	for _, phase := range []string{"execute", "complete"} {
		p := newFaultyPair(t, setup{}, []faults.Rule{on("write", faults.Rule{Phase: phase, Action: "delay", Delay: time.Hour})}, nil)
		p.a.must(order{Do: doWrite, Parts: mine(0, 8), Far: p.b.memory})
		if !p.a.endpointAt(0).(*queuePair).needsPolling() {
			t.Errorf("not during a delay in the phase %s", phase)
		}
		p.a.must(order{Do: doFlush}) // ends the delay
		p.a.results(initiatorQueue, 1)
	}
	p := newFaultyPair(t, setup{}, nil, []faults.Rule{on("receive", faults.Rule{Action: "delay", Delay: time.Hour})})
	p.b.must(order{Do: doReceive, Parts: mine(0, 8)})
	p.a.must(order{Do: doSend, Parts: mine(0, 8)})
	proctest.Eventually(t, "the delay of a message needs polling", p.b.endpointAt(0).(*queuePair).needsPolling)
}

func TestFaultDrops(t *testing.T) {
	for _, phase := range []string{"post", "execute", "complete"} {
		t.Run(phase, func(t *testing.T) {
			onFaulty(t, []faults.Rule{on("write", faults.Rule{Nth: 2, Phase: phase, Action: "drop"})}, func(t *testing.T, p *pair) {
				p.b.must(order{Do: doReceive})
				write := order{Do: doWrite, Parts: mine(0, 8), Far: p.b.memory}
				p.a.must(write)
				if phase == "post" { // else chance would decide whether the drop cancels the first Write
					p.a.expect(initiatorQueue, success(nd.RequestWrite, 0, 8))
				}
				p.a.must(write)
				switch phase {
				case "complete": // the transfer is over
					p.a.expect(initiatorQueue, success(nd.RequestWrite, 0, 8), success(nd.RequestWrite, 0, 8))
				case "execute": // the first Write completes before the rule acts
					p.a.must(write)
					p.a.expect(initiatorQueue, success(nd.RequestWrite, 0, 8), failure(nd.RequestWrite, 0, nd.Canceled), failure(nd.RequestWrite, 0, nd.Canceled))
				case "post":
					p.a.must(write)
					p.a.expect(initiatorQueue, failure(nd.RequestWrite, 0, nd.Canceled), failure(nd.RequestWrite, 0, nd.Canceled))
				}
				p.b.expect(receiveQueue, failure(nd.RequestReceive, 0, nd.Canceled))
				p.ended(nd.ConnectionAborted)
			})
		})
	}
	t.Run("receive", func(t *testing.T) {
		p := newFaultyPair(t, setup{}, nil, []faults.Rule{on("receive", faults.Rule{Action: "drop"})})
		for i := range 2 {
			p.b.must(order{Do: doReceive, Context: uint64(i), Parts: mine(0, 8)})
		}
		p.a.must(order{Do: doSend, Parts: mine(0, 8)})
		p.b.expect(receiveQueue, success(nd.RequestReceive, 0, 8), failure(nd.RequestReceive, 1, nd.Canceled)) // the Send was complete
		p.ended(nd.ConnectionAborted)
	})
}

func TestFaultOverrunsQueue(t *testing.T) {
	for _, phase := range []string{"post", "execute", "complete"} {
		t.Run(phase, func(t *testing.T) {
			onFaulty(t, []faults.Rule{on("write", faults.Rule{Nth: 2, Phase: phase, Action: "overrun"})}, func(t *testing.T, p *pair) {
				write := order{Do: doWrite, Parts: mine(0, 8), Far: p.b.memory}
				p.a.must(write)
				p.a.expect(initiatorQueue, success(nd.RequestWrite, 0, 8))
				p.a.must(write)
				if r := p.a.do(order{Do: doWait, N: 1}); r.Status != nd.BufferOverflow {
					t.Errorf("Wait: %v %s", r.Status, r.Text)
				}
				p.ended(nd.InternalError)
			})
		})
	}
	t.Run("receive", func(t *testing.T) {
		p := newFaultyPair(t, setup{}, nil, []faults.Rule{on("receive", faults.Rule{Action: "overrun"})})
		p.b.must(order{Do: doReceive, Parts: mine(0, 8)})
		p.a.must(order{Do: doSend, Parts: mine(0, 8)})
		if r := p.b.do(order{Do: doWait, Queue: receiveQueue, N: 1}); r.Status != nd.BufferOverflow {
			t.Errorf("Wait: %v %s", r.Status, r.Text)
		}
	})
}

// TestFaultKillsProcess: the process dies at its third Write, in each phase.
func TestFaultKillsProcess(t *testing.T) {
	for phase, written := range map[string]int{"post": 2, "execute": 2, "complete": 3} {
		t.Run(phase, func(t *testing.T) {
			t.Parallel()
			p := newFaultyPair(t, setup{Processes: true}, nil, []faults.Rule{on("write", faults.Rule{Nth: 3, Phase: phase, Action: "kill"})})
			p.b.must(order{Do: doFillByte, Len: 8, N: 7})
			p.a.must(order{Do: doFillByte, Len: 32})
			for i := range 2 {
				p.b.must(order{Do: doWrite, Parts: mine(0, 8), Far: at(p.a.memory, 8*i)})
			}
			if r := p.b.do(order{Do: doWrite, Parts: mine(0, 8), Far: at(p.a.memory, 16)}); !r.IsGone {
				t.Errorf("the third Write returns %v: %s", r.Status, r.Text)
			}
			p.b.process.kill() // it is dead: this only waits for it
			p.a.must(order{Do: doNotify})
			if got := p.a.must(order{Do: doLongestRun, Len: 32, N: 7}).N; got != 8*written {
				t.Errorf("%d bytes are written, want %d", got, 8*written)
			}
		})
	}
}

// TestFaultStopsProcess: the process stops before the Write, and continues after SIGCONT.
func TestFaultStopsProcess(t *testing.T) {
	p := newFaultyPair(t, setup{Processes: true}, nil, []faults.Rule{on("write", faults.Rule{Nth: 1, Action: "stop"})})
	done := p.b.start(order{Do: doWrite, Parts: mine(0, 8), Far: p.a.memory})
	pid := p.b.process.Cmd.Process.Pid
	proctest.Eventually(t, "the process stops", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && bytes.Contains(stat, []byte(") T "))
	})
	select {
	case r := <-done:
		t.Fatalf("the Write returns %v", r)
	default:
	}
	p.b.process.Resume()
	if r := <-done; r.Status != nd.Success {
		t.Errorf("%v: %s", r.Status, r.Text)
	}
	p.b.expect(initiatorQueue, success(nd.RequestWrite, 0, 8))
}

// TestFaultPlanKeepsTheFastPathOff, and only for a side that a rule names.
func TestFaultPlanKeepsTheFastPathOff(t *testing.T) {
	p := newFaultyPair(t, setup{}, []faults.Rule{on("read", faults.Rule{Nth: 1 << 40, Action: "drop"})}, []faults.Rule{{Operations: []string{"read"}, Ranks: []int{5}, Action: "drop"}})
	for _, s := range []*side{p.a, p.b} {
		far := p.a.memory
		if s == p.a {
			far = p.b.memory
		}
		for range 3 {
			s.must(order{Do: doWrite, Parts: mine(0, 8), Far: far})
		}
		s.results(initiatorQueue, 3)
	}
	for s, want := range map[*side]uint64{p.a: 0, p.b: 3} {
		if got := s.endpointAt(0).(*queuePair).Stats().RequestsImmediate; got != want {
			t.Errorf("%s: %d requests took the fast path, want %d", s.name, got, want)
		}
	}
}
