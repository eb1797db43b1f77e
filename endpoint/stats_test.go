package endpoint

import (
	"bytes"
	"encoding/json"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// statsOf returns the counters of the first endpoint of a side.
func statsOf(t *testing.T, p *side) nd.EndpointStats {
	t.Helper()
	s, ok := nd.StatsOf(p.endpointAt(0))
	if !ok {
		t.Fatal("the endpoint has no counters")
	}
	return s
}

// exchangeOfEachType makes two Writes, a Read, a Send of 100 KiB and one of 8 bytes, and a Send that succeeds silently.
func exchangeOfEachType(t *testing.T, p *pair) {
	t.Helper()
	const long = 100 << 10
	part8, partLong := []part{{Len: 8}}, []part{{Len: long}}
	for i := range 3 {
		p.b.must(order{Do: doReceive, Context: uint64(i), Parts: partLong})
	}
	for _, o := range []order{
		{Do: doWrite, Parts: part8, Far: p.b.memory},
		{Do: doWrite, Parts: partLong, Far: p.b.memory},
		{Do: doRead, Parts: part8, Far: p.b.memory},
		{Do: doSend, Parts: partLong}, // first: behind a Send that the peer has not served yet, the peer would copy it
		{Do: doSend, Parts: part8},
	} {
		p.a.must(o)
		p.a.must(order{Do: doWait, Queue: initiatorQueue, N: 1})
	}
	p.a.must(order{Do: doSend, Parts: part8, Flags: nd.SilentSuccess})
	p.b.must(order{Do: doWait, Queue: receiveQueue, N: 3})
}

func TestStatsCountOperationsByType(t *testing.T) {
	const long = 100 << 10
	for _, x := range []Executor{Auto, Target} {
		s := setup{Executors: [2]Executor{x, x}}
		s.Both.CountOperations = true
		t.Run(s.String(), func(t *testing.T) {
			p := newPair(t, s)
			exchangeOfEachType(t, p)
			var a, b nd.EndpointStats
			proctest.Eventually(t, "all requests are complete", func() bool {
				// With the peer as executor, the silent Send completes only when a poll sees that.
				p.a.must(order{Do: doPoll, Queue: initiatorQueue, N: 1})
				a, b = statsOf(t, p.a), statsOf(t, p.b)
				return a.RequestsCompleted == 6
			})
			want := nd.OperationStats{
				Send:  nd.OperationCount{Succeeded: 3, Bytes: 16 + long},
				Write: nd.OperationCount{Succeeded: 2, Bytes: 8 + long},
				Read:  nd.OperationCount{Succeeded: 1, Bytes: 8},
			}
			if *a.Operations != want {
				t.Errorf("requester: %+v, want %+v", *a.Operations, want)
			}
			want = nd.OperationStats{Receive: nd.OperationCount{Succeeded: 3, Bytes: 16 + long}}
			if *b.Operations != want {
				t.Errorf("responder: %+v, want %+v", *b.Operations, want)
			}
			if a.RequestsPosted != 6 || a.RequestsCompleted != 6 || b.ReceivesPosted != 3 || b.ReceivesCompleted != 3 {
				t.Errorf("posted %d, completed %d, receives posted %d, completed %d; want 6, 6, 3, 3",
					a.RequestsPosted, a.RequestsCompleted, b.ReceivesPosted, b.ReceivesCompleted)
			}
			q, ok := nd.QueueStatsOf(p.b.queues[receiveQueue])
			if !ok || q.Results != 3 || q.Queued != 0 || *q.Operations != want {
				t.Errorf("receive queue: %+v %+v, want 3 results, none queued, and the same operations", q, q.Operations)
			}
			// With executor Auto, a request behind a message in flight may be fragmented, too.
			if x == Target && a.Fragments == 0 {
				t.Error("no fragments, although the peer copies")
			}
		})
	}
}

func TestStatsWithoutOptionAreDerived(t *testing.T) {
	p := newPair(t, setup{})
	exchangeOfEachType(t, p)
	a, b := statsOf(t, p.a), statsOf(t, p.b)
	if a.Operations != nil {
		t.Errorf("operations %+v are counted without the option", *a.Operations)
	}
	if a.RequestsPosted != 6 || a.RequestsCompleted != 6 || a.RequestsImmediate < 3 || b.ReceivesPosted != 3 || b.ReceivesCompleted != 3 {
		t.Errorf("requester %+v, responder %+v; want 6 requests, at least 3 immediate, and 3 receives", a, b)
	}
	if a.State != "connected" || !strings.HasPrefix(a.Peer, "endpoint 1 of") {
		t.Errorf("state %q, peer %q", a.State, a.Peer)
	}
}

func TestStatsCountStalls(t *testing.T) {
	s := setup{}
	s.Both.ReceiveTimeout = NoLimit
	p := newPair(t, s)
	p.a.must(order{Do: doSend, Parts: []part{{Len: 8}}})
	for range 10 {
		p.a.must(order{Do: doPoll, Queue: initiatorQueue, N: 1})
	}
	if got := statsOf(t, p.a); got.Stalls != (nd.Stalls{Receive: 1}) || got.Retries == 0 {
		t.Errorf("stalls %+v, retries %d; want one stall for a receive, and retries", got.Stalls, got.Retries)
	}
}

func TestStatsCountRefusals(t *testing.T) {
	p := newPair(t, setup{})
	ep := p.a.endpointAt(0)
	wrong := p.b.memory
	wrong.Token++
	p.a.must(order{Do: doWrite, Parts: []part{{Len: 8}}, Far: wrong})
	if r := p.a.must(order{Do: doWait, Queue: initiatorQueue, N: 1}).Results[0]; r.Status != nd.AccessViolation {
		t.Fatalf("the Write with a wrong token: %v", r.Status)
	}
	if got := statsOf(t, p.a); got.AccessesRefused != 1 {
		t.Errorf("%d accesses refused, want 1", got.AccessesRefused)
	}
	if ep.Err() == nil {
		t.Error("the connection is up")
	}
	q := newPair(t, setup{Both: sideOptions{Options: Options{ReceiveTimeout: NoLimit}, InitiatorDepth: 1}})
	q.a.must(order{Do: doSend})
	if err := q.a.endpointAt(0).Send(2, nd.SGL{}, 0); nd.StatusOf(err) != nd.NoMoreEntries {
		t.Fatalf("a post on a full queue: %v", err)
	}
	if got := statsOf(t, q.a); got.PostsRefused != 1 {
		t.Errorf("%d posts refused, want 1", got.PostsRefused)
	}
}

// The counters of an endpoint are in the provider's sum after it is closed, once.
func TestStatsOfClosedEndpointsAreKept(t *testing.T) {
	s := setup{}
	s.Both.CountOperations = true
	p := newPair(t, s)
	p.a.must(order{Do: doWrite, Parts: []part{{Len: 8}}, Far: p.b.memory})
	p.a.must(order{Do: doWait, Queue: initiatorQueue, N: 1})
	if got := p.a.provider.Stats(); len(got.Endpoints) != 1 || len(got.CompletionQueues) != 2 || got.ClosedEndpoints != 0 {
		t.Errorf("before the close: %+v", got)
	}
	p.a.must(order{Do: doCloseEndpoint})
	for range 3 {
		got := p.a.provider.Stats()
		if len(got.Endpoints) != 0 || got.ClosedEndpoints != 1 || got.Closed.RequestsCompleted != 1 || got.Closed.Operations.Write.Bytes != 8 {
			t.Errorf("after the close: %+v", got)
		}
		if _, err := json.Marshal(got); err != nil {
			t.Error(err)
		}
	}
}

func TestGoroutinesAreLabelled(t *testing.T) {
	p := &pair{arena: newArena(t)}
	p.a = newSide(t, p.arena, "a", sideOptions{Options: Options{EventHandler: new(recorder)}}, false)
	p.b = newSide(t, p.arena, "b", sideOptions{}, true) // its death is watched
	p.connect(p.b.must(order{Do: doListen}).Addr)
	for _, role := range []string{"progress engine", "housekeeper", "liveness check", "event log"} {
		want := `"softnd":"` + role + `"`
		var profile bytes.Buffer
		proctest.Eventually(t, "a goroutine with the label "+want, func() bool {
			profile.Reset()
			if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
				t.Fatal(err)
			}
			return strings.Contains(profile.String(), want)
		}, &profile)
	}
}
