package relayhook_test

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/internal/relayhook"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// poster posts requests of the relay in parts.
type poster struct {
	*rig
	private bool
	mr      nd.MemoryRegion
	window  nd.MemoryWindow
	to      nd.WindowDescriptor
}

// newPoster binds a window over the rank's memory.
func newPoster(t *testing.T, size int, private bool) *poster {
	t.Helper()
	p := &poster{rig: newRig(t, endpoint.Auto), private: private}
	p.mr = p.region(size, private)
	p.window = must(p.rank.adapter.CreateMemoryWindow(p.rank.ctx))
	if err := p.rank.ep.Bind(1, p.mr, p.window, p.mr.Bytes(), nd.AllowRead|nd.AllowWrite); err != nil {
		t.Fatal(err)
	}
	p.rankResult(nd.RequestBind, nd.Success)
	p.to = nd.DescriptorOf(p.mr)
	p.to.Token = p.window.RemoteToken()
	return p
}

func (p *poster) rankResult(kind nd.RequestType, status nd.Status) nd.Result {
	p.t.Helper()
	return result(p.t, p.rank, kind, status)
}

// result returns the next result of a node.
func result(t *testing.T, n *node, kind nd.RequestType, status nd.Status) nd.Result {
	t.Helper()
	var results [1]nd.Result
	if _, err := n.queue.Wait(n.ctx, results[:]); err != nil {
		t.Fatal(err)
	}
	if r := results[0]; r.RequestType != kind || r.Status != status {
		t.Fatalf("%+v, want %v with status %v: %v", r, kind, status, n.ep.Err())
	}
	return results[0]
}

// write begins a Write of total bytes to address at of the window, and passes its first bytes.
func (p *poster) write(at, total int, data []byte) {
	p.t.Helper()
	if err := p.hook.Begin(&relayhook.Order{Context: 7, Kind: relayhook.Write, Token: p.to.Token, Address: p.to.Address + uint64(at), Total: uint64(total)}, data); err != nil {
		p.t.Fatal(err)
	}
}

// settle waits until nothing is held: the rank has all bytes that were given, or can copy them itself.
func (p *poster) settle(given int) {
	p.t.Helper()
	proctest.Eventually(p.t, "the use of all bytes", func() bool {
		p.relay.queue.Poll(make([]nd.Result, 1))
		return p.hook.Used() == uint64(given)
	})
}

func forEachPlace(t *testing.T, test func(t *testing.T, private bool)) {
	for _, private := range []bool{false, true} {
		t.Run(fmt.Sprintf("private %t", private), func(t *testing.T) { test(t, private) })
	}
}

// Requests of all sizes, in parts of all sizes, move the bytes that they name and no others.
func TestParts(t *testing.T) {
	const chunk = 64 << 10
	forEachPlace(t, func(t *testing.T, private bool) {
		p := newPoster(t, 4<<20, private)
		mine, used := p.mr.Bytes(), 0
		for _, c := range []struct{ total, part int }{
			{0, 1}, {1, 1}, {8, 3}, {40, 40}, {41, 7}, {48, 1}, {49, 1}, {4096, 4095}, {chunk - 1, chunk}, {chunk, chunk}, {chunk + 1, chunk},
			{3 * chunk, chunk}, {200001, 7777}, {1<<20 + 3, chunk}, {4<<20 - 200, chunk}, {4<<20 - 200, 300 << 10},
		} {
			data := make([]byte, c.total)
			for i := range data {
				data[i] = byte(i*31 + i>>9 + c.total)
			}
			parts := func() {
				for at := min(c.part, c.total); at < c.total; at += c.part {
					p.hook.Give(data[at:min(at+c.part, c.total)])
				}
				used += c.total
			}
			check := func(what string) {
				t.Helper()
				if !bytes.Equal(mine[100:100+c.total], data) || mine[99] != 0 || mine[100+c.total] != 0 {
					t.Fatalf("a %s of %d bytes in parts of %d arrives damaged", what, c.total, c.part)
				}
			}
			clear(mine)
			p.write(100, c.total, data[:min(c.part, c.total)])
			parts()
			if r := result(t, p.relay, nd.RequestWrite, nd.Success); r.RequestContext != 7 || int(r.BytesTransferred) != c.total {
				t.Fatalf("%+v", r)
			}
			check("Write")

			if c.total > 0 {
				if err := p.hook.Begin(&relayhook.Order{Context: 8, Kind: relayhook.Read, Token: p.to.Token, Address: p.to.Address + 100, Total: uint64(c.total)}, nil); err != nil {
					t.Fatal(err)
				}
				have := make([]byte, c.total)
				for at := 0; at < c.total; {
					at += p.hook.Take(8, have[at:min(at+c.part, c.total)])
					p.rank.queue.Poll(make([]nd.Result, 1)) // it may have to copy
				}
				result(t, p.relay, nd.RequestRead, nd.Success)
				if !bytes.Equal(have, data) {
					t.Fatalf("a Read of %d bytes in parts of %d arrives damaged", c.total, c.part)
				}
			}

			clear(mine)
			if err := p.hook.Begin(&relayhook.Order{Context: 9, Kind: relayhook.Send, Total: uint64(c.total)}, data[:min(c.part, c.total)]); err != nil {
				t.Fatal(err)
			}
			if c.total%2 == 0 { // half of the messages wait for a Receive
				parts()
			}
			if err := p.rank.ep.Receive(5, nd.List(nd.SGEOf(p.mr, 100, c.total/3), nd.SGEOf(p.mr, 100+c.total/3, c.total-c.total/3))); err != nil {
				t.Fatal(err)
			}
			if c.total%2 == 1 {
				parts()
			}
			result(t, p.relay, nd.RequestSend, nd.Success)
			if r := p.rankResult(nd.RequestReceive, nd.Success); int(r.BytesTransferred) != c.total {
				t.Fatalf("%+v", r)
			}
			check("message")
			if n := p.hook.Used(); n != uint64(used) {
				t.Fatalf("%d bytes are used, %d were given", n, used)
			}
		}
	})
}

// Requests that were begun before earlier ones have ended run in the order of their posts.
func TestPartsOfSeveralRequests(t *testing.T) {
	forEachPlace(t, func(t *testing.T, private bool) {
		p := newPoster(t, 1<<20, private)
		clear(p.mr.Bytes())
		const n = 100_000
		data := bytes.Repeat([]byte{1}, n)
		if err := p.hook.Begin(&relayhook.Order{Context: 1, Kind: relayhook.Send, Total: n}, data); err != nil { // waits for a Receive
			t.Fatal(err)
		}
		p.write(n, n, data[:n/2])
		p.hook.Give(data[n/2:])
		if err := p.hook.Begin(&relayhook.Order{Context: 8, Kind: relayhook.Read, Token: p.to.Token, Address: p.to.Address, Total: 2 * n}, nil); err != nil {
			t.Fatal(err)
		}
		have := make([]byte, 2*n)
		if k := p.hook.Take(8, have); k != 0 || p.hook.Used() != 0 || p.mr.Bytes()[n] != 0 {
			t.Fatalf("a request overtakes another: %d bytes are read, %d used", k, p.hook.Used())
		}
		p.write(0, n, bytes.Repeat([]byte{2}, n)) // must not overtake the Read
		if err := p.rank.ep.Receive(5, nd.One(nd.SGEOf(p.mr, 0, n))); err != nil {
			t.Fatal(err)
		}
		result(t, p.relay, nd.RequestSend, nd.Success)
		result(t, p.relay, nd.RequestWrite, nd.Success)
		for at := 0; at < len(have); {
			if n := p.hook.Take(9, have); n != 0 {
				t.Fatalf("%d bytes of another Read", n)
			}
			at += p.hook.Take(8, have[at:min(at+5000, len(have))])
			p.rank.queue.Poll(nil)
		}
		if !bytes.Equal(have, append(data, data...)) {
			t.Error("a Read returns other bytes than the requests before it have written")
		}
		result(t, p.relay, nd.RequestRead, nd.Success)
		result(t, p.relay, nd.RequestWrite, nd.Success)
		if p.mr.Bytes()[0] != 2 || p.mr.Bytes()[n-1] != 2 {
			t.Error("the last Write has not arrived")
		}
	})
}

// A request that leaves its window fails before its first byte lands, whatever of it has arrived.
func TestRangeIsCheckedBeforeTheFirstPart(t *testing.T) {
	forEachPlace(t, func(t *testing.T, private bool) {
		p := newPoster(t, 100_000, private)
		want := bytes.Clone(p.mr.Bytes())
		p.write(100, 100_000, make([]byte, 1000))
		result(t, p.relay, nd.RequestWrite, nd.AccessViolation)
		if !bytes.Equal(p.mr.Bytes(), want) {
			t.Error("bytes of a Write have landed that leaves its window")
		}
	})
	t.Run("read", func(t *testing.T) {
		p := newPoster(t, 1<<20, false)
		if err := p.hook.Begin(&relayhook.Order{Context: 8, Kind: relayhook.Read, Token: p.to.Token, Address: p.to.Address + 1, Total: 1 << 20}, nil); err != nil {
			t.Fatal(err)
		}
		if n := p.hook.Take(8, make([]byte, 10)); n != 0 {
			t.Errorf("%d bytes are read", n)
		}
		result(t, p.relay, nd.RequestRead, nd.AccessViolation)
	})
}

// After an Invalidate between two parts no byte lands, and the request fails as on one host.
func TestInvalidateBetweenParts(t *testing.T) {
	forEachPlace(t, func(t *testing.T, private bool) {
		for _, rebind := range []bool{false, true} {
			p := newPoster(t, 1<<20, private)
			first := bytes.Repeat([]byte{1}, 70_000)
			p.write(0, 300_000, first)
			p.settle(len(first))
			last := (*atomic.Uint64)(unsafe.Pointer(&p.mr.Bytes()[len(first)-8])) // which the guard stores at the end, and atomically
			proctest.Eventually(t, "the first part", func() bool {
				p.rank.queue.Poll(nil)
				return byte(last.Load()) == 1
			})
			if err := p.rank.ep.Invalidate(2, p.window, 0); err != nil {
				t.Fatal(err)
			}
			p.rankResult(nd.RequestInvalidate, nd.Success)
			mine := p.mr.Bytes()
			for i := range mine {
				mine[i] = 0xee
			}
			if rebind {
				p.rebind()
			}
			p.hook.Give(first)
			p.hook.Give(first)
			result(t, p.relay, nd.RequestWrite, nd.AccessViolation)
			p.hook.Give(first) // too late
			if !bytes.Equal(mine, bytes.Repeat([]byte{0xee}, len(mine))) {
				t.Fatal("a byte has landed after the invalidation")
			}
		}
	})
	t.Run("read", func(t *testing.T) {
		p := newPoster(t, 1<<20, false)
		if err := p.hook.Begin(&relayhook.Order{Context: 8, Kind: relayhook.Read, Token: p.to.Token, Address: p.to.Address, Total: 200_000}, nil); err != nil {
			t.Fatal(err)
		}
		if n := p.hook.Take(8, make([]byte, 1000)); n != 1000 {
			t.Errorf("%d bytes are read", n)
		}
		if err := p.rank.ep.Invalidate(2, p.window, 0); err != nil {
			t.Fatal(err)
		}
		p.rankResult(nd.RequestInvalidate, nd.Success)
		if n := p.hook.Take(8, make([]byte, 1000)); n != 0 {
			t.Errorf("%d bytes are read after the invalidation", n)
		}
		result(t, p.relay, nd.RequestRead, nd.AccessViolation)
	})
}

// rebind binds the window until its token is the old one again.
func (p *poster) rebind() {
	p.t.Helper()
	for range 1 << 13 {
		if err := p.rank.ep.Bind(1, p.mr, p.window, p.mr.Bytes(), nd.AllowRead|nd.AllowWrite); err != nil {
			p.t.Fatal(err)
		}
		p.rankResult(nd.RequestBind, nd.Success)
		if p.window.RemoteToken() == p.to.Token {
			return
		}
		if err := p.rank.ep.Invalidate(2, p.window, 0); err != nil {
			p.t.Fatal(err)
		}
		p.rankResult(nd.RequestInvalidate, nd.Success)
	}
	p.t.Fatal("the token has not come again")
}

// An end of the connection between two parts cancels the request, and no byte lands later.
func TestEndBetweenParts(t *testing.T) {
	forEachPlace(t, func(t *testing.T, private bool) {
		for name, end := range map[string]func(p *poster) error{
			"the rank closes":      func(p *poster) error { return p.rank.ep.Close() },
			"the rank disconnects": func(p *poster) error { go func() { _ = p.rank.ep.Connector().Disconnect(p.rank.ctx) }(); return nil },
			"the rank leaves":      func(p *poster) error { return p.rank.provider.Close() },
			"the relay aborts":     func(p *poster) error { p.hook.Abort("the link has failed"); return nil },
		} {
			t.Run(name, func(t *testing.T) {
				p := newPoster(t, 1<<20, private)
				p.write(0, 300_000, make([]byte, 70_000))
				if err := end(p); err != nil {
					t.Fatal(err)
				}
				<-p.hook.Done()
				p.hook.Give(make([]byte, 70_000))
				if name == "the rank disconnects" {
					if err := p.hook.Connector().Disconnect(p.relay.ctx); err != nil {
						t.Error(err)
					}
				}
				result(t, p.relay, nd.RequestWrite, nd.Canceled)
				if err := p.hook.Begin(&relayhook.Order{Context: 9, Kind: relayhook.Write, Total: 10}, make([]byte, 10)); err == nil {
					result(t, p.relay, nd.RequestWrite, nd.Canceled)
				} else if nd.StatusOf(err) != nd.ConnectionInvalid {
					t.Error(err)
				}
			})
		}
	})
}

// A message that is too long fails before all of it has arrived, with the statuses of one host.
func TestLongMessageInParts(t *testing.T) {
	forEachPlace(t, func(t *testing.T, private bool) {
		p := newPoster(t, 1<<20, private)
		if err := errors.Join(p.rank.ep.Receive(5, nd.One(nd.SGEOf(p.mr, 0, 99_999))),
			p.hook.Begin(&relayhook.Order{Context: 9, Kind: relayhook.Send, Total: 100_000}, make([]byte, 1000))); err != nil {
			t.Fatal(err)
		}
		p.rankResult(nd.RequestReceive, nd.BufferOverflow)
		result(t, p.relay, nd.RequestSend, nd.RemoteError)
	})
}

// A short Write whose bytes are held in two ranges of the buffer completes.
func TestHeldBytesInTwoRanges(t *testing.T) {
	forEachPlace(t, func(t *testing.T, private bool) {
		p := newPoster(t, 8192, private)
		send := func(n int) {
			t.Helper()
			if err := p.hook.Begin(&relayhook.Order{Context: 1, Kind: relayhook.Send, Total: uint64(n)}, make([]byte, n)); err != nil {
				t.Fatal(err)
			}
		}
		receive := func() {
			t.Helper()
			if err := p.rank.ep.Receive(2, nd.One(nd.SGEOf(p.mr, 0, 4096))); err != nil {
				t.Fatal(err)
			}
			p.rankResult(nd.RequestReceive, nd.Success)
			result(t, p.relay, nd.RequestSend, nd.Success)
		}
		send(4000) // there is no Receive, so the bytes are held
		receive()
		send(60)
		data := bytes.Repeat([]byte{0xab}, 48) // of the buffer of 4,096 bytes, 36 are left before its end
		p.write(5000, len(data), data)
		receive()
		result(t, p.relay, nd.RequestWrite, nd.Success)
		if have := p.mr.Bytes()[5000:5048]; !bytes.Equal(have, data) {
			t.Errorf("the Write has stored %x", have)
		}
	})
}
