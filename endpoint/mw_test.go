package endpoint

import (
	"fmt"
	"math"
	"testing"

	"github.com/softnd/softnd/nd"
)

// bind binds a range of a side's first region through a window, and takes the result.
func (s *side) bind(window, off, n int, flags nd.OpFlags) nd.WindowDescriptor {
	s.t.Helper()
	d := s.must(order{Do: doBind, Context: 0xb1, Window: window, Off: off, Len: n, Flags: flags}).Far
	s.expect(initiatorQueue, success(nd.RequestBind, 0xb1, 0))
	return d
}

func (s *side) invalidate(window int) {
	s.t.Helper()
	s.must(order{Do: doInvalidate, Context: 0x1e, Window: window})
	s.expect(initiatorQueue, success(nd.RequestInvalidate, 0x1e, 0))
}

func (s *side) newWindow() int {
	s.t.Helper()
	return s.must(order{Do: doWindow}).N
}

// offend makes a request of a that b's memory does not allow, and checks what both sides see.
func (p *pair) offend(do verb, parts []part, far nd.WindowDescriptor) {
	p.a.t.Helper()
	kind := nd.RequestWrite
	if do == doRead {
		kind = nd.RequestRead
	}
	p.a.must(order{Do: doReceive, Context: 0xa0})
	p.b.must(order{Do: doReceive, Context: 0xa1})
	p.a.must(order{Do: do, Context: 0xa2, Parts: parts, Far: far})
	p.a.must(order{Do: doWrite, Context: 0xa3, Parts: mine(0, 1), Far: p.b.memory})
	p.a.must(order{Do: doSend, Context: 0xa4})
	p.a.expect(initiatorQueue, failure(kind, 0xa2, nd.AccessViolation), failure(nd.RequestWrite, 0xa3, nd.Canceled),
		failure(nd.RequestSend, 0xa4, nd.Canceled))
	p.a.expect(receiveQueue, failure(nd.RequestReceive, 0xa0, nd.Canceled))
	p.b.expect(receiveQueue, failure(nd.RequestReceive, 0xa1, nd.Canceled))
	p.b.must(order{Do: doNotify})
	p.a.must(order{Do: doNotify})
	p.b.nothing(initiatorQueue)
	p.b.nothing(receiveQueue)
	p.a.refuse(nd.AccessViolation, order{Do: doWhy})
	p.b.refuse(nd.ConnectionAborted, order{Do: doWhy})
}

func TestWindowFromBindToInvalidate(t *testing.T) {
	onEvery(t, setup{}, func(t *testing.T, p *pair) {
		w := p.b.newWindow()
		if d := p.b.must(order{Do: doDescriptor, Window: w}).Far; d != (nd.WindowDescriptor{}) {
			t.Errorf("descriptor before the first bind: %v", d)
		}
		d := p.b.bind(w, 4096, 100_000, nd.AllowRead|nd.AllowWrite)
		if want := (nd.WindowDescriptor{Address: p.b.memory.Address + 4096, Length: 100_000, Token: d.Token}); d != want || d.Token == 0 {
			t.Errorf("descriptor %v, want %v", d, want)
		}
		for _, n := range []int{1, 8, 40, 41, 4096, 99_990} {
			p.a.fill(0, 0, n, uint64(n))
			p.a.must(order{Do: doWrite, Parts: mine(0, n), Far: at(d, 10)})
			p.a.expect(initiatorQueue, success(nd.RequestWrite, 0, n))
			if p.b.sum(0, 4096+10, n) != p.a.sum(0, 0, n) {
				t.Errorf("a write of %d bytes came out wrong", n)
			}
			p.a.must(order{Do: doRead, Parts: mine(100_000, n), Far: at(d, 10)})
			p.a.expect(initiatorQueue, success(nd.RequestRead, 0, n))
			if p.a.sum(0, 100_000, n) != p.a.sum(0, 0, n) {
				t.Errorf("a read of %d bytes came out wrong", n)
			}
		}
		before := p.b.sum(0, 0, 256<<10)
		p.b.invalidate(w)
		p.offend(doWrite, mine(7, 100), d)
		if p.b.sum(0, 0, 256<<10) != before {
			t.Error("memory has changed after the invalidation")
		}
	})
}

// TestBindReturnsToken: the token can be sent to the peer before the bind's result
// was polled.
func TestBindReturnsToken(t *testing.T) {
	onEvery(t, setup{}, func(t *testing.T, p *pair) {
		w := p.b.newWindow()
		p.a.must(order{Do: doReceive})
		p.b.must(order{Do: doWrite, Parts: mine(0, 200_000), Far: p.a.memory}) // the bind has to wait for this
		d := p.b.must(order{Do: doBind, Context: 1, Window: w, Len: 8, Flags: nd.AllowWrite | nd.SilentSuccess}).Far
		p.b.must(order{Do: doSend, Context: 2})
		p.a.expect(receiveQueue, success(nd.RequestReceive, 0, 0))
		p.a.must(order{Do: doWrite, Context: 3, Parts: mine(0, 8), Far: d})
		p.a.expect(initiatorQueue, success(nd.RequestWrite, 3, 8))
		p.b.expect(initiatorQueue, success(nd.RequestWrite, 0, 200_000), success(nd.RequestSend, 2, 0))
	})
}

func TestWindowEdges(t *testing.T) {
	t.Parallel()
	const start, size, room = 4096, quantum + 5000, quantum + 16<<10 // several chunks, and parts: a bad range is refused before the first
	cases := []struct {
		name    string
		off     int64 // from the window's start
		n       int
		allowed bool
	}{
		{"first byte", 0, 1, true},
		{"last byte", size - 1, 1, true},
		{"everything", 0, size, true},
		{"one byte below", -1, 1, false},
		{"one byte above", size, 1, false},
		{"from one below", -1, 8, false},
		{"to one above", size - 7, 8, false},
		{"everything and one byte", 0, size + 1, false},
		{"far below", -start - 1, 8, false},
		{"far above", 1 << 40, 8, false},
		{"in the upper half", math.MinInt64, 8, false},
	}
	for _, c := range cases {
		for _, do := range []verb{doWrite, doRead} {
			t.Run(fmt.Sprintf("%s %s", do, c.name), func(t *testing.T) {
				for _, s := range someSetups(setup{Both: sideOptions{Size: room}}) {
					t.Run(s.String(), func(t *testing.T) {
						p := newPair(t, s)
						d := p.b.bind(p.b.newWindow(), start, size, nd.AllowRead|nd.AllowWrite)
						d.Address += uint64(c.off)
						if c.allowed {
							p.a.must(order{Do: do, Parts: mine(0, c.n), Far: d})
							if r := p.a.results(initiatorQueue, 1)[0]; r.Status != nd.Success {
								t.Errorf("%v (%s)", r, p.a.why())
							}
							return
						}
						p.a.fill(0, 0, room, 3)
						before := p.b.sum(0, 0, room)
						p.offend(do, mine(0, c.n), d)
						if p.b.sum(0, 0, room) != before {
							t.Error("bytes have changed")
						}
					})
				}
			})
		}
	}
	t.Run("wrapping around", func(t *testing.T) {
		for _, s := range someSetups(setup{Both: sideOptions{Size: room}}) {
			t.Run(s.String(), func(t *testing.T) {
				p := newPair(t, s)
				d := p.b.bind(p.b.newWindow(), start, size, nd.AllowWrite)
				d.Address = math.MaxUint64 - 99_999
				p.offend(doWrite, mine(0, 200_000), d)
			})
		}
	})
	t.Run("many entries one byte too long", func(t *testing.T) {
		for _, s := range someSetups(setup{Both: sideOptions{Size: room}}) {
			t.Run(s.String(), func(t *testing.T) {
				p := newPair(t, s)
				d := p.b.bind(p.b.newWindow(), start, size, nd.AllowWrite)
				p.offend(doWrite, []part{{Len: 20_000}, {Len: 20_000}, {Len: size - 40_000 + 1}}, d)
			})
		}
	})
}

// badInitiator is a request of b that fails there, and ends the connection.
func (p *pair) badInitiator(o order, kind nd.RequestType) {
	p.a.t.Helper()
	o.Context = 0xbad
	p.b.must(o)
	p.b.must(order{Do: doSend, Context: 1})
	p.a.must(order{Do: doReceive, Context: 2})
	p.b.expect(initiatorQueue, failure(kind, 0xbad, nd.InvalidDeviceRequest), failure(nd.RequestSend, 1, nd.Canceled))
	p.a.expect(receiveQueue, failure(nd.RequestReceive, 2, nd.Canceled))
	p.b.refuse(nd.InvalidDeviceRequest, order{Do: doWhy})
}

// TestTokensOfWrongKind: peers cannot use local tokens, and entries cannot use remote tokens.
func TestTokensOfWrongKind(t *testing.T) {
	t.Parallel()
	for _, s := range someSetups(setup{}) {
		for _, n := range []int{8, 1000, 100_000} {
			t.Run(fmt.Sprintf("%v/%d", s, n), func(t *testing.T) {
				for name, token := range map[string]func(p *pair) nd.Token{
					"local token":      func(p *pair) nd.Token { return nd.Token(p.b.must(order{Do: doRegionInfo}).Sum) },
					"token 0":          func(*pair) nd.Token { return 0 },
					"own remote token": func(p *pair) nd.Token { return p.a.memory.Token },
					"another tag":      func(p *pair) nd.Token { return p.b.memory.Token + 1<<20 },
					"another index":    func(p *pair) nd.Token { return p.b.memory.Token + 1<<19 },
				} {
					t.Run(name, func(t *testing.T) {
						p := newPair(t, s)
						far := p.b.memory
						far.Token = token(p)
						p.offend(doWrite, mine(0, n), far)
					})
				}
				t.Run("remote token in an entry", func(t *testing.T) {
					p := newPair(t, s)
					p.offend(doWrite, []part{{Len: n, Token: p.a.memory.Token}}, p.b.memory)
				})
			})
		}
	}
}
