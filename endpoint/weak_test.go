package endpoint

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/softnd/softnd/faults"
	"github.com/softnd/softnd/nd"
)

// onWeakPairs runs a test with some seeds, and each of them with different code that copies.
func onWeakPairs(t *testing.T, seeds int, s setup, test func(t *testing.T, p *pair)) {
	t.Helper()
	for seed := range uint64(seeds) {
		s.Executors = [2]Executor{Executor(seed % 2), Executor(seed % 2)}
		s.Private = [2]bool{seed/2%2 == 1, seed/2%2 == 1}
		s.Both.WeakOrder = &seed
		t.Run(fmt.Sprint(seed), func(t *testing.T) { test(t, newPair(t, s)) })
	}
}

// A small card grants what the program asks for, and no more.
func TestWeakOrderHasSmallLimits(t *testing.T) {
	seed := uint64(1)
	p := newPair(t, setup{Both: sideOptions{Options: Options{WeakOrder: &seed}, SGE: 1, QueueDepth: 3, InitiatorDepth: 8}})
	info, err := p.a.adapter.Query()
	if err != nil || info.AdapterFlags.Has(nd.InOrderDMASupported) || !info.AdapterFlags.Has(nd.ReadSinkNotRequired) || info.MaxInitiatorSGE != 4 || info.MaxInlineDataSize != 96 || info.MaxOutboundReadLimit != 16 {
		t.Errorf("%v, %+v", err, info)
	}
	p.a.refuse(nd.DataOverrun, order{Do: doWrite, Far: p.b.memory, Parts: append(mine(0, 8), mine(8, 8)...)})
	for i := range uint64(4) {
		p.a.must(order{Do: doWrite, Context: i, Far: p.b.memory, Parts: mine(0, 8)})
	}
	q := p.a.queues[initiatorQueue].(*completionQueue)
	for !p.a.endpointAt(0).(*queuePair).hasOverrun() {
		q.progressAll()
	}
	if n := q.ring.Tail.Load(); n != 3 {
		t.Errorf("the queue of depth 3 has overrun with %d results", n)
	}
}

// Notify returns late.
func TestWeakOrderDelaysNotify(t *testing.T) {
	seed := uint64(1)
	p := newPair(t, setup{Both: sideOptions{Options: Options{WeakOrder: &seed}}})
	p.a.must(order{Do: doWrite, Far: p.b.memory, Parts: mine(0, 8)})
	q := p.a.queues[initiatorQueue].(*completionQueue)
	if err := q.Notify(t.Context(), nd.NotifyAny); err != nil || p.a.provider.modes.weak.Events.Load() != 1 {
		t.Errorf("%v, %d events were delayed, want 1", err, p.a.provider.modes.weak.Events.Load())
	}
}

// Writes are in memory at some time after their post, messages at some time before their result, also when the
// places of requests are used again.
func TestWeakOrderDelaysEffects(t *testing.T) {
	const rounds = 64
	seed := uint64(1)
	p := newPair(t, setup{Both: sideOptions{Options: Options{WeakOrder: &seed}, InitiatorDepth: 4, ReceiveDepth: 4}})
	source, sink := p.a.regionAt(0).bytes(), p.b.regionAt(0).bytes()
	for turn := range byte(2) {
		written, unserved, placed := 0, 0, 0
		for i := range byte(rounds) {
			value := turn*rounds + i + 1
			source[0] = value
			p.a.must(order{Do: doWrite, Far: p.b.memory, Parts: mine(0, 8)})
			if sink[0] == value {
				written++
			}
			p.a.results(initiatorQueue, 1)

			p.b.must(order{Do: doReceive, Parts: mine(8, 8)})
			p.a.must(order{Do: doSend, Parts: mine(0, 8)})
			p.a.results(initiatorQueue, 1)
			for len(p.b.must(order{Do: doPoll, Queue: receiveQueue, N: 1}).Results) == 0 {
				if sink[8] == value {
					placed++
				} else {
					unserved++
				}
			}
		}
		if written == 0 || written == rounds {
			t.Errorf("%d of %d Writes were in memory after their post", written, rounds)
		}
		if unserved == 0 || placed == 0 {
			t.Errorf("%d polls before a message was in memory, %d polls after that", unserved, placed)
		}
	}
}

// A Send to a shared receive queue waits for a Receive without limit. An earlier Read does not wait for it.
func TestWeakOrderReadBeforeSharedReceive(t *testing.T) {
	t.Parallel()
	for seed := range uint64(16) {
		both := sideOptions{Options: Options{WeakOrder: &seed}}
		p := newPair(t, shared(setup{Executors: [2]Executor{Executor(seed % 2), Executor(seed % 2)}, Both: both}, 1))
		peer := p.b
		peer.must(order{Do: doRead, Context: 1, Parts: mine(0, 8), Far: p.a.memory})
		peer.must(order{Do: doSend, Context: 2, Parts: mine(8, 8)})
		peer.expect(initiatorQueue, success(nd.RequestRead, 1, 8))
		peer.nothing(initiatorQueue)
		p.a.must(order{Do: doReceive, Context: 3, Parts: mine(0, 8)})
		peer.expect(initiatorQueue, success(nd.RequestSend, 2, 8))
		p.a.expect(receiveQueue, success(nd.RequestReceive, 3, 8))
	}
}

// A Read stores its data before its sink is invalid: by ReadLocalInvalidate, or by a later InvalidateRegion.
func TestWeakOrderInvalidatesSink(t *testing.T) {
	t.Parallel()
	for i, flags := range []nd.OpFlags{nd.ReadLocalInvalidate, 0, nd.ReadLocalInvalidate, 0} {
		s := setup{}
		if i >= 2 {
			s.Both = checkedPayloads
		}
		onWeakPairs(t, 16, s, func(t *testing.T, p *pair) {
			const n = 5000
			r := p.b.fastRegion(n)
			d := p.b.register(r, 0, n)
			p.a.fill(0, 0, n, 1)
			p.b.must(order{Do: doRead, Parts: []part{{Region: r, Len: n}}, Far: p.a.memory, Flags: flags})
			want := []nd.Result{success(nd.RequestRead, 0, n)}
			if flags == 0 {
				p.b.must(order{Do: doInvalidateRegion, Context: 1, Region: r})
				want = append(want, success(nd.RequestInvalidate, 1, 0))
			}
			p.b.expect(initiatorQueue, want...)
			if p.b.sum(r, 0, n) != p.a.sum(0, 0, n) {
				t.Error("the data differ")
			}
			p.a.must(order{Do: doWrite, Parts: mine(0, 8), Far: d})
			p.a.expect(initiatorQueue, failure(nd.RequestWrite, 0, nd.AccessViolation))
		})
	}
}

// A Read with ReadLocalInvalidate waits for an earlier Read that is set aside, and does not keep it from running.
func TestWeakOrderInvalidatesSinkAfterRead(t *testing.T) {
	t.Parallel()
	for _, n := range []int{8, 5000} {
		onWeakPairs(t, 16, setup{}, func(t *testing.T, p *pair) {
			r := p.b.fastRegion(n)
			p.b.register(r, 0, n)
			p.a.fill(0, 0, n, 1)
			p.b.must(order{Do: doRead, Parts: mine(0, n), Far: p.a.memory})
			p.b.must(order{Do: doRead, Context: 1, Parts: []part{{Region: r, Len: n}}, Far: p.a.memory, Flags: nd.ReadLocalInvalidate})
			p.b.expect(initiatorQueue, success(nd.RequestRead, 0, n), success(nd.RequestRead, 1, n))
			if want := p.a.sum(0, 0, n); p.b.sum(0, 0, n) != want || p.b.sum(r, 0, n) != want {
				t.Error("the data differ")
			}
		})
	}
}

// A Write that has run behind a Read does not succeed after the Read has failed at its own side.
func TestWeakOrderCancelsAfterFailedRead(t *testing.T) {
	onWeakPairs(t, 16, setup{}, func(t *testing.T, p *pair) {
		readOnly := p.b.must(order{Do: doRegion, Len: 64}).N // without AllowLocalWrite
		p.b.must(order{Do: doRead, Parts: []part{{Region: readOnly, Len: 64}}, Far: p.a.memory})
		p.b.must(order{Do: doWrite, Context: 1, Parts: mine(0, 8), Far: p.a.memory})
		p.b.expect(initiatorQueue, failure(nd.RequestRead, 0, nd.AccessViolation), failure(nd.RequestWrite, 1, nd.Canceled))
	})
}

// A Receive may have an entry that only the peer can fill, before one that this side fills.
func TestWeakOrderFillsPrivateEntry(t *testing.T) {
	t.Parallel()
	const n = 4000
	for seed := range uint64(32) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			p := newPair(t, setup{Both: sideOptions{Options: Options{WeakOrder: &seed}}})
			private := p.b.must(order{Do: doRegion, Len: n, Private: true, Rights: nd.AllowLocalWrite}).N
			p.a.fill(0, 0, 2*n, 1)
			p.b.must(order{Do: doReceive, Parts: []part{{Region: private, Len: n}, {Off: n, Len: n}}})
			p.a.must(order{Do: doSend, Parts: mine(0, 2*n)})
			p.b.expect(receiveQueue, success(nd.RequestReceive, 0, 2*n))
			p.a.expect(initiatorQueue, success(nd.RequestSend, 0, 2*n))
			if p.b.sum(private, 0, n) != p.a.sum(0, 0, n) || p.b.sum(0, n, n) != p.a.sum(0, n, n) {
				t.Error("the data differ")
			}
		})
	}
}

// A message changes no memory before it has a Receive, and none if it fails.
func TestWeakOrderPlacesMessagesInTheirReceives(t *testing.T) {
	t.Parallel()
	t.Run("shared", func(t *testing.T) {
		for seed := range uint64(16) {
			p := newPair(t, shared(setup{Both: sideOptions{Options: Options{WeakOrder: &seed}}}, 1))
			p.a.must(order{Do: doReceive, Parts: mine(0, 8)})
			p.b.must(order{Do: doSend, Parts: mine(0, 8)})
			p.a.expect(receiveQueue, success(nd.RequestReceive, 0, 8))
			p.a.must(order{Do: doFillByte, Len: 8, N: 7})
			p.b.must(order{Do: doSend, Parts: mine(0, 8)})
			for range 200 { // more than the longest delay
				p.b.must(order{Do: doPoll, N: 2})
				p.a.nothing(receiveQueue)
			}
			if p.a.must(order{Do: doLongestRun, Len: 8, N: 7}).N != 8 {
				t.Error("the second message is in the buffer of the first")
			}
		}
	})
	for name, tc := range map[string]struct {
		do   order
		size int
		want nd.Status
	}{
		"too long":  {order{Do: doSend, Parts: mine(0, 40)}, 16, nd.BufferOverflow},
		"bad token": {order{Do: doSendRevoking, Parts: mine(0, 8)}, 16, nd.InvalidDeviceRequest},
	} {
		t.Run(name, func(t *testing.T) {
			onWeakPairs(t, 16, setup{}, func(t *testing.T, peer *pair) {
				peer.b.must(order{Do: doFillByte, Len: 64, N: 7})
				peer.b.must(order{Do: doReceive, Parts: mine(0, tc.size)})
				peer.a.must(tc.do)
				peer.b.expect(receiveQueue, failure(nd.RequestReceive, 0, tc.want))
				if peer.b.must(order{Do: doLongestRun, Len: 64, N: 7}).N != 64 {
					t.Error("the buffer has changed")
				}
			})
		})
	}
}

// Flush completes all requests at once. Their results are not delayed.
func TestWeakOrderDoesNotDelayFlush(t *testing.T) {
	onWeakPairs(t, 16, setup{}, func(t *testing.T, p *pair) {
		for range 3 {
			p.a.must(order{Do: doSend, Parts: mine(0, 8)}) // there is no Receive
		}
		p.a.must(order{Do: doFlush})
		if got := p.a.must(order{Do: doPoll, N: 4}).Results; len(got) != 3 || got[2].Status != nd.Canceled {
			t.Errorf("the results are %v", got)
		}
		for i := range uint64(4) {
			p.a.must(order{Do: doWrite, Context: i, Parts: mine(0, 8), Far: p.b.memory})
			if got := p.a.must(order{Do: doPoll, N: 4}).Results; len(got) != 1 || got[0].Status != nd.Canceled {
				t.Errorf("after the end the results are %v", got)
			}
		}
	})
}

// A fault rule about a Read acts, also if it acts between two bytes.
func TestWeakOrderWithFaults(t *testing.T) {
	t.Parallel()
	for _, after := range []uint64{0, 1000} {
		rule := on("read", faults.Rule{Nth: 2, After: after, Action: "fail", Status: nd.IOTimeout})
		onWeakPairs(t, 16, setup{Both: sideOptions{FaultRules: rulesOf(t, rule)}}, func(t *testing.T, p *pair) {
			for i := range uint64(3) {
				p.a.must(order{Do: doRead, Context: i, Parts: mine(0, 5000), Far: p.b.memory})
			}
			// The Read before it may be late, and is canceled then.
			got := p.a.results(initiatorQueue, 3)
			if first := got[0].Status; first != nd.Success && first != nd.Canceled || got[2].Status != nd.Canceled {
				t.Errorf("%v", got)
			}
			if err := p.a.endpointAt(0).Err(); !errors.Is(err, nd.IOTimeout) {
				t.Errorf("%v", err)
			}
		})
	}
}

// No more Reads are in progress than the connection grants. The data of all of them is right, also if they need bounce
// buffers and Writes run meanwhile.
func TestWeakOrderReadLimit(t *testing.T) {
	const limit, reads = 2, 6
	most := 0
	for _, n := range []int{8, 70_000} {
		onWeakPairs(t, 16, setup{ReadLimit: limit, Both: sideOptions{Size: reads * 2 * 70_000}}, func(t *testing.T, p *pair) {
			ep := p.a.endpointAt(0).(*queuePair)
			p.a.fill(0, reads*n, reads*n, 1)
			p.b.fill(0, 0, reads*n, 2)
			for i := range reads {
				p.a.must(order{Do: doRead, Parts: mine(i*n, n), Far: at(p.b.memory, i*n)})
				p.a.must(order{Do: doWrite, Parts: mine((reads+i)*n, n), Far: at(p.b.memory, (reads+i)*n)})
			}
			for done := 0; done < 2*reads; {
				done += len(p.a.must(order{Do: doPoll, N: 12}).Results)
				p.b.nothing(initiatorQueue)
				ep.mu.Lock()
				most = max(most, len(ep.req.aside))
				ep.mu.Unlock()
			}
			if p.a.sum(0, 0, 2*reads*n) != p.b.sum(0, 0, 2*reads*n) {
				t.Errorf("%d bytes: the data differ", n)
			}
		})
	}
	if most != limit {
		t.Errorf("%d Reads were set aside at most, the limit is %d", most, limit)
	}
}

// While a request or a message is delayed, no process sleeps until a peer rings.
func TestWeakOrderNeedsPolling(t *testing.T) {
	delayed, unserved := 0, 0
	onWeakPairs(t, 16, setup{}, func(t *testing.T, p *pair) {
		a, b := p.a.endpointAt(0).(*queuePair), p.b.endpointAt(0).(*queuePair)
		check := func(ep *queuePair) (isBusy bool) {
			ep.mu.Lock()
			isBusy = ep.sq.completed != ep.req.submitted || ep.serving
			ep.mu.Unlock()
			if isBusy && !ep.needsPolling() {
				ep.mu.Lock()
				defer ep.mu.Unlock()
				if ep.sq.completed != ep.req.submitted || ep.serving { // else the engine has completed it meanwhile
					t.Errorf("%d of %d requests are complete, a message waits: %v", ep.sq.completed, ep.req.submitted, ep.serving)
				}
			}
			return isBusy
		}
		p.b.must(order{Do: doReceive, Parts: mine(0, 8)})
		p.a.must(order{Do: doSend, Parts: mine(0, 8)})
		for sent, received := 0, 0; sent+received < 2; {
			if check(a) {
				delayed++
			}
			if check(b) {
				unserved++
			}
			sent += len(p.a.must(order{Do: doPoll, N: 1}).Results)
			received += len(p.b.must(order{Do: doPoll, Queue: receiveQueue, N: 1}).Results)
		}
	})
	if delayed == 0 || unserved == 0 {
		t.Errorf("%d delays of requests, %d of messages", delayed, unserved)
	}
}

// Bytes arrive where they belong, from and to addresses that are no multiples of 8, and a request that overtakes a Read has
// parts of its own. An aligned word is stored at once.
func TestWeakOrderParts(t *testing.T) {
	torn := 0
	onWeakPairs(t, 32, setup{}, func(t *testing.T, p *pair) {
		mine, far := p.a.regionAt(0).bytes(), p.b.regionAt(0).bytes()
		for _, n := range []int{9, 32, 64, 1000} {
			clear(mine)
			clear(far)
			written, read := bytes.Repeat([]byte{1}, n), bytes.Repeat([]byte{2}, n)
			copy(mine[3:], written)
			copy(far[20_005:], read)
			words := func() { // of the two sinks
				for _, sink := range [][]byte{far[16:][:8], mine[20_016:][:8]} {
					if w := binary.NativeEndian.Uint64(sink); n >= 32 && w != 0 && w != 0x0101010101010101 && w != 0x0202020202020202 {
						t.Errorf("%d bytes: a word of %#x", n, w)
					} else if w == 0 {
						torn++
					}
				}
			}
			p.a.must(order{Do: doRead, Parts: []part{{Off: 20_001, Len: n}}, Far: at(p.b.memory, 20_005)})
			p.a.must(order{Do: doWrite, Context: 1, Parts: []part{{Off: 3, Len: n}}, Far: at(p.b.memory, 6)})
			for done := 0; done < 2; words() {
				done += len(p.a.must(order{Do: doPoll, N: 2}).Results)
				words()
				p.b.nothing(initiatorQueue)
			}
			if !bytes.Equal(mine[20_001:][:n], read) || !bytes.Equal(far[6:][:n], written) || mine[20_000]|mine[20_001+n]|far[5]|far[6+n] != 0 {
				t.Fatalf("%d bytes: the data differ", n)
			}
		}
	})
	if torn == 0 {
		t.Error("no word was late")
	}
}

// A Write of which a part is allowed writes nothing.
func TestWeakOrderRefusesWholeWrites(t *testing.T) {
	t.Parallel()
	for _, n := range []int{32, 1000} {
		onWeakPairs(t, 16, setup{}, func(t *testing.T, p *pair) {
			p.a.fill(0, 0, n, 1)
			p.b.fill(0, 0, n, 2)
			before := p.b.sum(0, 0, n)
			window := p.b.must(order{Do: doWindow}).N
			far := p.b.must(order{Do: doBind, Window: window, Len: n - 8, Flags: nd.AllowWrite}).Far
			p.b.results(initiatorQueue, 1)
			p.a.must(order{Do: doWrite, Parts: mine(0, n), Far: far})
			p.a.expect(initiatorQueue, failure(nd.RequestWrite, 0, nd.AccessViolation))
			if p.b.sum(0, 0, n) != before {
				t.Error("it has written")
			}
		})
	}
}
