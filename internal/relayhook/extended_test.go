package relayhook_test

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/relayhook"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// The number of a Send or Write reaches the relay with each of its entries, and the flag that asks for an event.
func TestImmediateData(t *testing.T) {
	forEach(t, func(t *testing.T, r *rig, private bool) {
		mr := r.region(300<<10, private)
		for i, n := range []int{0, 8, 31, 32, 33, 40, 41, 48, 49, 64<<10 + 1, 200 << 10} {
			data, sge := uint32(1<<32-1-i), nd.List(nd.SGEOf(mr, 3, n/2), nd.SGEOf(mr, 3+n/2, n-n/2))
			for _, c := range []struct {
				kind relayhook.Kind
				post func() error
			}{
				{relayhook.Send, func() error { return r.rank.ep.SendImmediate(1, sge, data, nd.SendAndSolicitEvent) }},
				{relayhook.Write, func() error {
					return r.rank.ep.WriteImmediate(1, sge, r.far.base, r.far.token, data, nd.SendAndSolicitEvent)
				}},
			} {
				if err := c.post(); err != nil {
					t.Fatal(err)
				}
				for at := uint64(0); ; {
					q := r.next()
					isToken := q.Token == 0
					if c.kind == relayhook.Write {
						isToken = q.Token == r.far.token && q.Address == r.far.base+at
					}
					at += q.Length
					if q.Kind != c.kind || !q.HasImmediate || q.Immediate != data || !q.Solicited || q.Invalidate || q.Total != uint64(n) || q.Last != (at == uint64(n)) || !isToken {
						t.Fatalf("%d bytes: %+v", n, q)
					}
					if s := r.execute(q); s != nd.Success || !r.isIdle() {
						t.Fatalf("%d bytes: %v, or the request is complete too early", n, s)
					}
					r.hook.Complete(q.Number + 1)
					if q.Last {
						break
					}
				}
				if have := r.carry(); have.Status != nd.Success || int(have.BytesTransferred) != n {
					t.Fatalf("%d bytes: %+v", n, have)
				}
			}
		}
	})
}

// Atomics reach the relay, more at a time than the peer has room for results. Each gets its own answer.
func TestAtomics(t *testing.T) {
	forEach(t, func(t *testing.T, r *rig, private bool) {
		mr, ep := r.region(4096, private), r.rank.ep
		const n = 24
		for i := range n {
			to, old := r.far.base+uint64(8*i), nd.SGEOf(mr, 8*i, 8)
			var err error
			switch i % 3 {
			case 0:
				err = ep.FetchAndAdd(uint64(i), old, to, r.far.token, uint64(i), 0)
			case 1:
				err = ep.CompareAndSwap(uint64(i), old, to, r.far.token, uint64(i), ^uint64(i), 0)
			case 2:
				err = ep.Swap(uint64(i), old, to, r.far.token, uint64(i), 0)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for i := range uint64(n) {
			q := r.next()
			want := relayhook.Change{Type: nd.RequestFetchAndAdd + nd.RequestType(i%3), Operand: i}
			if i%3 == 1 {
				want.Swap = ^i
			}
			if q.Kind != relayhook.Atomic || q.Change != want || q.Address != r.far.base+8*i || q.Token != r.far.token || q.Length != 8 || q.Total != 8 || !q.First || !q.Last {
				t.Fatalf("atomic %d: %+v", i, q)
			}
			r.hook.AnswerAtomic(q, 1000+i)
			r.hook.Complete(q.Number + 1)
			if have := result(t, r.rank, want.Type, nd.Success); have.RequestContext != i || have.BytesTransferred != 8 {
				t.Fatalf("atomic %d: %+v", i, have)
			}
			if old := binary.NativeEndian.Uint64(mr.Bytes()[8*i:]); old != 1000+i {
				t.Errorf("atomic %d returns %d", i, old)
			}
		}
	})
}

// newAtomicPoster is newPoster with a window that allows atomics.
func newAtomicPoster(t *testing.T, private bool) *poster {
	t.Helper()
	p := newPoster(t, 300<<10, private)
	p.window = must(p.rank.adapter.CreateMemoryWindow(p.rank.ctx))
	if err := p.rank.ep.Bind(1, p.mr, p.window, p.mr.Bytes(), nd.AllowRead|nd.AllowWrite|nd.AllowAtomic); err != nil {
		t.Fatal(err)
	}
	p.rankResult(nd.RequestBind, nd.Success)
	p.to.Token = p.window.RemoteToken()
	return p
}

// The relay posts Sends and Writes with numbers, whose bytes arrive in parts: the Receive completes when all are there.
func TestImmediateDataInParts(t *testing.T) {
	forEachPlace(t, func(t *testing.T, private bool) {
		p := newPoster(t, 300<<10, private)
		for i, n := range []int{0, 1, 33, 40, 4096, 64<<10 + 1, 200 << 10} {
			data := bytes.Repeat([]byte{byte(i + 1)}, n)
			for _, kind := range []relayhook.Kind{relayhook.Send, relayhook.Write} {
				o := relayhook.Order{Context: 7, Kind: kind, Total: uint64(n), HasImmediate: true, Immediate: uint32(1<<31 + i)}
				mine, want := nd.RequestSend, nd.RequestReceiveImmediate
				if kind == relayhook.Write {
					o.Token, o.Address = p.to.Token, p.to.Address+100
					mine, want = nd.RequestWrite, nd.RequestReceiveWriteImmediate
				}
				clear(p.mr.Bytes())
				if err := p.hook.Begin(&o, data[:n/2]); err != nil {
					t.Fatal(err)
				}
				if i%2 == 0 { // half of them wait for a Receive
					p.hook.Give(data[n/2:])
					time.Sleep(time.Millisecond)
				}
				if err := p.rank.ep.Receive(5, nd.One(nd.SGEOf(p.mr, 100, n))); err != nil {
					t.Fatal(err)
				}
				if i%2 == 1 {
					p.hook.Give(data[n/2:])
				}
				have := p.rankResult(want, nd.Success)
				if number, ok := have.Immediate(); !ok || number != o.Immediate || int(have.BytesTransferred) != n {
					t.Errorf("%d bytes: %+v", n, have)
				}
				if !bytes.Equal(p.mr.Bytes()[100:100+n], data) {
					t.Errorf("kind %d: %d bytes arrive damaged", kind, n)
				}
				result(t, p.relay, mine, nd.Success)
			}
		}
	})
}

// The relay posts atomics, and has the old value when one has succeeded. One that is refused ends the connection.
func TestAtomicsOfTheRelay(t *testing.T) {
	forEachPlace(t, func(t *testing.T, private bool) {
		p := newAtomicPoster(t, private)
		binary.NativeEndian.PutUint64(p.mr.Bytes()[64:], 5)
		var olds [3]uint64
		post := func(i int, at uint64, c relayhook.Change) {
			t.Helper()
			if err := p.hook.Begin(&relayhook.Order{Context: uint64(i), Kind: relayhook.Atomic, Total: 8, Token: p.to.Token, Address: p.to.Address + at, Change: c, Old: &olds[i]}, nil); err != nil {
				t.Fatal(err)
			}
		}
		changes := []relayhook.Change{{Type: nd.RequestFetchAndAdd, Operand: 2}, {Type: nd.RequestCompareAndSwap, Operand: 7, Swap: 8}, {Type: nd.RequestSwap, Operand: 9}}
		for i, c := range changes {
			post(i, 64, c)
		}
		for i, c := range changes {
			p.rank.queue.Poll(nil) // it may have to execute
			if r := result(t, p.relay, c.Type, nd.Success); int(r.RequestContext) != i {
				t.Errorf("%+v", r)
			}
		}
		if want := [3]uint64{5, 7, 8}; olds != want {
			t.Errorf("the old values are %v, want %v", olds, want)
		}
		if have := binary.NativeEndian.Uint64(p.mr.Bytes()[64:]); have != 9 {
			t.Errorf("the memory has %d", have)
		}
		post(0, 4<<20, changes[0])
		result(t, p.relay, nd.RequestFetchAndAdd, nd.AccessViolation)
		if olds[0] != 5 {
			t.Errorf("an atomic that failed has an old value %d", olds[0])
		}
	})
}

// A request that waits for a Receive, or for the peer, ends with the connection.
func TestExtendedRequestsEnd(t *testing.T) {
	p := newAtomicPoster(t, false)
	var old uint64
	if err := p.hook.Begin(&relayhook.Order{Context: 1, Kind: relayhook.Write, Token: p.to.Token, Address: p.to.Address, HasImmediate: true}, nil); err != nil {
		t.Fatal(err)
	}
	if err := p.hook.Begin(&relayhook.Order{Context: 2, Kind: relayhook.Atomic, Total: 8, Token: p.to.Token, Address: p.to.Address,
		Change: relayhook.Change{Type: nd.RequestSwap, Operand: 9}, Old: &old}, nil); err != nil {
		t.Fatal(err)
	}
	if n := p.relay.queue.Poll(make([]nd.Result, 1)); n != 0 {
		t.Error("a Write with a number completes without a Receive")
	}
	p.hook.Abort("the link has failed")
	result(t, p.relay, nd.RequestWrite, nd.Canceled)
	result(t, p.relay, nd.RequestSwap, nd.Canceled)
	proctest.Eventually(t, "the end", func() bool { return p.rank.ep.Err() != nil })
}
