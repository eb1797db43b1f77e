package endpoint

import (
	"testing"

	"github.com/softnd/softnd/nd"
)

func (s *side) privileged() nd.Token {
	s.t.Helper()
	return nd.Token(s.must(order{Do: doPrivileged}).Sum)
}

// TestPrivilegedToken: mapped memory is source and sink without a registration.
func TestPrivilegedToken(t *testing.T) {
	onEvery(t, setup{}, func(t *testing.T, p *pair) {
		token := p.b.privileged()
		if token == 0 || token != p.b.privileged() {
			t.Fatalf("token %v, then %v", token, p.b.privileged())
		}
		r, q := p.b.fastRegion(200_000), p.b.fastRegion(200_000)
		for i, n := range []int{8, 60_000} {
			from := []part{{Region: r, Off: 1, Len: n / 2, Token: token}, {Region: q, Off: 5, Len: n - n/2, Token: token}}
			to := []part{{Region: q, Off: 100_000, Len: n, Token: token}}
			p.b.fill(r, 0, 200_000, uint64(2*i))
			p.b.fill(q, 0, 200_000, uint64(2*i+1))
			want := p.b.must(order{Do: doGather, Parts: from}).Sum
			p.a.must(order{Do: doReceive, Parts: mine(0, n)})
			p.b.must(order{Do: doSend, Parts: from})
			p.a.expect(receiveQueue, success(nd.RequestReceive, 0, n))
			p.b.must(order{Do: doWrite, Parts: from, Far: at(p.a.memory, 100_000)})
			p.b.expect(initiatorQueue, success(nd.RequestSend, 0, n), success(nd.RequestWrite, 0, n))
			if p.a.sum(0, 0, n) != want || p.a.sum(0, 100_000, n) != want {
				t.Errorf("%d bytes arrive wrong", n)
			}
			p.b.must(order{Do: doReceive, Parts: to})
			p.a.must(order{Do: doSend, Parts: mine(0, n)})
			p.b.expect(receiveQueue, success(nd.RequestReceive, 0, n))
			p.a.expect(initiatorQueue, success(nd.RequestSend, 0, n))
			if p.b.must(order{Do: doGather, Parts: to}).Sum != want {
				t.Errorf("a message of %d bytes arrives wrong", n)
			}
			p.b.fill(q, 100_000, n, 77)
			p.b.must(order{Do: doRead, Parts: to, Far: p.a.memory})
			p.b.expect(initiatorQueue, success(nd.RequestRead, 0, n))
			if p.b.must(order{Do: doGather, Parts: to}).Sum != want {
				t.Errorf("a read of %d bytes arrives wrong", n)
			}
		}
		p.b.must(order{Do: doCloseMapping, Region: q}) // r's mapping stays
		p.b.must(order{Do: doWrite, Context: 1, Parts: []part{{Region: r, Len: 1, Token: token}}, Far: p.a.memory})
		p.b.must(order{Do: doWrite, Context: 2, Parts: []part{{Region: q, Len: 1, Token: token}}, Far: p.a.memory})
		p.b.expect(initiatorQueue, success(nd.RequestWrite, 1, 1), failure(nd.RequestWrite, 2, nd.AccessViolation))
	})
}

func TestPrivilegedTokenRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]func(p *pair, r int, token nd.Token) order{
		"before the mapping": func(_ *pair, r int, token nd.Token) order {
			return order{Do: doWrite, Parts: []part{{Region: r, Off: -1, Len: 2, Token: token}}}
		},
		"behind the mapping": func(_ *pair, r int, token nd.Token) order {
			return order{Do: doRead, Parts: []part{{Region: r, Off: 99, Len: 2, Token: token}}}
		},
		"memory without a mapping": func(_ *pair, _ int, token nd.Token) order {
			return order{Do: doSend, Parts: []part{{Len: 8, Token: token}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			onFast(t, setup{}, func(t *testing.T, p *pair) {
				r := p.b.fastRegion(100)
				p.a.must(order{Do: doReceive})
				o := c(p, r, p.b.privileged())
				o.Context, o.Far = 1, p.a.memory
				p.b.must(o)
				p.b.expect(initiatorQueue, failure(kindOf(o.Do), 1, nd.AccessViolation))
			})
		})
	}
	t.Run("as a remote token", func(t *testing.T) {
		onFast(t, setup{}, func(t *testing.T, p *pair) {
			r := p.b.fastRegion(100)
			d := p.b.register(r, 0, 100)
			d.Token = p.b.privileged()
			p.offend(doWrite, mine(0, 8), d)
		})
	})
	t.Run("of another adapter", func(t *testing.T) {
		p := newPair(t, setup{})
		s := p.b
		other := must(s.provider.OpenAdapter(s.ctx, s.provider.adapterID()))
		foreign := must(other.PrivilegedToken())
		p.b.privileged()
		r := p.b.fastRegion(100)
		p.b.must(order{Do: doWrite, Context: 1, Parts: []part{{Region: r, Len: 8, Token: foreign}}, Far: p.a.memory})
		p.b.expect(initiatorQueue, failure(nd.RequestWrite, 1, nd.AccessViolation))
		wantStatus(t, other.Close(s.ctx), nd.Success)
		if _, err := other.PrivilegedToken(); nd.StatusOf(err) != nd.InvalidHandle {
			t.Errorf("of a closed adapter: %v", err)
		}
	})
}

// TestMappingClosedUnderReceive that was posted with the privileged token.
func TestMappingClosedUnderReceive(t *testing.T) {
	onFast(t, setup{}, func(t *testing.T, p *pair) {
		r := p.b.fastRegion(60_000)
		p.b.must(order{Do: doReceive, Context: 1, Parts: []part{{Region: r, Len: 60_000, Token: p.b.privileged()}}})
		p.b.must(order{Do: doCloseMapping, Region: r})
		before := p.b.sum(r, 0, 60_000)
		p.a.must(order{Do: doSend, Context: 2, Parts: mine(0, 60_000)})
		p.a.expect(initiatorQueue, failure(nd.RequestSend, 2, nd.RemoteError))
		p.b.expect(receiveQueue, failure(nd.RequestReceive, 1, nd.AccessViolation))
		if p.b.sum(r, 0, 60_000) != before {
			t.Error("memory has changed")
		}
	})
}

// TestReadLocalInvalidate: no peer can use the sink when the Read is done.
func TestReadLocalInvalidate(t *testing.T) {
	const flags = nd.ReadLocalInvalidate
	onEvery(t, setup{}, func(t *testing.T, p *pair) {
		r := p.b.fastRegion(200_000)
		var d nd.WindowDescriptor
		for i, n := range []int{1, 8, 5000, 180_000} {
			d = p.b.register(r, 0, 200_000)
			p.a.fill(0, 0, 200_000, uint64(i))
			parts := []part{{Region: r, Off: 10, Len: n}, {Region: 0, Off: 3, Len: 100}}
			p.b.must(order{Do: doRead, Context: 1, Parts: parts, Far: p.a.memory, Flags: flags})
			p.b.expect(initiatorQueue, success(nd.RequestRead, 1, n+100))
			if p.b.must(order{Do: doGather, Parts: parts}).Sum != p.a.sum(0, 0, n+100) {
				t.Errorf("a read of %d bytes came out wrong", n)
			}
			p.b.must(order{Do: doRead, Context: 2, Parts: parts[1:], Far: p.a.memory}) // other entries stay valid
			p.b.expect(initiatorQueue, success(nd.RequestRead, 2, 100))
		}
		p.b.must(order{Do: doRead, Context: 3, Far: p.a.memory, Flags: flags}) // has no first entry
		p.b.expect(initiatorQueue, success(nd.RequestRead, 3, 0))
		p.b.must(order{Do: doCloseMapping, Region: r})
		p.offend(doRead, mine(0, 1), d)
	})
}

// TestReadLocalInvalidatePipelined: each Read behind a registration, and all of them behind a
// request that takes long.
func TestReadLocalInvalidatePipelined(t *testing.T) {
	onEvery(t, setup{}, func(t *testing.T, p *pair) {
		r := p.b.fastRegion(150_000)
		p.b.must(order{Do: doWrite, Parts: mine(0, 200_000), Far: p.a.memory})
		want := []nd.Result{success(nd.RequestWrite, 0, 200_000)}
		for i := range 5 {
			n := 10 + 30_000*i
			p.b.must(order{Do: doFastRegister, Context: 1, Region: r, Len: n, Far: nd.WindowDescriptor{Address: 1}, Rights: nd.AllowLocalWrite})
			p.b.must(order{Do: doRead, Context: 2, Parts: []part{{Region: r, Len: n}}, Far: p.a.memory, Flags: nd.ReadLocalInvalidate})
			want = append(want, success(nd.RequestFastRegister, 1, 0), success(nd.RequestRead, 2, n))
		}
		p.b.must(order{Do: doWrite, Context: 3, Parts: mine(0, 8), Far: p.a.memory})
		p.b.expect(initiatorQueue, append(want, success(nd.RequestWrite, 3, 8))...)
		if p.b.sum(r, 0, 120_010) != p.a.sum(0, 0, 120_010) {
			t.Error("the data differ")
		}
	})
}

func TestReadLocalInvalidateRefused(t *testing.T) {
	t.Parallel()
	const flags = nd.ReadLocalInvalidate
	t.Run("a plain region stays as it is", func(t *testing.T) {
		onFast(t, setup{}, func(t *testing.T, p *pair) {
			before := p.b.sum(0, 0, 1000)
			p.badInitiator(order{Do: doRead, Parts: mine(0, 1000), Far: p.a.memory, Flags: flags}, nd.RequestRead)
			if p.b.sum(0, 0, 1000) != before {
				t.Error("bytes have moved")
			}
			p.b.must(order{Do: doDeregister})
		})
	})
	t.Run("a region with a window", func(t *testing.T) {
		onFast(t, setup{}, func(t *testing.T, p *pair) {
			r := p.b.fastRegion(1000)
			p.b.register(r, 0, 1000)
			p.b.must(order{Do: doBind, Region: r, Window: p.b.newWindow(), Len: 10, Flags: nd.AllowRead})
			p.b.expect(initiatorQueue, success(nd.RequestBind, 0, 0))
			p.badInitiator(order{Do: doRead, Parts: []part{{Region: r, Len: 8}}, Far: p.a.memory, Flags: flags}, nd.RequestRead)
		})
	})
	t.Run("a stale token", func(t *testing.T) {
		onFast(t, setup{}, func(t *testing.T, p *pair) {
			r := p.b.fastRegion(1000)
			p.b.register(r, 0, 1000)
			p.b.unregister(r)
			p.b.must(order{Do: doRead, Context: 1, Parts: []part{{Region: r, Len: 8}}, Far: p.a.memory, Flags: flags})
			p.b.expect(initiatorQueue, failure(nd.RequestRead, 1, nd.AccessViolation))
		})
	})
	t.Run("a read that is refused", func(t *testing.T) {
		onFast(t, setup{}, func(t *testing.T, p *pair) {
			r := p.b.fastRegion(1000)
			p.b.register(r, 0, 1000)
			far := p.a.memory
			far.Token ^= 1 << 28
			p.b.must(order{Do: doRead, Context: 1, Parts: []part{{Region: r, Len: 1000}}, Far: far, Flags: flags})
			p.b.must(order{Do: doSend, Context: 2})
			p.b.expect(initiatorQueue, failure(nd.RequestRead, 1, nd.AccessViolation), failure(nd.RequestSend, 2, nd.Canceled))
		})
	})
}
