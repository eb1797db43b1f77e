package endpoint

import (
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// awaitStatus waits until a member has published a status that satisfies ok.
func awaitStatus(t *testing.T, p *side, what string, ok func(statuspage.Page) bool) statuspage.Page {
	t.Helper()
	observer, err := statuspage.Observe(p.member.Arena(), p.id)
	if err != nil {
		t.Fatal(err)
	}
	var page statuspage.Page
	proctest.Eventually(t, what, func() (current bool) {
		page, current, err = observer.Read()
		return current && ok(page)
	})
	return page
}

// TestStatusPageShowsWait: the status of a process that waits for a message names the queue, the time,
// and the peer.
func TestStatusPageShowsWait(t *testing.T) {
	t.Parallel()
	p := newPair(t, setup{})
	p.b.must(order{Do: doReceive, Parts: mine(0, 8)})
	before := linux.HostClock()
	q := p.b.queues[receiveQueue].(*completionQueue)
	done := background(t, p.b.provider, func() error { return q.Notify(p.b.ctx, nd.NotifySolicited) })
	page := awaitStatus(t, p.b, "b reports a wait", func(page statuspage.Page) bool {
		return len(page.Calls) == 1 && page.Calls[0].Op != statuspage.OpPoll && // not the poll before
			len(page.Endpoints) == 1 && !page.Endpoints[0].Busy
	})
	call := page.Calls[0]
	if call.Op != "notify" || call.Object != "NotifySolicited" || call.Queue != q.number || call.Since < before || call.Since > linux.HostClock() {
		t.Errorf("call: %+v", call)
	}
	want := statuspage.Endpoint{Number: 1, Peer: p.a.id, PeerNumber: 1, State: "connected",
		RequestQueue: p.b.queues[initiatorQueue].(*completionQueue).number, ReceiveQueue: q.number, Receives: 1}
	if len(page.Endpoints) != 1 || page.Endpoints[0] != want {
		t.Errorf("endpoints: %+v, want %+v", page.Endpoints, want)
	}
	p.a.must(order{Do: doSend, Parts: mine(0, 8)})
	page = awaitStatus(t, p.b, "b reports the result", func(page statuspage.Page) bool { return len(page.Queues) == 1 })
	if (page.Queues[0] != statuspage.Queue{Number: q.number, Results: 1}) || len(page.Calls) != 1 {
		t.Errorf("with a result that is not solicited: %+v", page)
	}
	p.b.must(order{Do: doReceive, Parts: mine(0, 8)})
	p.a.must(order{Do: doSend, Flags: nd.SendAndSolicitEvent, Parts: mine(0, 8)})
	if err := <-done; err != nil {
		t.Error(err)
	}
	awaitStatus(t, p.b, "b waits no more", func(page statuspage.Page) bool { return len(page.Calls) == 0 })
}

// TestStatusPageShowsPolls that find nothing, and of a Send for which there is no receive.
func TestStatusPageShowsPolls(t *testing.T) {
	t.Parallel()
	p := newPair(t, setup{Both: sideOptions{Options: Options{ReceiveTimeout: NoLimit}}})
	p.a.must(order{Do: doSend, Parts: mine(0, 8)})
	q := p.a.queues[initiatorQueue].(*completionQueue)
	page := awaitStatus(t, p.a, "a reports polls", func(page statuspage.Page) bool {
		for range 100 {
			q.Poll(make([]nd.Result, 1))
		}
		return len(page.Calls) == 1 && len(page.Endpoints) == 1 && page.Endpoints[0].ReceiveMissing
	})
	if call := page.Calls[0]; call.Op != statuspage.OpPoll || call.Queue != q.number {
		t.Errorf("call: %+v", call)
	}
	if e := page.Endpoints[0]; e.Requests != 1 || e.OldestRequest != "send" || !e.ReceiveMissing {
		t.Errorf("endpoint: %+v", e)
	}
	p.b.must(order{Do: doReceive, Parts: mine(0, 8)})
	p.a.expect(initiatorQueue, success(nd.RequestSend, 0, 8))
}

// TestStatusPageNamesExtensions: an atomic that the peer has not executed, and requests with immediate data that wait for a receive.
func TestStatusPageNamesExtensions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		order
		name    string
		missing bool
	}{
		{order{Do: doFetchAndAdd}, "fetch and add", false}, {order{Do: doCompareAndSwap}, "compare and swap", false}, {order{Do: doSwap}, "swap", false},
		{order{Do: doSendImmediate}, "send immediate", true}, {order{Do: doWriteImmediate}, "write immediate", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t, setup{Executors: [2]Executor{Target, Target}, Both: sideOptions{Options: Options{ReceiveTimeout: proctest.Timeout}}})
			_, far := p.atomicRegion(p.b, false)
			if c.missing {
				far = p.b.memory
			} else { // the peer does nothing meanwhile
				ep := p.b.endpointAt(0).(*queuePair)
				ep.mu.Lock()
				defer ep.mu.Unlock()
			}
			c.Parts, c.Far = mine(0, 8), far
			p.a.must(c.order)
			page := awaitStatus(t, p.a, "a reports the request", func(page statuspage.Page) bool {
				return len(page.Endpoints) == 1 && page.Endpoints[0].Requests == 1
			})
			if e := page.Endpoints[0]; e.OldestRequest != c.name || e.ReceiveMissing != c.missing {
				t.Errorf("endpoint: %+v, want a %s", e, c.name)
			}
		})
	}
}

// TestStatusPageShowsFailure, with its cause, until the endpoint is closed.
func TestStatusPageShowsFailure(t *testing.T) {
	p := newPair(t, setup{})
	p.a.must(order{Do: doWrite, Parts: mine(0, 8), Far: nd.WindowDescriptor{Address: 1, Token: 1 << 20}})
	p.a.expect(initiatorQueue, failure(nd.RequestWrite, 0, nd.AccessViolation))
	page := awaitStatus(t, p.a, "a reports its failure", func(page statuspage.Page) bool {
		return len(page.Endpoints) == 1 && page.Endpoints[0].State == "failed"
	})
	if e := page.Endpoints[0]; !strings.Contains(e.Cause, "write") {
		t.Errorf("endpoint: %+v", e)
	}
}

// TestObserverGetsStacks with the stacks of the process, whether it waits or not.
func TestObserverGetsStacks(t *testing.T) {
	p := newPair(t, setup{})
	for _, waits := range []bool{false, true} {
		if waits {
			q := p.a.queues[receiveQueue].(*completionQueue)
			background(t, p.a.provider, func() error { return q.Notify(p.a.ctx, nd.NotifyAny) })
		}
		observer, err := statuspage.Observe(p.arena, p.a.id)
		if err != nil {
			t.Fatal(err)
		}
		question, stacks := observer.RequestStacks(), []byte(nil)
		proctest.Eventually(t, "an answer", func() (ok bool) {
			stacks, ok, err = observer.Stacks(question)
			return ok || err != nil
		})
		if err != nil || !strings.Contains(string(stacks), "TestObserverGetsStacks") {
			t.Errorf("waits %v: %v, %s", waits, err, stacks)
		}
	}
}

// TestObserverQuestionsRateLimited: a process that asks repeatedly does not stop the other process
// for each question.
func TestObserverQuestionsRateLimited(t *testing.T) {
	t.Parallel()
	p := newPair(t, setup{})
	observer, err := statuspage.Observe(p.arena, p.a.id)
	if err != nil {
		t.Fatal(err)
	}
	answers, question, begun := 0, uint32(0), time.Now()
	for range 300 {
		question = observer.RequestStacks()
		time.Sleep(2 * time.Millisecond)
		if _, ok, _ := observer.Stacks(question); ok {
			answers++
		}
	}
	if took := time.Since(begun); answers > int(took/busyInterval)+2 {
		t.Errorf("%d questions were answered in %v", answers, took)
	}
	proctest.Eventually(t, "the last question is answered", func() bool { _, ok, _ := observer.Stacks(question); return ok })
}
