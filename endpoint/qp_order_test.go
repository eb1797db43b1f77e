package endpoint

import (
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/window"
)

func TestResultsComeInPostOrder(t *testing.T) {
	const parts4, parts2, chunks2, small = 4 * quantum, quantum + smallTransfer, window.ChunkSize + smallTransfer, smallTransfer + 5000
	onEvery(t, setup{Both: sideOptions{Size: parts4 + 64}}, func(t *testing.T, p *pair) {
		mw := p.a.must(order{Do: doWindow}).N
		kinds := []struct {
			do     verb
			n      int
			result nd.RequestType
		}{
			{doWrite, parts4, nd.RequestWrite},
			{doWrite, 8, nd.RequestWrite},
			{doSend, 10, nd.RequestSend},
			{doBind, 0, nd.RequestBind},
			{doRead, parts2, nd.RequestRead},
			{doSend, chunks2, nd.RequestSend},
			{doInvalidate, 0, nd.RequestInvalidate},
			{doRead, 0, nd.RequestRead},
			{doSend, 0, nd.RequestSend},
			{doBind, 0, nd.RequestBind},
			{doWrite, small, nd.RequestWrite},
			{doInvalidate, 0, nd.RequestInvalidate},
		}
		var results, receives []nd.Result
		for i, k := range kinds {
			context := 1000 + 7*uint64(i)
			o := order{Do: k.do, Context: context, Window: mw, Len: 4096, Flags: 0}
			switch k.do {
			case doBind:
				o.Flags = nd.AllowRead
			case doWrite, doRead:
				o.Far = p.b.memory
				fallthrough
			case doSend:
				o.Parts = mine(64, k.n)
			}
			if k.do == doSend {
				p.b.must(order{Do: doReceive, Context: context, Parts: mine(0, chunks2)})
				receives = append(receives, success(nd.RequestReceive, context, k.n))
			}
			p.a.must(o)
			results = append(results, success(k.result, context, k.n))
		}
		p.a.expect(initiatorQueue, results...)
		p.b.expect(receiveQueue, receives...)
		p.a.nothing(receiveQueue)
		p.b.nothing(initiatorQueue)
	})
}

func TestSilentSuccess(t *testing.T) {
	onEvery(t, setup{Both: sideOptions{InitiatorDepth: 8}}, func(t *testing.T, p *pair) {
		p.a.fill(0, 0, 64<<10, 1)
		for i := range 100 {
			o := order{Do: doWrite, Context: uint64(i), Parts: mine(i*100, 100), Far: atFar(p.b, i*100), Flags: nd.SilentSuccess}
			// A silent request holds its slot until it has run.
			proctest.Eventually(t, "a slot is free again", func() bool {
				s := p.a.do(o).Status
				p.a.nothing(initiatorQueue)
				return s != nd.NoMoreEntries
			})
		}
		p.b.must(order{Do: doReceive, Context: 5})
		proctest.Eventually(t, "a slot is free again", func() bool {
			p.a.nothing(initiatorQueue)
			return p.a.do(order{Do: doSend, Context: 100}).Status == nd.Success
		})
		p.a.expect(initiatorQueue, success(nd.RequestSend, 100, 0))
		p.b.expect(receiveQueue, success(nd.RequestReceive, 5, 0))
		if p.a.sum(0, 0, 10_000) != p.b.sum(0, 0, 10_000) {
			t.Error("the silent writes did not all arrive")
		}

		// Each kind of request can be silent.
		window := p.a.must(order{Do: doWindow}).N
		p.b.must(order{Do: doReceive, Context: 6})
		p.b.must(order{Do: doReceive, Context: 7})
		p.a.must(order{Do: doBind, Window: window, Len: 100, Flags: nd.AllowRead | nd.SilentSuccess})
		p.a.must(order{Do: doInvalidate, Window: window, Flags: nd.SilentSuccess})
		p.a.must(order{Do: doRead, Parts: mine(0, 100), Far: p.b.memory, Flags: nd.SilentSuccess})
		p.a.must(order{Do: doSend, Parts: mine(0, 100), Flags: nd.SilentSuccess})
		p.b.expect(receiveQueue, failure(nd.RequestReceive, 6, nd.BufferOverflow))
		p.a.expect(initiatorQueue, failure(nd.RequestSend, 0, nd.RemoteError))
		p.b.expect(receiveQueue, failure(nd.RequestReceive, 7, nd.Canceled))
	})
}

// TestSlotIsFreeWhenResultIsTaken fills the initiator queue: a slot is in use until a poll takes the result, even if the request
// is completed.
func TestSlotIsFreeWhenResultIsTaken(t *testing.T) {
	const depth = 5 // no power of two
	onEvery(t, setup{Both: sideOptions{InitiatorDepth: depth, ReceiveDepth: depth}}, func(t *testing.T, p *pair) {
		write := order{Do: doWrite, Parts: mine(0, 8), Far: p.b.memory}
		receive := order{Do: doReceive, Parts: mine(0, 8)}
		send := order{Do: doSend, Parts: mine(0, 8)}
		for range 3 {
			for range depth {
				p.a.must(write)
				p.b.must(receive)
			}
			p.a.refuse(nd.NoMoreEntries, write)
			p.b.refuse(nd.NoMoreEntries, receive)
			p.a.results(initiatorQueue, 2)
			p.a.must(send)
			p.a.must(send)
			p.a.refuse(nd.NoMoreEntries, send)
			p.b.results(receiveQueue, 1)
			p.b.must(receive)
			p.b.refuse(nd.NoMoreEntries, receive)
			p.a.results(initiatorQueue, depth)
			for range depth - 1 {
				p.a.must(send)
			}
			p.a.must(write)
			p.a.refuse(nd.NoMoreEntries, write)
			p.a.results(initiatorQueue, depth)
			p.b.results(receiveQueue, depth)
		}
		// Canceled requests hold their slots until their results are taken, too.
		for range depth {
			p.b.must(receive)
		}
		p.b.must(order{Do: doFlush})
		p.b.refuse(nd.NoMoreEntries, receive)
		p.b.expect(receiveQueue, failure(nd.RequestReceive, 0, nd.Canceled))
		p.b.must(receive)
		p.b.refuse(nd.NoMoreEntries, receive)
		p.b.results(receiveQueue, depth)
	})
}

// TestReadFenceWaitsForReads sends the bytes that a Read fetches. Without the fence the Send could copy them before they
// have arrived.
func TestReadFenceWaitsForReads(t *testing.T) {
	t.Parallel()
	for _, s := range everySetup(setup{Processes: true}) {
		if !s.Processes {
			continue
		}
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			p := newPair(t, s)
			for i, n := range []int{8, 40, 48, 100, 70_000} {
				context := uint64(i)
				p.a.fill(0, 0, n, context)
				p.b.fill(0, 0, n, context+100)
				want := p.b.sum(0, 0, n)
				p.b.must(order{Do: doReceive, Context: context, Parts: mine(100_000, n)})
				if s.Executors[0] == Target || s.Private[1] {
					p.b.process.Stop()
				}
				p.a.must(order{Do: doRead, Context: context, Parts: mine(0, n), Far: p.b.memory})
				p.a.must(order{Do: doWrite, Context: context, Parts: mine(0, n), Far: atFar(p.b, 180_000), Flags: nd.ReadFence})
				p.a.must(order{Do: doSend, Context: context, Parts: mine(0, n), Flags: nd.ReadFence})
				p.b.process.Resume()
				p.a.expect(initiatorQueue, success(nd.RequestRead, context, n), success(nd.RequestWrite, context, n),
					success(nd.RequestSend, context, n))
				p.b.expect(receiveQueue, success(nd.RequestReceive, context, n))
				if p.b.sum(0, 180_000, n) != want {
					t.Errorf("the fenced write of %d bytes took its data before the read had brought them", n)
				}
				if p.b.sum(0, 100_000, n) != want {
					t.Errorf("the fenced send of %d bytes took its data before the read had brought them", n)
				}
			}
		})
	}
}

// TestReadFenceWithoutReads posts each kind of request with a fence that has nothing to wait for.
func TestReadFenceWithoutReads(t *testing.T) {
	p := newPair(t, setup{})
	window := p.a.must(order{Do: doWindow}).N
	p.b.must(order{Do: doReceive})
	p.a.must(order{Do: doBind, Context: 1, Window: window, Len: 1, Flags: nd.AllowRead | nd.ReadFence})
	p.a.must(order{Do: doInvalidate, Context: 2, Window: window, Flags: nd.ReadFence})
	p.a.must(order{Do: doRead, Context: 3, Parts: mine(0, 9), Far: p.b.memory, Flags: nd.ReadFence})
	p.a.must(order{Do: doWrite, Context: 4, Parts: mine(0, 9), Far: p.b.memory, Flags: nd.ReadFence | nd.Defer})
	p.a.must(order{Do: doSend, Context: 5, Flags: nd.ReadFence})
	p.a.expect(initiatorQueue, success(nd.RequestBind, 1, 0), success(nd.RequestInvalidate, 2, 0), success(nd.RequestRead, 3, 9),
		success(nd.RequestWrite, 4, 9), success(nd.RequestSend, 5, 0))
}

// TestFlushCancelsInOrder checks the order of both queues.
func TestFlushCancelsInOrder(t *testing.T) {
	onEvery(t, setup{Both: sideOptions{Options: Options{ReceiveTimeout: proctest.Timeout}}}, func(t *testing.T, p *pair) {
		var sends, receives []nd.Result
		for i := range uint64(20) {
			p.a.must(order{Do: doSend, Context: i, Parts: mine(0, int(i)*5000)}) // the peer posts no receive
			p.a.must(order{Do: doReceive, Context: i, Parts: mine(0, 10)})
			sends = append(sends, failure(nd.RequestSend, i, nd.Canceled))
			receives = append(receives, failure(nd.RequestReceive, i, nd.Canceled))
		}
		p.a.must(order{Do: doFlush})
		// They are there when Flush returns.
		if r := p.a.must(order{Do: doPoll, N: 30}); len(r.Results) != 20 {
			t.Errorf("%d results of the initiator queue right after Flush, want 20", len(r.Results))
		} else if r.Results[0].RequestContext != sends[0].RequestContext || r.Results[19].RequestContext != sends[19].RequestContext {
			t.Errorf("results out of order: %v", r.Results)
		}
		p.a.expect(receiveQueue, receives...)
		p.a.must(order{Do: doSend, Context: 77})
		p.a.expect(initiatorQueue, failure(nd.RequestSend, 77, nd.Canceled))
		p.a.refuse(nd.Canceled, order{Do: doWhy})
		p.b.must(order{Do: doNotify})
	})
}

// TestFlushBeforeConnect flushes an endpoint that is not connected: it fails permanently.
func TestFlushBeforeConnect(t *testing.T) {
	p := newPair(t, setup{Unwired: true})
	p.a.must(order{Do: doReceive, Context: 1})
	p.a.must(order{Do: doReceive, Context: 2})
	p.a.must(order{Do: doFlush})
	p.a.expect(receiveQueue, failure(nd.RequestReceive, 1, nd.Canceled), failure(nd.RequestReceive, 2, nd.Canceled))
	p.a.must(order{Do: doReceive, Context: 3})
	p.a.expect(receiveQueue, failure(nd.RequestReceive, 3, nd.Canceled))
	addr := p.b.must(order{Do: doListen}).Addr
	p.a.refuse(nd.ConnectionActive, order{Do: doConnect, Addr: addr})
}
