package endpoint

import (
	"fmt"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// messageSizes takes every way that a message can go: within a slot, copied
// into the receive by the sender, fetched by the receiver.
var messageSizes = []int{1, 4, 8, 47, 48, 49, 1000, 70_000}

func TestMessagesArrive(t *testing.T) {
	onEvery(t, setup{}, func(t *testing.T, p *pair) {
		for i, n := range messageSizes {
			context := uint64(i)
			for room, what := range map[int]string{n: "exactly", n + 1: "with a byte to spare", 2*n + 100: "in twice the room"} {
				p.a.fill(0, 0, n, context)
				p.b.fill(0, 0, 200_000, context+50)
				after := p.b.sum(0, n, 200_000-n)
				p.b.must(order{Do: doReceive, Context: context, Parts: mine(0, room)})
				p.a.must(order{Do: doSend, Context: context, Parts: mine(0, n)})
				p.b.expect(receiveQueue, success(nd.RequestReceive, context, n))
				p.a.expect(initiatorQueue, success(nd.RequestSend, context, n))
				if p.b.sum(0, 0, n) != p.a.sum(0, 0, n) {
					t.Errorf("%d bytes, %s: the data differ", n, what)
				}
				if p.b.sum(0, n, 200_000-n) != after {
					t.Errorf("%d bytes, %s: bytes after the message have changed", n, what)
				}
			}
		}
	})
}

// TestSmallReceivesAmongLarge mixes receives that fit any inline message with receives that do not. Credit of the former must
// not be used for the latter.
func TestSmallReceivesAmongLarge(t *testing.T) {
	onEvery(t, setup{}, func(t *testing.T, p *pair) {
		lengths := []int{4, 4, 100, 0, 47, 48, 4, 1000, 1, 8, 64, 4, 4, 4, 50, 3}
		for round := range 3 {
			var receives, sends []nd.Result
			at := 0
			for i, n := range lengths {
				p.b.must(order{Do: doReceive, Context: uint64(i), Parts: mine(at, n)})
				receives = append(receives, success(nd.RequestReceive, uint64(i), n))
				sends = append(sends, success(nd.RequestSend, uint64(i), n))
				at += n
			}
			p.a.fill(0, 0, at, uint64(round))
			at = 0
			for i, n := range lengths {
				p.a.must(order{Do: doSend, Context: uint64(i), Parts: mine(at, n)})
				at += n
			}
			p.b.expect(receiveQueue, receives...)
			p.a.expect(initiatorQueue, sends...)
			if p.a.sum(0, 0, at) != p.b.sum(0, 0, at) {
				t.Errorf("round %d: the data differ", round)
			}
		}
	})
}

// TestMessageTooLargeFailsBothSides checks the status of each side, and that everything else is canceled.
func TestMessageTooLargeFailsBothSides(t *testing.T) {
	t.Parallel()
	for _, room := range []int{0, 4, 47, 48, 100, 69_999} {
		for _, n := range []int{1, 5, 48, 49, 70_000} {
			if n <= room {
				continue
			}
			t.Run(fmt.Sprintf("%d for %d", n, room), func(t *testing.T) {
				for _, s := range someSetups(setup{}) {
					t.Run(s.String(), func(t *testing.T) {
						p := newPair(t, s)
						p.b.fill(0, 0, 100_000, 9)
						p.b.must(order{Do: doReceive, Context: 1, Parts: mine(0, 100_000)})
						p.b.must(order{Do: doReceive, Context: 2, Parts: mine(0, room)})
						p.b.must(order{Do: doReceive, Context: 3, Parts: mine(0, 100_000)})
						after := p.b.sum(0, room, 100_000-room)
						p.a.must(order{Do: doSend, Context: 1})
						p.a.must(order{Do: doSend, Context: 2, Parts: mine(0, n)})
						p.a.must(order{Do: doSend, Context: 3, Parts: mine(0, 8)})
						p.a.expect(initiatorQueue, success(nd.RequestSend, 1, 0), failure(nd.RequestSend, 2, nd.RemoteError),
							failure(nd.RequestSend, 3, nd.Canceled))
						p.b.expect(receiveQueue, success(nd.RequestReceive, 1, 0), failure(nd.RequestReceive, 2, nd.BufferOverflow),
							failure(nd.RequestReceive, 3, nd.Canceled))
						if p.b.sum(0, room, 100_000-room) != after {
							t.Error("bytes after the receive have changed")
						}
						p.a.must(order{Do: doNotify})
						p.b.must(order{Do: doNotify})
					})
				}
			})
		}
	}
}

// someSetups are one of each way to move the bytes.
func someSetups(s setup) (all []setup) {
	for _, executor := range []Executor{Auto, Target} {
		for _, private := range []bool{false, true} {
			s.Executors = [2]Executor{executor, executor}
			s.Private = [2]bool{private, private}
			all = append(all, s)
		}
	}
	return all
}

// TestInvalidReceiveFailsAtMessage posts receives whose token does not cover the entry. They fail when a message arrives.
func TestInvalidReceiveFailsAtMessage(t *testing.T) {
	t.Parallel()
	const size = 256 << 10
	cases := map[string]func(p *pair, n int) []part{
		"unknown token": func(_ *pair, n int) []part { return []part{{Len: n + 50, Token: 1<<31 + 12345}} },
		"remote token":  func(p *pair, n int) []part { return []part{{Len: n, Token: p.b.memory.Token}} },
		"peer's token": func(p *pair, n int) []part {
			return []part{{Len: n, Token: nd.Token(p.a.must(order{Do: doRegionInfo}).Sum)}}
		},
		"no right to write": func(p *pair, n int) []part {
			p.b.must(order{Do: doRegion, Len: n, Private: p.Private[1], Rights: nd.AllowRemoteRead})
			return []part{{Region: 1, Len: n}}
		},
		"one byte past the region":   func(_ *pair, n int) []part { return []part{{Off: size + 1 - n, Len: n}} },
		"one byte before the region": func(_ *pair, n int) []part { return []part{{Off: -1, Len: n}} },
		"second entry unknown":       func(_ *pair, n int) []part { return []part{{Len: n - 1}, {Off: n, Len: n, Token: 77}} },
		"second entry out of range":  func(_ *pair, n int) []part { return []part{{Len: n - 1}, {Off: size, Len: 9}} },
		"deregistered region": func(p *pair, n int) []part {
			p.b.must(order{Do: doRegion, Len: n, Private: p.Private[1], Rights: nd.AllowLocalWrite})
			token := nd.Token(p.b.must(order{Do: doRegionInfo, Region: 1}).Sum)
			p.b.must(order{Do: doDeregister, Region: 1})
			return []part{{Region: 1, Len: n, Token: token}}
		},
	}
	for name, bad := range cases {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{8, 48, 49, 70_000} {
				for _, s := range someSetups(setup{}) {
					t.Run(fmt.Sprintf("%d bytes/%v", n, s), func(t *testing.T) {
						p := newPair(t, s)
						p.b.must(order{Do: doReceive, Context: 1, Parts: bad(p, n)})
						p.b.must(order{Do: doReceive, Context: 2})
						p.a.must(order{Do: doReceive, Context: 3})
						p.a.must(order{Do: doSend, Context: 4, Parts: mine(0, n)})
						p.a.must(order{Do: doSend, Context: 5})
						p.b.expect(receiveQueue, failure(nd.RequestReceive, 1, nd.AccessViolation), failure(nd.RequestReceive, 2, nd.Canceled))
						p.a.expect(initiatorQueue, failure(nd.RequestSend, 4, nd.RemoteError), failure(nd.RequestSend, 5, nd.Canceled))
						p.a.expect(receiveQueue, failure(nd.RequestReceive, 3, nd.Canceled))
					})
				}
			}
		})
	}
}

// TestSendWithoutReceiveTimesOut: a message waits for a receive, but not for ever.
func TestSendWithoutReceiveTimesOut(t *testing.T) {
	t.Parallel()
	const receiveTimeout = 60 * time.Millisecond
	for _, n := range []int{0, 8, 100_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			for _, s := range everySetup(setup{Both: sideOptions{Options: Options{ReceiveTimeout: receiveTimeout}}}) {
				t.Run(s.String(), func(t *testing.T) {
					t.Parallel()
					p := newPair(t, s)
					p.a.must(order{Do: doReceive, Context: 1})
					began := time.Now()
					p.a.must(order{Do: doSend, Context: 2, Parts: mine(0, n)})
					p.a.must(order{Do: doWrite, Context: 3, Parts: mine(0, 8), Far: p.b.memory})
					p.a.expect(initiatorQueue, failure(nd.RequestSend, 2, nd.IOTimeout), failure(nd.RequestWrite, 3, nd.Canceled))
					if took := time.Since(began); took < receiveTimeout {
						t.Errorf("the peer was given %v, want %v at least", took, receiveTimeout)
					}
					p.a.expect(receiveQueue, failure(nd.RequestReceive, 1, nd.Canceled))
					p.b.must(order{Do: doNotify})
					p.b.nothing(receiveQueue)
				})
			}
		})
	}
}

// TestSendWithoutReceiveFailsAtOnce uses the time-out AtOnce: the Send has failed when its post returns.
func TestSendWithoutReceiveFailsAtOnce(t *testing.T) {
	for _, n := range []int{0, 8, 100_000} {
		p := newPair(t, setup{Both: sideOptions{Options: Options{ReceiveTimeout: AtOnce}}})
		p.b.must(order{Do: doReceive, Parts: mine(0, n)})
		p.a.must(order{Do: doSend, Context: 1, Parts: mine(0, n)})
		p.a.expect(initiatorQueue, success(nd.RequestSend, 1, n)) // a receive is there
		p.a.must(order{Do: doSend, Context: 2, Parts: mine(0, min(n, smallTransfer))})
		p.a.refuse(nd.IOTimeout, order{Do: doWhy}) // without a poll
		p.a.expect(initiatorQueue, failure(nd.RequestSend, 2, nd.IOTimeout))
	}
}

// TestSendWithoutTimeoutSleeps lets a Send without a time-out wait longer than the default one while both processes sleep. The
// receive wakes the sender.
func TestSendWithoutTimeoutSleeps(t *testing.T) {
	t.Parallel()
	for _, s := range []setup{{}, {Executors: [2]Executor{Target, Target}}, {Processes: true}} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			s.Both.Options.ReceiveTimeout = NoLimit
			p := newPair(t, s)
			p.a.must(order{Do: doSend, Context: 1, Parts: mine(0, 100)})
			result := p.a.start(order{Do: doWait, Queue: initiatorQueue, N: 1})
			time.Sleep(defaultReceiveTimeout + 200*time.Millisecond)
			p.b.must(order{Do: doReceive, Context: 2, Parts: mine(0, 100)})
			if r := <-result; r.Status != nd.Success || len(r.Results) != 1 || r.Results[0].Status != nd.Success {
				t.Errorf("the Send ended with %+v", r)
			}
			p.b.expect(receiveQueue, success(nd.RequestReceive, 2, 100))
		})
	}
}

// TestLateReceiveCompletesSend posts the receive while the Send waits for it.
func TestLateReceiveCompletesSend(t *testing.T) {
	onEvery(t, setup{Both: sideOptions{Options: Options{ReceiveTimeout: proctest.Timeout}}}, func(t *testing.T, p *pair) {
		for i, n := range []int{0, 8, 48, 49, 100_000} {
			context := uint64(i)
			p.a.fill(0, 0, n, context)
			p.a.must(order{Do: doSend, Context: context, Parts: mine(0, n)})
			p.a.must(order{Do: doWrite, Context: context, Parts: mine(0, 8), Far: atFar(p.b, 200_000)})
			time.Sleep(2 * time.Millisecond)
			p.a.nothing(initiatorQueue)
			p.b.must(order{Do: doReceive, Context: context, Parts: mine(0, n)})
			p.b.expect(receiveQueue, success(nd.RequestReceive, context, n))
			p.a.expect(initiatorQueue, success(nd.RequestSend, context, n), success(nd.RequestWrite, context, 8))
			if p.a.sum(0, 0, n) != p.b.sum(0, 0, n) {
				t.Errorf("%d bytes: the data differ", n)
			}
		}
	})
}
