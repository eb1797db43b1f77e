package endpoint

import (
	"fmt"
	"strings"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// longReceiveTimeout lets Sends wait for a receive as long as a test may run.
var longReceiveTimeout = sideOptions{Options: Options{ReceiveTimeout: proctest.Timeout}}

// kindOf is the type of result that an order to post leads to.
func kindOf(do verb) nd.RequestType {
	switch do {
	case doWrite:
		return nd.RequestWrite
	case doRead:
		return nd.RequestRead
	case doBind:
		return nd.RequestBind
	case doInvalidate:
		return nd.RequestInvalidate
	case doReceive:
		return nd.RequestReceive
	}
	return nd.RequestSend
}

// TestLocalViolationFailsRequest posts entries that their tokens do not cover. The posts succeed and the requests fail.
func TestLocalViolationFailsRequest(t *testing.T) {
	t.Parallel()
	const size = 256 << 10
	cases := map[string]func(p *pair, n int) []part{
		"unknown token": func(_ *pair, n int) []part { return []part{{Len: n, Token: 1<<31 + 12345}} },
		"remote token":  func(p *pair, n int) []part { return []part{{Len: n, Token: p.a.memory.Token}} },
		"peer's token": func(p *pair, n int) []part {
			return []part{{Len: n, Token: nd.Token(p.b.must(order{Do: doRegionInfo}).Sum)}}
		},
		"token of another region": func(p *pair, n int) []part {
			other := p.a.must(order{Do: doRegion, Len: n, Private: p.Private[0], Rights: nd.AllowLocalWrite})
			return []part{{Len: n, Token: nd.Token(other.Sum)}}
		},
		"one byte past the region":   func(_ *pair, n int) []part { return []part{{Off: size + 1 - n, Len: n}} },
		"one byte before the region": func(_ *pair, n int) []part { return []part{{Off: -1, Len: n}} },
		"second entry unknown":       func(_ *pair, n int) []part { return []part{{Len: n - 1}, {Off: n, Len: 1, Token: 77}} },
		"last entry out of range":    func(_ *pair, n int) []part { return []part{{Len: n - 2}, {Off: n, Len: 1}, {Off: size, Len: 1}} },
		"deregistered region": func(p *pair, n int) []part {
			r := p.a.must(order{Do: doRegion, Len: n, Private: p.Private[0], Rights: nd.AllowLocalWrite})
			p.a.must(order{Do: doDeregister, Region: r.N})
			return []part{{Region: r.N, Len: n, Token: nd.Token(r.Sum)}}
		},
	}
	for name, bad := range cases {
		for _, do := range []verb{doSend, doWrite, doRead} {
			t.Run(fmt.Sprintf("%s/%s", do, name), func(t *testing.T) {
				for _, s := range someSetups(setup{Both: longReceiveTimeout}) {
					for _, n := range []int{8, 1000, 100_000} {
						t.Run(fmt.Sprintf("%d bytes/%v", n, s), func(t *testing.T) {
							p := newPair(t, s)
							p.ownViolation(order{Do: do, Parts: bad(p, n), Far: p.b.memory})
						})
					}
				}
			})
		}
	}
	t.Run("read into a region without AllowLocalWrite", func(t *testing.T) {
		for _, s := range someSetups(setup{Both: longReceiveTimeout}) {
			t.Run(s.String(), func(t *testing.T) {
				p := newPair(t, s)
				r := p.a.must(order{Do: doRegion, Len: 1000, Private: s.Private[0], Rights: nd.AllowRemoteRead})
				p.a.must(order{Do: doWrite, Parts: []part{{Region: r.N, Len: 1000}}, Far: p.b.memory}) // a source needs no right
				p.a.expect(initiatorQueue, success(nd.RequestWrite, 0, 1000))
				p.ownViolation(order{Do: doRead, Parts: []part{{Region: r.N, Len: 1000}}, Far: p.b.memory})
			})
		}
	})
}

// ownViolation makes a request of a that fails because of a's own entries, amid
// others, and checks what both sides see of that.
func (p *pair) ownViolation(bad order) {
	p.a.t.Helper()
	w := p.a.newWindow()
	for i := range uint64(2) {
		p.a.must(order{Do: doReceive, Context: 0xa0 + i})
		p.b.must(order{Do: doReceive, Context: 0xb0 + i, Parts: mine(0, 200_000)})
	}
	p.b.must(order{Do: doSend, Context: 0xb2})
	p.a.expect(receiveQueue, success(nd.RequestReceive, 0xa0, 0))
	p.b.expect(initiatorQueue, success(nd.RequestSend, 0xb2, 0))
	p.a.must(order{Do: doWrite, Context: 1, Parts: mine(0, 9), Far: p.b.memory})
	bad.Context = 2
	p.a.must(bad)
	later := []verb{doWrite, doRead, doSend, doBind, doInvalidate, doSend}
	want := []nd.Result{success(nd.RequestWrite, 1, 9), failure(kindOf(bad.Do), 2, nd.AccessViolation)}
	for i, do := range later {
		o := order{Do: do, Context: uint64(3 + i), Window: w, Far: p.b.memory}
		switch do {
		case doBind:
			o.Len = 10
		case doWrite, doRead:
			o.Parts = mine(0, 10)
		}
		p.a.must(o)
		want = append(want, failure(kindOf(do), o.Context, nd.Canceled))
	}
	p.a.expect(initiatorQueue, want...)
	p.a.expect(receiveQueue, failure(nd.RequestReceive, 0xa1, nd.Canceled))
	p.b.must(order{Do: doNotify})
	p.b.expect(receiveQueue, failure(nd.RequestReceive, 0xb0, nd.Canceled), failure(nd.RequestReceive, 0xb1, nd.Canceled))
	for _, q := range []queue{initiatorQueue, receiveQueue} {
		p.a.nothing(q)
		p.b.nothing(q)
	}
	p.a.refuse(nd.AccessViolation, order{Do: doWhy})
	if r := p.b.do(order{Do: doWhy}); r.Status == nd.Success {
		p.b.t.Error("the peer does not know that the connection has ended")
	}
	p.a.must(order{Do: doDeregister}) // the bind was canceled
}

// TestViolationSplitsQueue fails one of ten requests: those before it complete, those after it are canceled.
func TestViolationSplitsQueue(t *testing.T) {
	t.Parallel()
	const room = 20_000 // of each
	sizes := []int{8, 1000, room, 40, 41, 5000, 1, room, 700, 16}
	for _, kth := range []int{0, 4, 9} {
		t.Run(fmt.Sprintf("request %d", kth+1), func(t *testing.T) {
			onEvery(t, setup{Both: longReceiveTimeout}, func(t *testing.T, p *pair) {
				for i := range uint64(3) {
					p.a.must(order{Do: doReceive, Context: i})
					p.b.must(order{Do: doReceive, Context: i})
				}
				p.a.fill(0, 0, len(sizes)*room, 1)
				p.b.fill(0, 0, len(sizes)*room, 2)
				untouched := p.b.sum(0, kth*room, (len(sizes)-kth)*room)
				var want []nd.Result
				for i, n := range sizes {
					o := order{Do: doWrite, Context: uint64(i), Parts: mine(i*room, n), Far: at(p.b.memory, i*room)}
					switch {
					case i < kth:
						want = append(want, success(nd.RequestWrite, uint64(i), n))
					case i == kth:
						o.Far = at(p.b.memory, 256<<10-n+1)
						o.Flags = nd.SilentSuccess // which says nothing about failures
						want = append(want, failure(nd.RequestWrite, uint64(i), nd.AccessViolation))
					default:
						want = append(want, failure(nd.RequestWrite, uint64(i), nd.Canceled))
					}
					p.a.must(o)
				}
				p.a.expect(initiatorQueue, want...)
				p.b.must(order{Do: doNotify})
				p.a.must(order{Do: doNotify})
				for i := range uint64(3) {
					p.a.expect(receiveQueue, failure(nd.RequestReceive, i, nd.Canceled))
					p.b.expect(receiveQueue, failure(nd.RequestReceive, i, nd.Canceled))
				}
				p.b.nothing(initiatorQueue)
				for i, n := range sizes[:kth] {
					if p.a.sum(0, i*room, n) != p.b.sum(0, i*room, n) {
						t.Errorf("request %d was successful, and its data are wrong", i)
					}
				}
				if p.b.sum(0, kth*room, (len(sizes)-kth)*room) != untouched {
					t.Error("the bad request or a later one has changed memory")
				}
			})
		})
	}
}

// TestViolationCancelsPeerRequests checks that the outstanding requests of the peer have status Canceled and no other.
func TestViolationCancelsPeerRequests(t *testing.T) {
	onEvery(t, setup{Both: longReceiveTimeout}, func(t *testing.T, p *pair) {
		w := p.b.newWindow()
		p.b.must(order{Do: doSend, Context: 1}) // the peer posts no receive
		p.b.must(order{Do: doWrite, Context: 2, Parts: mine(0, 100), Far: p.a.memory, Flags: nd.SilentSuccess})
		p.b.must(order{Do: doBind, Context: 3, Window: w, Len: 100, Flags: nd.AllowRead})
		p.b.must(order{Do: doInvalidate, Context: 4, Window: w})
		bad := p.b.memory
		bad.Token ^= 1 << 25
		p.a.must(order{Do: doRead, Context: 5, Parts: mine(0, 100), Far: bad})
		p.a.expect(initiatorQueue, failure(nd.RequestRead, 5, nd.AccessViolation))
		p.b.expect(initiatorQueue, failure(nd.RequestSend, 1, nd.Canceled), failure(nd.RequestWrite, 2, nd.Canceled),
			failure(nd.RequestBind, 3, nd.Canceled), failure(nd.RequestInvalidate, 4, nd.Canceled))
		p.b.must(order{Do: doNotify})
		p.b.must(order{Do: doDeregister})
	})
}

// TestPostsAfterViolationAreCanceled posts on a failed endpoint. Each post has a result, even with SilentSuccess; invalid arguments
// still fail the post.
func TestPostsAfterViolationAreCanceled(t *testing.T) {
	onEvery(t, setup{}, func(t *testing.T, p *pair) {
		bad := p.b.memory
		bad.Token ^= 1 << 25
		p.a.must(order{Do: doWrite, Parts: mine(0, 8), Far: bad})
		p.a.expect(initiatorQueue, failure(nd.RequestWrite, 0, nd.AccessViolation))
		p.b.must(order{Do: doNotify})
		for _, side := range []*side{p.a, p.b} {
			w := side.newWindow()
			for i, do := range []verb{doWrite, doRead, doSend, doSendRevoking, doBind, doInvalidate} {
				for _, flags := range []nd.OpFlags{0, nd.SilentSuccess, nd.ReadFence} {
					o := order{Do: do, Context: uint64(10 + i), Flags: flags, Window: w, Parts: mine(0, 100), Len: 100, Far: p.a.memory}
					side.must(o)
					side.expect(initiatorQueue, failure(kindOf(do), o.Context, nd.Canceled))
				}
			}
			side.must(order{Do: doReceive, Context: 7, Parts: mine(0, 100)})
			side.expect(receiveQueue, failure(nd.RequestReceive, 7, nd.Canceled))
			side.refuse(nd.InvalidParameter, order{Do: doWrite, Flags: nd.AllowRead})
			side.refuse(nd.AccessViolation, order{Do: doBind, Window: w, Off: -1, Len: 2})
			side.nothing(initiatorQueue)
			side.must(order{Do: doDeregister})
		}
	})
}

// TestViolationErrorHidesToken checks that the error names endpoint, operation and range, and contains no complete token.
func TestViolationErrorHidesToken(t *testing.T) {
	const n = 1234
	type secret = []nd.Token
	cases := map[string]func(p *pair) (words []string, tokens secret){
		"write with a token that is none": func(p *pair) ([]string, secret) {
			far := p.b.memory
			far.Token ^= 1 << 25
			p.a.must(order{Do: doWrite, Parts: mine(0, n), Far: far})
			return []string{"write", "1234 bytes", fmt.Sprintf("%#x", far.Address)}, secret{far.Token}
		},
		"small write out of range": func(p *pair) ([]string, secret) {
			far := at(p.b.memory, 256<<10-3)
			p.a.must(order{Do: doWrite, Parts: mine(0, 8), Far: far})
			return []string{"write", "8 bytes", fmt.Sprintf("%#x", far.Address)}, nil
		},
		"read out of range": func(p *pair) ([]string, secret) {
			far := at(p.b.memory, -1)
			p.a.must(order{Do: doRead, Parts: mine(0, n), Far: far})
			return []string{"read", "1234 bytes", fmt.Sprintf("%#x", far.Address)}, nil
		},
		"write with a bad entry": func(p *pair) ([]string, secret) {
			p.a.must(order{Do: doWrite, Parts: []part{{Len: n, Token: 0xdeadbe01}}, Far: p.b.memory})
			return []string{"write", "1234 bytes"}, secret{0xdeadbe01}
		},
		"send with a bad entry": func(p *pair) ([]string, secret) {
			p.b.must(order{Do: doReceive, Parts: mine(0, n)})
			p.a.must(order{Do: doSend, Parts: []part{{Len: n, Token: 0xdeadbe02}}})
			return []string{"send", "1234 bytes"}, secret{0xdeadbe02}
		},
		"bad receive": func(p *pair) ([]string, secret) {
			p.b.must(order{Do: doReceive, Parts: []part{{Len: n, Token: 0xdeadbe03}}})
			p.a.must(order{Do: doSend, Parts: mine(0, n)})
			return []string{"send"}, secret{0xdeadbe03}
		},
		"invalidation of an unknown token": func(p *pair) ([]string, secret) {
			p.b.must(order{Do: doReceive})
			p.a.must(order{Do: doSendRevoking, Far: nd.WindowDescriptor{Token: 0xdeadbe04}})
			return []string{"send and invalidate"}, secret{0xdeadbe04}
		},
		"stale window": func(p *pair) ([]string, secret) {
			w := p.b.newWindow()
			far := p.b.bind(w, 0, n, nd.AllowWrite)
			p.b.invalidate(w)
			p.a.must(order{Do: doWrite, Parts: mine(0, n), Far: far})
			return []string{"write", "1234 bytes", fmt.Sprintf("%#x", far.Address)}, secret{far.Token}
		},
	}
	for name, offend := range cases {
		t.Run(name, func(t *testing.T) {
			for _, s := range someSetups(setup{}) {
				t.Run(s.String(), func(t *testing.T) {
					p := newPair(t, s)
					words, tokens := offend(p)
					for _, side := range []*side{p.a, p.b} {
						tokens = append(tokens, side.memory.Token, nd.Token(side.must(order{Do: doRegionInfo}).Sum))
					}
					p.a.must(order{Do: doNotify})
					p.b.must(order{Do: doNotify})
					for _, side := range []*side{p.a, p.b} {
						text := side.do(order{Do: doWhy}).Text
						if text == "" {
							t.Fatalf("%s has no error", side.name)
						}
						want := []string{fmt.Sprint(side.endpointAt(0))}
						if side == p.a {
							want = append(want, words...)
						}
						for _, word := range want {
							if !strings.Contains(text, word) {
								t.Errorf("%s: %q does not say %q", side.name, text, word)
							}
						}
						for _, token := range tokens {
							if shows(text, token) {
								t.Errorf("%s: %q shows token %#x", side.name, text, uint32(token))
							}
						}
					}
				})
			}
		})
	}
}

// shows reports whether a text contains a token. It ignores tokens so small that they may
// be a part of another number.
func shows(text string, token nd.Token) bool {
	if token < 1<<24 {
		return false
	}
	text = strings.ToLower(text)
	return strings.Contains(text, fmt.Sprintf("%x", uint32(token))) || strings.Contains(text, fmt.Sprintf("%d", uint32(token)))
}

// TestInvalidFlagsFailPost checks that the status identifies the flags parameter, and that the post has no effect.
func TestInvalidFlagsFailPost(t *testing.T) {
	p := newPair(t, setup{})
	w := p.a.newWindow()
	for do, want := range map[verb]nd.Status{
		doSend: nd.InvalidParameter, doSendRevoking: nd.InvalidParameter,
		doWrite: nd.InvalidParameter, doRead: nd.InvalidParameter, doBind: nd.InvalidParameter,
		doInvalidate: nd.InvalidParameter,
	} {
		o := order{Do: do, Window: w, Parts: mine(0, 10), Len: 10, Far: p.b.memory}
		for bit := range 32 {
			if o.Flags = 1 << bit; o.Flags&kindOf(do).AllowedFlags() == 0 {
				p.a.refuse(want, o)
				o.Flags |= nd.SilentSuccess | nd.ReadFence
				p.a.refuse(want, o)
			}
		}
	}
	p.a.nothing(initiatorQueue)
	p.a.must(order{Do: doWrite, Context: 1, Parts: mine(0, 10), Far: p.b.memory})
	p.a.expect(initiatorQueue, success(nd.RequestWrite, 1, 10))
	p.a.must(order{Do: doWhy})
}

// TestTooManyEntriesFailPost posts more scatter/gather entries than the endpoint allows.
func TestTooManyEntriesFailPost(t *testing.T) {
	for asked, limit := range map[int]int{0: 4, 1: 4, 5: 5, 16: 16} {
		t.Run(fmt.Sprint(asked), func(t *testing.T) {
			for _, s := range someSetups(setup{Both: sideOptions{SGE: asked}}) {
				t.Run(s.String(), func(t *testing.T) {
					p := newPair(t, s)
					parts := make([]part, limit+1)
					for i := range parts {
						parts[i] = part{Off: 10 * i, Len: 10}
					}
					for _, do := range []verb{doSend, doSendRevoking, doWrite, doRead, doReceive} {
						p.a.refuse(nd.DataOverrun, order{Do: do, Parts: parts, Far: p.b.memory})
					}
					p.a.nothing(initiatorQueue)
					p.b.must(order{Do: doReceive, Context: 1, Parts: parts[:limit]})
					p.a.must(order{Do: doSend, Context: 1, Parts: parts[:limit]})
					p.a.must(order{Do: doWrite, Context: 2, Parts: parts[:limit], Far: p.b.memory})
					p.a.must(order{Do: doRead, Context: 3, Parts: parts[:limit], Far: p.b.memory})
					p.a.expect(initiatorQueue, success(nd.RequestSend, 1, 10*limit), success(nd.RequestWrite, 2, 10*limit),
						success(nd.RequestRead, 3, 10*limit))
					p.b.expect(receiveQueue, success(nd.RequestReceive, 1, 10*limit))
				})
			}
		})
	}
}

// TestCompletionQueueOverrunFailsEndpoints overruns a completion queue. Its endpoints fail, and the results that fit stay.
func TestCompletionQueueOverrunFailsEndpoints(t *testing.T) {
	const depth, room = 4, 8 // see newCompletionQueue
	posted := room + 5
	check := func(p *pair, over, other *side, q queue, kind nd.RequestType, bytes int) {
		p.a.t.Helper()
		other.must(order{Do: doNotify})
		over.must(order{Do: doNotify})
		over.refuse(nd.InternalError, order{Do: doWhy})
		want := make([]nd.Result, room)
		for i := range want {
			want[i] = success(kind, uint64(i), bytes)
		}
		over.expect(q, want...)
		for range 2 {
			over.refuse(nd.BufferOverflow, order{Do: doWait, Queue: q, N: 1})
		}
		over.nothing(q)
	}
	write := func(p *pair) {
		for i := range posted {
			// The first beyond the room overruns the queue; those after it may be refused.
			o := order{Do: doWrite, Context: uint64(i), Parts: mine(0, 10), Far: p.b.memory}
			if r := p.a.do(o); r.Status != nd.Success && (i <= room || r.Status != nd.InternalError) {
				p.a.t.Fatalf("write %d: %v", i, r.Text)
			}
		}
	}
	t.Run("of an initiator", func(t *testing.T) {
		onEvery(t, setup{Both: sideOptions{QueueDepth: depth}}, func(t *testing.T, p *pair) {
			p.a.must(order{Do: doReceive, Context: 0xa0})
			p.b.must(order{Do: doReceive, Context: 0xb0})
			write(p)
			check(p, p.a, p.b, initiatorQueue, nd.RequestWrite, 10)
			p.a.expect(receiveQueue, failure(nd.RequestReceive, 0xa0, nd.Canceled)) // which has not overrun
			p.b.expect(receiveQueue, failure(nd.RequestReceive, 0xb0, nd.Canceled))
			p.b.nothing(initiatorQueue)
		})
	})
	t.Run("of a receiver", func(t *testing.T) {
		onEvery(t, setup{Both: sideOptions{QueueDepth: depth}}, func(t *testing.T, p *pair) {
			for i := range posted {
				p.b.must(order{Do: doReceive, Context: uint64(i), Parts: mine(100*i, 100)})
			}
			for i := range posted {
				p.a.must(order{Do: doSend, Context: uint64(i), Parts: mine(0, 10), Flags: nd.SilentSuccess})
			}
			check(p, p.b, p.a, receiveQueue, nd.RequestReceive, 10)
		})
	})
	t.Run("of two endpoints", func(t *testing.T) {
		for _, s := range someSetups(setup{Both: sideOptions{QueueDepth: depth}, Unwired: true}) {
			t.Run(s.String(), func(t *testing.T) {
				p := newPair(t, s)
				addr := p.b.must(order{Do: doListen}).Addr
				p.connect(addr)
				n := p.addEndpoints(addr)
				write(p)
				p.b.must(order{Do: doNotify, Endpoint: n})
				p.a.must(order{Do: doNotify, Endpoint: n})
				p.a.refuse(nd.InternalError, order{Do: doWhy, Endpoint: n})
				p.b.refuse(nd.ConnectionAborted, order{Do: doWhy, Endpoint: n})
				check(p, p.a, p.b, initiatorQueue, nd.RequestWrite, 10)
			})
		}
	})
}
