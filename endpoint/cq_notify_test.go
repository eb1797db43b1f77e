package endpoint

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/softnd/softnd/endpoint/internal/cq"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/scale"
	"github.com/softnd/softnd/nd"
)

// testQueue is a completion queue to which the test adds results itself.
type testQueue struct {
	*completionQueue
	t     testing.TB
	owner *side
	slots cq.Slots
	added uint64
}

func newTestQueue(t testing.TB, depth int) *testQueue {
	t.Helper()
	s := newUnconnected(t)
	return &testQueue{completionQueue: s.newQueue(t, depth), t: t, owner: s}
}

func (s *side) newQueue(t testing.TB, depth int) *completionQueue {
	t.Helper()
	q, err := s.adapter.CreateCompletionQueue(s.ctx, depth)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	return q.(*completionQueue)
}

// sort is the kind of a result, as Notify distinguishes them.
type sort int

const (
	plain sort = iota
	solicited
	broken
	canceledSort
)

func (q *testQueue) add(sorts ...sort) {
	for _, s := range sorts {
		status := [...]nd.Status{nd.Success, nd.Success, nd.AccessViolation, nd.Canceled}[s]
		q.push(&nd.Result{RequestContext: q.added, Status: status}, &q.slots, s == solicited)
		q.added++
	}
}

// waiting returns the number of calls of Notify that no event has ended.
func (q *testQueue) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.events.Calls)
}

func (q *testQueue) list() []*cq.Call {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.events.Calls)
}

// call is a pending Notify.
type call struct {
	q    *testQueue
	err  chan error
	stop context.CancelFunc
}

// begin calls Notify, and returns when the call waits or has ended.
func (q *testQueue) begin(kind nd.NotifyType) *call {
	q.t.Helper()
	ctx, cancel := context.WithTimeout(q.t.Context(), proctest.Timeout)
	q.t.Cleanup(cancel)
	c := &call{q, make(chan error, 1), cancel}
	before := q.waiting()
	go func() { c.err <- q.Notify(ctx, kind) }()
	proctest.Eventually(q.t, "Notify waits or returns", func() bool { return q.waiting() > before || len(c.err) > 0 })
	return c
}

// returns checks the result of a call.
func (c *call) returns(want nd.Status) {
	c.q.t.Helper()
	if err := <-c.err; nd.StatusOf(err) != want {
		c.q.t.Fatalf("Notify returns %v, want %v", err, want)
	}
}

// pending checks how many calls wait. Events end calls at once, so none can be about to end.
func (q *testQueue) pending(want int) {
	q.t.Helper()
	if n := q.waiting(); n != want {
		q.t.Fatalf("%d calls wait, want %d", n, want)
	}
}

func (q *testQueue) take(n int) {
	q.t.Helper()
	if got := q.Poll(make([]nd.Result, n)); got != n {
		q.t.Fatalf("%d results, want %d", got, n)
	}
}

var notifyTypes = []nd.NotifyType{nd.NotifyErrors, nd.NotifyAny, nd.NotifySolicited}

func satisfies(s sort, kind nd.NotifyType) bool {
	return kind == nd.NotifyAny || s >= broken || s == solicited && kind == nd.NotifySolicited
}

// Each type alone and behind another one, with a result that comes later and with one that is
// queued already.
func TestNotifyTypes(t *testing.T) {
	q := newTestQueue(t, 64)
	for _, s := range []sort{plain, solicited, broken, canceledSort} {
		for _, first := range notifyTypes {
			for _, second := range notifyTypes {
				widest := first.Combine(second)
				a, b := q.begin(first), q.begin(second)
				q.pending(2)
				q.add(s)
				if !satisfies(s, widest) {
					q.pending(2)
					q.add(broken)
					q.take(1)
				}
				a.returns(nd.Success)
				b.returns(nd.Success)
				q.take(1)
			}
			q.add(s)
			c := q.begin(first)
			if !satisfies(s, first) {
				q.pending(1)
				q.add(broken)
				q.take(1)
			}
			c.returns(nd.Success)
			q.take(1)
		}
	}
	if err := q.Notify(t.Context(), 3); !errors.Is(err, nd.InvalidParameter) {
		t.Errorf("an unknown type: %v", err)
	}
}

// A result ends all waiting calls, and no later call.
func TestNotifyOnce(t *testing.T) {
	q := newTestQueue(t, 64)
	a, b, c := q.begin(nd.NotifyAny), q.begin(nd.NotifyErrors), q.begin(nd.NotifyAny)
	q.add(plain)
	for _, c := range []*call{a, b, c} {
		c.returns(nd.Success)
	}
	a = q.begin(nd.NotifyAny) // the result is still queued
	q.pending(1)
	q.add(plain, plain)
	a.returns(nd.Success)
	q.begin(nd.NotifyAny).returns(nd.Success) // the second result has ended no call yet
	a = q.begin(nd.NotifyAny)
	q.pending(1)
	q.add(plain)
	a.returns(nd.Success)
	q.take(4)

	q.add(plain)
	q.take(1)
	a = q.begin(nd.NotifyAny) // a result that was taken ends no call
	q.pending(1)
	q.add(plain)
	a.returns(nd.Success)

	q.add(solicited, plain)
	q.begin(nd.NotifySolicited).returns(nd.Success)
	q.begin(nd.NotifyAny).returns(nd.Success) // the plain result is later than the one that ended the last call
	a = q.begin(nd.NotifySolicited)
	q.pending(1)
	q.add(plain)
	q.pending(1)
	q.begin(nd.NotifyAny).returns(nd.Success) // it widens the type that the other one waits for
	a.returns(nd.Success)
}

// The end of a context ends one call; its type does not count after that.
func TestNotifyEndsWithContext(t *testing.T) {
	q := newTestQueue(t, 64)
	a, b := q.begin(nd.NotifySolicited), q.begin(nd.NotifyAny)
	b.stop()
	b.returns(nd.Canceled)
	q.pending(1)
	q.add(plain)
	q.pending(1)
	q.add(solicited)
	a.returns(nd.Success)
}

// overContext ends when it is asked for its error. Just before, it calls last.
type overContext struct {
	context.Context
	last func()
}

func (c *overContext) Err() error {
	if c.last != nil {
		c.last()
	}
	return context.Canceled
}

// A result that comes as the context ends is either announced by that call or by the next one.
func TestNotifyKeepsResultOfCanceledCall(t *testing.T) {
	q := newTestQueue(t, 8)
	ctx := &overContext{Context: t.Context()}
	ctx.last = func() {
		if q.waiting() == 1 {
			q.add(plain)
		}
	}
	if err := q.Notify(ctx, nd.NotifyAny); err != nil {
		if err = q.Notify(proctest.Context(t), nd.NotifyAny); err != nil {
			t.Errorf("the next Notify: %v", err)
		}
	}
}

// Close ends the calls in the order in which they began, and returns after them.
func TestNotifyEndsOnClose(t *testing.T) {
	s := newUnconnected(t)
	for range 30 {
		q := &testQueue{completionQueue: s.newQueue(t, 4), t: t}
		var calls []*call
		for range 4 {
			calls = append(calls, q.begin(nd.NotifyErrors))
		}
		q.pending(4)
		all := q.list()
		closed := make(chan error, 1)
		go func() { closed <- q.Close() }()
		for left := all; len(left) > 0; {
			if left = q.list(); !slices.Equal(left, all[len(all)-len(left):]) {
				t.Fatalf("of the calls %v these are left: %v", all, left)
			}
		}
		if err := <-closed; err != nil {
			t.Fatal(err)
		}
		q.pending(0)
		for _, c := range calls {
			c.returns(nd.Canceled)
		}
		if err := q.Notify(t.Context(), nd.NotifyAny); !errors.Is(err, nd.Canceled) {
			t.Fatalf("after Close: %v", err)
		}
	}
}

// Provider.Close ends the calls too.
func TestNotifyEndsOnProviderClose(t *testing.T) {
	q := newTestQueue(t, 4)
	c := q.begin(nd.NotifyAny)
	if err := q.provider.Close(); err != nil {
		t.Fatal(err)
	}
	c.returns(nd.Canceled)
}

// A solicited message wakes a Notify for solicited events, however it travels.
func TestSolicitedEvents(t *testing.T) {
	onEvery(t, setup{}, func(t *testing.T, p *pair) {
		// The receiving side is in this process.
		q := &testQueue{completionQueue: p.a.queues[receiveQueue].(*completionQueue), t: t}
		for _, n := range []int{0, 8, 48, 4096, 100_000} {
			c := q.begin(nd.NotifySolicited)
			for j, send := range []order{{Do: doSend}, {Do: doSend, Flags: nd.SendAndSolicitEvent}} {
				p.a.must(order{Do: doReceive, Parts: mine(0, 100_000)})
				send.Parts = mine(0, n)
				p.b.must(send)
				p.b.expect(initiatorQueue, success(nd.RequestSend, 0, n))
				if j == 0 {
					p.a.expect(receiveQueue, success(nd.RequestReceive, 0, n))
					q.pending(1)
				}
			}
			c.returns(nd.Success)
			p.a.expect(receiveQueue, success(nd.RequestReceive, 0, n))
		}
		w := p.a.must(order{Do: doWindow}).N
		for _, flags := range []nd.OpFlags{0, nd.SendAndSolicitEvent} {
			p.a.must(order{Do: doReceive, Parts: mine(0, 64)})
			far := p.a.must(order{Do: doBind, Window: w, Len: 64, Flags: nd.AllowWrite}).Far
			p.a.expect(initiatorQueue, success(nd.RequestBind, 0, 0))
			c := q.begin(nd.NotifySolicited)
			p.b.must(order{Do: doSendRevoking, Parts: mine(0, 64), Far: far, Flags: flags})
			p.b.expect(initiatorQueue, success(nd.RequestSend, 0, 64))
			want := success(nd.RequestReceiveAndInvalidate, 0, 64)
			want.InvalidatedToken = far.Token
			if flags == 0 {
				p.a.expect(receiveQueue, want)
				q.pending(1)
				c.stop()
				c.returns(nd.Canceled)
				continue
			}
			c.returns(nd.Success)
			p.a.expect(receiveQueue, want)
		}
	})
}

// The receiver posts one receive at a time, so for most messages it sleeps or is about to.
func TestNotifyLosesNoWakeup(t *testing.T) {
	for _, s := range []setup{
		{},
		{Executors: [2]Executor{Target, Target}},
		{Processes: true},
		{Processes: true, Executors: [2]Executor{Target, Target}},
	} {
		t.Run("Notify/"+s.String(), func(t *testing.T) {
			p := newPair(t, s)
			ctx := proctest.Context(t)
			calls := 0
			takeMessages(t, p, func() error {
				if calls++; calls%2 == 0 { // every other call sleeps at once
					p.a.provider.processes.Store(math.MaxInt32)
				} else {
					p.a.provider.countProcesses()
				}
				return p.a.queues[receiveQueue].Notify(ctx, nd.NotifyAny)
			})
		})
		if s.Processes == (s.Executors[0] == Target) {
			t.Run("EventFD/"+s.String(), func(t *testing.T) {
				p := newPair(t, s)
				takeMessages(t, p, newPoller(t, p.a.queues[receiveQueue]).wait)
			})
		}
	}
}

func takeMessages(t *testing.T, p *pair, wait func() error) {
	t.Helper()
	q, messages := p.a.queues[receiveQueue], uint64(scale.Of(2000, 10_000))
	if raceDetector || testing.Short() {
		messages /= 10
	}
	p.a.must(order{Do: doReceive, Context: 0, Parts: mine(0, 8)})
	sent := p.b.start(order{Do: doRepeat, Data: []byte(doSend), Parts: mine(0, 8), N: 2})
	results := make([]nd.Result, 3)
	for next := uint64(0); next < messages; {
		n := q.Poll(results)
		for _, r := range results[:n] {
			if r.Status != nd.Success || r.RequestContext != next {
				t.Fatalf("message %d: %+v", next, r)
			}
			if next++; next < messages {
				p.a.must(order{Do: doReceive, Context: next, Parts: mine(0, 8)})
			}
		}
		if n < len(results) && next < messages {
			if err := wait(); err != nil {
				t.Fatalf("waiting for message %d: %v", next, err)
			}
		}
	}
	p.a.must(order{Do: doCloseEndpoint})
	if r := <-sent; r.N != int(messages) {
		t.Errorf("%d messages were sent (%s), want %d", r.N, r.Text, messages)
	}
}
