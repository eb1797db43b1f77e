package endpoint

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/softnd/softnd/endpoint/internal/eventlog"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// recorder is a slog handler that keeps the events.
type recorder struct {
	handle func(slog.Record) // called for each event, if not nil

	mu     sync.Mutex
	events []event
}

type event struct {
	message string
	level   slog.Level
	attrs   map[string]string
}

func (h *recorder) Enabled(context.Context, slog.Level) bool { return true }
func (h *recorder) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *recorder) WithGroup(string) slog.Handler            { return h }

func (h *recorder) Handle(_ context.Context, r slog.Record) error {
	e := event{r.Message, r.Level, make(map[string]string)}
	r.Attrs(func(a slog.Attr) bool {
		e.attrs[a.Key] = a.Value.String()
		return true
	})
	h.mu.Lock()
	h.events = append(h.events, e)
	h.mu.Unlock()
	if h.handle != nil {
		h.handle(r)
	}
	return nil
}

// find returns the events with a message.
func (h *recorder) find(message string) (found []event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.events {
		if e.message == message {
			found = append(found, e)
		}
	}
	return found
}

// await waits until there are n events with a message, and returns all with it.
func (h *recorder) await(t *testing.T, n int, message string) []event {
	t.Helper()
	proctest.Eventually(t, fmt.Sprintf("%d events %q", n, message), func() bool { return len(h.find(message)) >= n }, h)
	return h.find(message)
}

// String names all events.
func (h *recorder) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return fmt.Sprint("events: ", h.events)
}

func (e event) check(t *testing.T, level slog.Level, want map[string]string) {
	t.Helper()
	if e.level != level {
		t.Errorf("%s: level %v, want %v", e.message, e.level, level)
	}
	for key, text := range want {
		if got, ok := e.attrs[key]; !ok || !strings.Contains(got, text) {
			t.Errorf("%s: attribute %s is %q, want %q in it", e.message, key, got, text)
		}
	}
}

// newLoggedPair returns two connected sides in this process, both with the logger of h.
func newLoggedPair(t *testing.T, h *recorder, s setup) *pair {
	t.Helper()
	s.Both.EventHandler = h
	return newPair(t, s)
}

func TestEventConnected(t *testing.T) {
	var h recorder
	newLoggedPair(t, &h, setup{})
	roles := make(map[string]bool)
	for _, e := range h.await(t, 2, "connected") {
		e.check(t, slog.LevelInfo, map[string]string{"endpoint": "1", "peer": "endpoint 1 of"})
		roles[e.attrs["active"]] = true
	}
	if n := len(h.find("connected")); n != 2 || !roles["true"] || !roles["false"] {
		t.Errorf("%d events with the values %v of active, want one of each side", n, roles)
	}
}

func TestEventDisconnected(t *testing.T) {
	var h recorder
	p := newLoggedPair(t, &h, setup{})
	ctx := proctest.Context(t)
	done := make(chan error, 1)
	go func() { done <- p.a.connectorAt(0).Disconnect(ctx) }()
	if err := p.b.connectorAt(0).NotifyDisconnect(ctx); err != nil {
		t.Fatal(err)
	}
	if err := p.b.connectorAt(0).Disconnect(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, e := range h.await(t, 2, "disconnected") {
		e.check(t, slog.LevelInfo, nil)
		seen[e.attrs["by"]] = true
	}
	if !seen[bySelf] || !seen[byPeer] || len(h.find("disconnected")) != 2 {
		t.Errorf("events %v, want one by self and one by peer", h.find("disconnected"))
	}
	if failed := h.find("connection failed"); len(failed) > 0 {
		t.Errorf("a graceful disconnect also made %v", failed)
	}
}

// TestEventsOfOrderlyEnds: a peer that closes an idle connection, or one that is disconnected, is no trouble.
func TestEventsOfOrderlyEnds(t *testing.T) {
	disconnectFirst := func(close order) func(t *testing.T, p *pair) {
		return func(t *testing.T, p *pair) {
			ended := p.a.start(disconnect)
			p.b.must(order{Do: doNotify})
			p.b.must(close)
			if r := <-ended; r.Status != nd.ConnectionAborted {
				t.Errorf("the disconnect whose peer closes: %s", r.Text)
			}
		}
	}
	for name, end := range map[string]func(t *testing.T, p *pair){
		"the endpoint is closed":  func(t *testing.T, p *pair) { p.b.must(order{Do: doCloseEndpoint}) },
		"the connector is closed": func(t *testing.T, p *pair) { p.b.must(order{Do: doCloseLink}) },
		"the provider is closed":  func(t *testing.T, p *pair) { must(t, p.b.provider.Close()) },
		"both disconnect": func(t *testing.T, p *pair) {
			ended := p.a.start(disconnect)
			p.b.must(order{Do: doNotify}) // before, either side may be the first
			p.b.must(disconnect)
			if r := <-ended; r.Status != nd.Success {
				t.Errorf("the first disconnect: %s", r.Text)
			}
		},
		"one disconnects, both close":    disconnectFirst(order{Do: doCloseEndpoint}),
		"one disconnects, one connector": disconnectFirst(order{Do: doCloseLink}),
	} {
		t.Run(name, func(t *testing.T) {
			var h recorder
			p := newLoggedPair(t, &h, setup{Both: sideOptions{DisconnectTimeout: proctest.Timeout}})
			for _, x := range []*side{p.a, p.b} { // receives are posted, and requests have been made
				x.must(order{Do: doReceive, Parts: mine(0, 8)})
				x.must(order{Do: doReceive, Parts: mine(0, 8)})
			}
			p.a.must(order{Do: doSend, Parts: mine(0, 8)})
			p.a.results(initiatorQueue, 1)
			p.b.must(order{Do: doSend, Flags: nd.SilentSuccess, Parts: mine(0, 8)})
			p.a.results(receiveQueue, 1)
			end(t, p)
			proctest.Receive(t, "the peer's endpoint is done", p.a.endpointAt(0).Done())
			must(t, p.a.endpointAt(0).Close())
			by := make(map[string]int)
			for _, e := range h.await(t, 2, "disconnected") {
				by[e.attrs["by"]]++
			}
			if by[bySelf] != 1 || by[byPeer] != 1 {
				t.Errorf("%v, want one disconnected by self and one by peer", &h)
			}
			if failed := h.find("connection failed"); len(failed) > 0 {
				t.Errorf("an orderly end makes %v", failed)
			}
		})
	}
}

// TestEventsOfEndsOutOfOrder: a close while a request of either side is outstanding is a failure to the other
// side, and so is a flush.
func TestEventsOfEndsOutOfOrder(t *testing.T) {
	send := order{Do: doSend, Parts: mine(0, 8)} // no receive is posted for it
	for name, c := range map[string]struct {
		end   func(t *testing.T, p *pair)
		cause string
	}{
		"the closing side has a Send outstanding": {func(t *testing.T, p *pair) {
			p.b.must(send)
			p.b.must(order{Do: doCloseEndpoint})
		}, "close: requests were outstanding (1) when the endpoint was closed"},
		"the other side has a Send outstanding": {func(t *testing.T, p *pair) {
			p.a.must(send)
			p.b.must(order{Do: doCloseEndpoint})
		}, "close: the endpoint was closed"},
		"a flush": {func(t *testing.T, p *pair) { p.b.must(order{Do: doFlush}) }, "flush"},
	} {
		t.Run(name, func(t *testing.T) {
			var h recorder
			s := setup{}
			s.Both.ReceiveTimeout = NoLimit
			p := newLoggedPair(t, &h, s)
			c.end(t, p)
			h.await(t, 1, "connection failed")[0].check(t, slog.LevelWarn, map[string]string{"by": byPeer, "cause": c.cause})
		})
	}
}

func TestEventConnectionFailed(t *testing.T) {
	var h recorder
	s := setup{}
	s.Both.ReceiveTimeout = AtOnce
	p := newLoggedPair(t, &h, s)
	bad := nd.SGE{Buffer: p.a.regions[0].bytes()[:8], Token: 12345}
	if err := p.a.endpointAt(0).Send(1, nd.One(bad), 0); err != nil {
		t.Fatal(err)
	}
	for _, e := range h.await(t, 2, "connection failed") {
		switch e.attrs["by"] {
		case bySelf:
			e.check(t, slog.LevelError, map[string]string{"cause": "send"})
		case byPeer:
			e.check(t, slog.LevelWarn, map[string]string{"status": nd.ConnectionAborted.String(), "cause": "the peer"})
		}
	}
	if n := len(h.find("connection failed")); n != 2 {
		t.Errorf("%d events, want one of each side", n)
	}
}

func TestEventPeerDied(t *testing.T) {
	var h recorder
	p := &pair{arena: newArena(t)}
	p.a = newSide(t, p.arena, "a", sideOptions{Options: Options{EventHandler: &h}}, false)
	p.b = newSide(t, p.arena, "b", sideOptions{}, true) // a handler cannot be passed to a process
	p.connect(p.b.must(order{Do: doListen}).Addr)
	p.b.process.kill()
	h.await(t, 1, "peer died")[0].check(t, slog.LevelWarn, map[string]string{"peer": "member"})
	h.await(t, 1, "connection failed")[0].check(t, slog.LevelWarn, map[string]string{"by": byPeer, "cause": "died"})
}

func TestEventQueueOverran(t *testing.T) {
	for depth, weakOrder := range map[string]*uint64{"2": nil, "1": new(uint64)} { // with a weak order, a queue holds exactly its depth
		t.Run(depth, func(t *testing.T) {
			var h recorder
			s := setup{}
			s.Both.QueueDepth, s.Both.WeakOrder = 1, weakOrder
			p := newLoggedPair(t, &h, s)
			for range 64 {
				_ = p.a.endpointAt(0).Write(1, nd.SGL{}, 0, 0, 0)
			}
			h.await(t, 1, "completion queue overran")[0].check(t, slog.LevelError, map[string]string{"queue": "", "depth": depth})
			h.await(t, 1, "connection failed")
			for _, e := range h.find("connection failed") {
				if e.attrs["by"] == bySelf {
					e.check(t, slog.LevelError, map[string]string{"cause": "overran"})
				}
			}
		})
	}
}

func TestEventRequestWaits(t *testing.T) {
	t.Parallel() // it waits for time-outs
	var h recorder
	s := setup{}
	s.Both.ReceiveTimeout = NoLimit
	p := newLoggedPair(t, &h, s)
	if err := p.a.endpointAt(0).Send(77, nd.SGL{}, 0); err != nil {
		t.Fatal(err)
	}
	h.await(t, 1, "request waits")[0].check(t, slog.LevelWarn, map[string]string{"request": "send", "context": "77", "for": "receive", "endpoint": "1"})
	if n := len(h.find("request waits")); n != 1 {
		t.Errorf("%d events for one request, want 1", n)
	}
}

// A handler that never returns holds up neither calls nor Close.
func TestEventHandlerBlocks(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	defer close(release)
	h := recorder{handle: func(slog.Record) { <-release }}
	p := newLoggedPair(t, &h, setup{})
	h.await(t, 1, "connected")
	if err := p.a.endpointAt(0).Write(1, nd.SGL{}, 0, 0, 0); err != nil {
		t.Error(err)
	}
	if err := p.a.endpointAt(0).Close(); err != nil {
		t.Error(err)
	}
	if err := p.a.provider.Close(); err != nil {
		t.Error(err)
	}
}

// A handler may call softnd, also the calls that end what the event is about.
func TestEventHandlerCallsBack(t *testing.T) {
	t.Parallel()
	var p *pair
	ready, ended := make(chan struct{}), make(chan struct{})
	var once sync.Once
	h := recorder{handle: func(r slog.Record) {
		<-ready
		p.a.provider.Stats()
		if err := p.a.endpointAt(0).Flush(t.Context()); err != nil {
			t.Error(err)
		}
		if err := p.a.endpointAt(0).Close(); err != nil {
			t.Error(err)
		}
		if err := p.a.provider.Close(); err != nil {
			t.Error(err)
		}
		once.Do(func() { close(ended) })
	}}
	p = newLoggedPair(t, &h, setup{})
	close(ready)
	proctest.Receive(t, "the handler's calls return", ended)
}

func TestEventLogDropsWhatExceedsItsLimit(t *testing.T) {
	release, entered := make(chan struct{}), make(chan struct{}, 1)
	h := recorder{handle: func(r slog.Record) {
		select {
		case entered <- struct{}{}:
		default:
		}
		<-release
	}}
	l := eventlog.New(&h)
	l.Add(slog.LevelInfo, "first")
	<-entered
	for range eventlog.MaxEvents + 5 {
		l.Add(slog.LevelInfo, "later")
	}
	close(release)
	l.Close()
	h.await(t, 1, "events dropped")[0].check(t, slog.LevelWarn, map[string]string{"count": "5"}) // it is the last
	if n := len(h.find("later")); n != eventlog.MaxEvents {
		t.Errorf("%d events delivered, want %d", n, eventlog.MaxEvents)
	}
}
