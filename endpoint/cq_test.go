package endpoint

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/scale"
	"github.com/softnd/softnd/nd"
)

// inOrder checks that the queue has exactly the results n, n+1, and so on.
func (q *testQueue) inOrder(n uint64) {
	q.t.Helper()
	results := make([]nd.Result, q.added-n+1)
	results = results[:q.Poll(results)]
	if len(results) != int(q.added-n) {
		q.t.Fatalf("%d results, want %d", len(results), q.added-n)
	}
	for i, r := range results {
		if r.RequestContext != n+uint64(i) {
			q.t.Fatalf("result %d has context %d, want %d", i, r.RequestContext, n+uint64(i))
		}
	}
}

func TestCQResize(t *testing.T) {
	q := newTestQueue(t, 8)
	if info, err := q.owner.adapter.Query(); err != nil || !info.AdapterFlags.Has(nd.CQResizeSupported) {
		t.Errorf("the adapter does not show that queues can be resized: %v, %v", info.AdapterFlags, err)
	}
	for range 11 { // so that the ring wraps
		q.add(plain)
		q.take(1)
	}
	for range 10 {
		q.add(plain)
	}
	for depth, want := range map[int]nd.Status{0: nd.InvalidParameter, -1: nd.InvalidParameter,
		maxCQDepth + 1: nd.InvalidParameter, 5: nd.BufferOverflow, 9: nd.BufferOverflow} {
		if err := q.Resize(depth); nd.StatusOf(err) != want {
			t.Errorf("Resize(%d) returns %v, want %v", depth, err, want)
		}
	}
	for _, depth := range []int{10, 100, 10, maxCQDepth, 16} {
		if err := q.Resize(depth); err != nil {
			t.Errorf("Resize(%d): %v", depth, err)
		}
	}
	for range 32 - 10 {
		q.add(plain) // twice the depth fits, as in a new queue
	}
	c := q.begin(nd.NotifyAny)
	c.returns(nd.Success)
	q.inOrder(11)
	c = q.begin(nd.NotifyAny)
	if err := q.Resize(2); err != nil {
		t.Error(err)
	}
	q.pending(1)
	q.add(plain)
	c.returns(nd.Success)
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if err := q.Resize(10); !errors.Is(err, nd.InvalidHandle) {
		t.Errorf("Resize of a closed queue: %v", err)
	}
}

// Resize while results are added and taken loses and duplicates none.
func TestCQResizeInUse(t *testing.T) {
	q := newTestQueue(t, 64)
	total := uint64(scale.Of(5000, 20_000))
	ctx := proctest.Context(t)
	var taken atomic.Uint64
	go func() {
		for i := uint64(0); i < total && ctx.Err() == nil; {
			if i-taken.Load() == 64 { // the smallest depth guarantees 64
				runtime.Gosched()
				continue
			}
			q.push(&nd.Result{RequestContext: i}, &q.slots, false)
			i++
		}
	}()
	results := make([]nd.Result, 16)
	for next, rounds := uint64(0), 0; next < total; rounds++ {
		n, err := q.Wait(ctx, results)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results[:n] {
			if r.RequestContext != next {
				t.Fatalf("result %d has context %d", next, r.RequestContext)
			}
			next++
		}
		if err := q.Resize([]int{64, 1000, 128}[rounds%3]); err != nil {
			t.Fatal(err)
		}
		taken.Store(next)
	}
}

// An overrun ends pending and later calls, and all endpoints of the queue in every state. Queued
// results stay.
func TestCQOverrun(t *testing.T) {
	q := newTestQueue(t, 4)
	endpoint := func() *queuePair {
		ep, err := q.owner.adapter.CreateEndpoint(q.owner.ctx, nd.EndpointConfig{ReceiveCQ: q.completionQueue, InitiatorCQ: q.completionQueue, ReceiveDepth: 1024})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ep.Close() })
		return ep.(*queuePair)
	}
	flushed, other := endpoint(), endpoint()
	for i := range uint64(1024) {
		if err := flushed.Receive(i, nd.SGL{}); err != nil {
			t.Fatal(err)
		}
	}
	first := q.begin(nd.NotifyAny)
	waited := make(chan error, 1)
	q.begin(nd.NotifyErrors)
	pending := q.begin(nd.NotifyErrors)
	if err := flushed.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	first.returns(nd.Success) // by the first result
	pending.returns(nd.Success)
	for range 2 {
		if err := q.Notify(t.Context(), nd.NotifyErrors); !errors.Is(err, nd.BufferOverflow) {
			t.Errorf("Notify after the overrun: %v", err)
		}
	}
	q.added = 8
	q.inOrder(0)
	go func() {
		_, err := q.Wait(t.Context(), make([]nd.Result, 1))
		waited <- err
	}()
	if err := <-waited; !errors.Is(err, nd.BufferOverflow) {
		t.Errorf("Wait after the overrun: %v", err)
	}
	for name, ep := range map[string]*queuePair{"another": other, "a later": endpoint()} {
		proctest.Eventually(t, name+" endpoint fails", func() bool { return ep.state() == cm.QPFailed })
		if err := ep.Err(); !errors.Is(err, nd.InternalError) {
			t.Errorf("%s endpoint has failed with %v", name, err)
		}
	}
}

// TestCQOverrunFailsLaterPosts: a program that posts and never polls learns of lost results from its
// next post and from Err.
func TestCQOverrunFailsLaterPosts(t *testing.T) {
	for _, processes := range []bool{false, true} {
		t.Run(fmt.Sprintf("processes=%v", processes), func(t *testing.T) {
			p := newPair(t, setup{Both: sideOptions{QueueDepth: 4}, Processes: processes})
			p.a.must(order{Do: doReceive})
			for range 9 { // one more than fits
				p.a.must(order{Do: doWrite, Parts: mine(0, 8), Far: p.b.memory})
			}
			for _, do := range []verb{doWrite, doSend, doRead, doReceive} {
				p.a.refuse(nd.InternalError, order{Do: do, Parts: mine(0, 8), Far: p.b.memory})
			}
			p.a.refuse(nd.InternalError, order{Do: doWhy})
			wantDone(t, p.a.endpointAt(0), nd.InternalError)
			for _, do := range []verb{doWrite, doReceive} {
				p.a.refuse(nd.InternalError, order{Do: do, Parts: mine(0, 8), Far: p.b.memory})
			}
			p.b.must(order{Do: doNotify})
		})
	}
}

func TestNotifyAffinity(t *testing.T) {
	q := newTestQueue(t, 4)
	group, mask, err := q.NotifyAffinity()
	if err != nil || group != 0 {
		t.Fatalf("group %d, %v", group, err)
	}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(unix.Getpid(), &set); err != nil {
		t.Fatal(err)
	}
	for i := range 64 {
		if set.IsSet(i) != (mask>>i&1 == 1) {
			t.Errorf("processor %d: the mask is %#x", i, mask)
		}
	}
}

func TestModerateInterrupts(t *testing.T) {
	q := newTestQueue(t, 64)
	if info, err := q.owner.adapter.Query(); err != nil || !info.AdapterFlags.Has(nd.InterruptModerationSupported) {
		t.Errorf("the adapter does not show that it moderates: %v, %v", info.AdapterFlags, err)
	}
	moderate := func(interval time.Duration, count int) {
		t.Helper()
		if err := nd.InterruptModerator(q).ModerateInterrupts(interval, count); err != nil {
			t.Fatal(err)
		}
	}
	p := newPoller(t, q)
	for _, interval := range []time.Duration{-1, time.Hour} { // the count is reached first
		moderate(interval, 3)
		c := q.begin(nd.NotifyAny)
		q.add(plain, plain)
		q.take(2) // these do not count from now on
		q.add(plain, solicited)
		q.pending(1)
		p.events(t, 0)
		q.add(plain)
		c.returns(nd.Success)
		p.events(t, 1)
		q.take(3)
		q.add(plain, plain)
		c = q.begin(nd.NotifyAny) // without moderation it ends as before
		q.pending(1)
		moderate(0, 3)
		c.returns(nd.Success)
		p.events(t, 1)
		q.take(2)
	}
	for _, count := range []int{-1, 60} { // the interval ends first
		moderate(time.Hour, count)
		c := q.begin(nd.NotifySolicited)
		q.add(solicited)
		q.pending(1)
		p.events(t, 0)
		q.add(broken) // a failure is not delayed
		c.returns(nd.Success)
		p.events(t, 1)
		q.take(2)
		moderate(time.Microsecond, count)
		for range 10 {
			c := q.begin(nd.NotifySolicited)
			q.add(solicited)
			c.returns(nd.Success)
			if err := p.wait(); err != nil {
				t.Fatal(err)
			}
			q.take(1)
		}
	}
	if err := q.ModerateInterrupts(-1, -1); !errors.Is(err, nd.InvalidParameterMix) {
		t.Errorf("neither: %v", err)
	}
}
