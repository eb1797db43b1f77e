package relay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/internal/relayhook"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/relay/internal/frame"
)

// direction is one of a wire.
type direction struct {
	from, to *rank
	x, y     nd.Endpoint
	far      nd.WindowDescriptor // of the memory of to
}

func (w *wire) directions() []direction {
	return []direction{{w.a, w.b, w.x, w.y, w.far}, {w.b, w.a, w.y, w.x, w.near}}
}

// Sends and Writes of all sizes carry their numbers in both directions, and a Receive completes when the bytes are there.
func TestImmediateData(t *testing.T) {
	forEach(t, func(t *testing.T, w *wire) {
		for _, d := range w.directions() {
			d.immediateData(t, func(context uint64, sge nd.SGL) error { return d.y.Receive(context, sge) })
		}
	})
}

func (d direction) immediateData(t *testing.T, receive func(uint64, nd.SGL) error) {
	t.Helper()
	for i, n := range []int{0, 8, 31, 33, maxPayload + 1, (2*framesATurn + 1) * maxPayload} {
		mine, theirs, data := d.from.memory.Bytes(), d.to.memory.Bytes(), uint32(1<<32-1-i)
		pattern(mine[:n], i)
		for _, kind := range []nd.RequestType{nd.RequestSend, nd.RequestWrite} {
			clear(theirs)
			sge := nd.List(d.from.sge(0, n/3).First, d.from.sge(n/3, n-n/3).First)
			var err error
			want := nd.RequestReceiveImmediate
			if kind == nd.RequestSend {
				err = errors.Join(receive(5, d.to.sge(100, n)), d.x.SendImmediate(6, sge, data, 0))
			} else { // the Receive comes late, and is too small for a message
				want = nd.RequestReceiveWriteImmediate
				err = errors.Join(d.x.WriteImmediate(6, sge, d.far.Address+100, d.far.Token, data, nd.SendAndSolicitEvent), receive(5, nd.SGL{}))
			}
			must(t, err)
			r := d.to.result(t)
			if number, ok := r.Immediate(); r.Status != nd.Success || r.RequestType != want || r.RequestContext != 5 || int(r.BytesTransferred) != n || !ok || number != data {
				t.Fatalf("%v of %d bytes: %+v: %v", kind, n, r, d.y.Err())
			}
			if !bytes.Equal(mine[:n], theirs[100:100+n]) || theirs[99] != 0 || theirs[100+n] != 0 {
				t.Fatalf("a %v of %d bytes arrives damaged", kind, n)
			}
			if r := d.from.result(t); r.Status != nd.Success || r.RequestType != kind || r.RequestContext != 6 || int(r.BytesTransferred) != n {
				t.Fatalf("%v of %d bytes: %+v: %v", kind, n, r, d.x.Err())
			}
		}
	}
}

// The same for an endpoint that takes its Receives from a shared queue.
func TestImmediateDataSharedQueue(t *testing.T) {
	for _, executor := range []endpoint.Executor{endpoint.Auto, endpoint.Target} {
		t.Run(fmt.Sprintf("executor %d", executor), func(t *testing.T) {
			a, b := newHosts(t, settings{executor: executor})
			srq, err := b.rank.adapter.CreateSharedReceiveQueue(b.rank.ctx, nd.SharedReceiveQueueConfig{Depth: 16})
			must(t, err)
			w := connect(t, a, b, nd.EndpointConfig{SharedReceive: srq})
			w.directions()[0].immediateData(t, srq.Receive)
		})
	}
}

// Atomics of both hosts on one word are atomic, and run in order with other requests.
func TestAtomics(t *testing.T) {
	forEach(t, func(t *testing.T, w *wire) {
		for _, d := range w.directions() {
			const n = 40
			theirs := d.to.memory.Bytes()
			clear(theirs[:64])
			binary.NativeEndian.PutUint64(d.from.memory.Bytes()[1<<20:], 11)
			for i := range n {
				must(t, d.x.FetchAndAdd(uint64(i), d.from.sge(8*i, 8).First, d.far.Address+8, d.far.Token, 3, 0))
			}
			must(t, d.x.CompareAndSwap(n, d.from.sge(8*n, 8).First, d.far.Address+8, d.far.Token, 3*n, 1<<63+1, 0))
			must(t, d.x.CompareAndSwap(n+1, d.from.sge(8*n+8, 8).First, d.far.Address+8, d.far.Token, 3*n, 5, 0)) // finds another number
			must(t, d.x.Read(n+2, d.from.sge(8*n+16, 8), d.far.Address+8, d.far.Token, 0))
			must(t, d.x.Swap(n+3, d.from.sge(8*n+24, 8).First, d.far.Address+8, d.far.Token, 7, 0))
			must(t, d.x.Write(n+4, d.from.sge(1<<20, 8), d.far.Address+8, d.far.Token, 0))
			must(t, d.x.Swap(n+5, d.from.sge(8*n+32, 8).First, d.far.Address+8, d.far.Token, 9, 0))
			for i := range uint64(n + 6) {
				want := nd.RequestFetchAndAdd
				if i >= n {
					want = []nd.RequestType{nd.RequestCompareAndSwap, nd.RequestCompareAndSwap, nd.RequestRead, nd.RequestSwap, nd.RequestWrite, nd.RequestSwap}[i-n]
				}
				d.to.queue.Poll(nil) // it may have to execute
				if r := d.from.result(t); r.Status != nd.Success || r.RequestContext != i || r.BytesTransferred != 8 || r.RequestType != want {
					t.Fatalf("request %d: %+v: %v", i, r, d.x.Err())
				}
			}
			old := func(i int) uint64 { return binary.NativeEndian.Uint64(d.from.memory.Bytes()[8*i:]) }
			for i := range n {
				if old(i) != uint64(3*i) {
					t.Errorf("addition %d finds %d", i, old(i))
				}
			}
			if have := [5]uint64{old(n), old(n + 1), old(n + 2), old(n + 3), old(n + 4)}; have != [5]uint64{3 * n, 1<<63 + 1, 1<<63 + 1, 1<<63 + 1, 11} {
				t.Errorf("the other requests find %#x", have)
			}
			if have := binary.NativeEndian.Uint64(theirs[8:]); have != 9 {
				t.Errorf("the last value is %d", have)
			}
		}
	})
}

// Requests that fail at the other host have the status of one host.
func TestExtendedFailures(t *testing.T) {
	for name, c := range map[string]struct {
		post func(w *wire) error
		want nd.Status
	}{
		"atomic, unknown token": {func(w *wire) error { return w.x.FetchAndAdd(1, w.a.sge(8, 8).First, w.far.Address, 0x5_0000, 1, 0) }, nd.AccessViolation},
		"atomic beyond the end": {func(w *wire) error {
			return w.x.Swap(1, w.a.sge(8, 8).First, w.far.Address+memorySize, w.far.Token, 1, 0)
		}, nd.AccessViolation},
		"write beyond the end": {func(w *wire) error {
			return w.x.WriteImmediate(1, w.a.sge(0, 100), w.far.Address+memorySize-99, w.far.Token, 1, 0)
		}, nd.AccessViolation},
		"long message": {func(w *wire) error { return w.x.SendImmediate(1, w.a.sge(0, 101), 1, 0) }, nd.RemoteError},
	} {
		t.Run(name, func(t *testing.T) {
			forEach(t, func(t *testing.T, w *wire) {
				must(t, w.y.Receive(9, w.b.sge(0, 100)))
				must(t, errors.Join(w.x.FetchAndAdd(0, w.a.sge(0, 8).First, w.far.Address+1<<20, w.far.Token, 1, 0), c.post(w), w.x.Swap(2, w.a.sge(8, 8).First, w.far.Address+1<<20, w.far.Token, 9, 0)))
				for i, want := range []nd.Status{nd.Success, c.want, nd.Canceled} {
					w.b.queue.Poll(nil)
					if r := w.a.result(t); r.Status != want || r.RequestContext != uint64(i) {
						t.Errorf("request %d: %+v, want %v: %v", i, r, want, w.x.Err())
					}
				}
				if have := binary.NativeEndian.Uint64(w.b.memory.Bytes()[1<<20:]); have != 1 {
					t.Errorf("the memory has %d", have)
				}
			})
		})
	}
}

// Frames of requests and answers that no correct relay sends end the link.
func TestExtendedLies(t *testing.T) {
	atomic := (&frame.Change{Operation: frame.Swap}).Append(nil)
	for name, c := range map[string]struct {
		frames []frame.Frame
		want   error
	}{
		"unknown operation":  {[]frame.Frame{{Kind: frame.Atomic, Request: 1, Payload: append([]byte{4}, atomic[1:]...)}}, frame.ErrField},
		"short Atomic":       {[]frame.Frame{{Kind: frame.Atomic, Request: 1, Payload: atomic[1:]}}, frame.ErrLength},
		"number out of turn": {[]frame.Frame{{Kind: frame.Atomic, Request: 2, Payload: atomic}}, errOrder},
		"Atomic in a message": {[]frame.Frame{{Kind: frame.Send, Request: 1, Total: 8, Payload: atomic[:1]},
			{Kind: frame.Atomic, Request: 1, Payload: atomic}}, errOrder},
		"another number": {[]frame.Frame{{Kind: frame.Send, Request: 1, Flags: frame.Immediate, Immediate: 1, Total: 8, Payload: atomic[:1]},
			{Kind: frame.Send, Request: 1, Flags: frame.Immediate, Immediate: 2, Total: 8, Offset: 1, Payload: atomic[:1]}}, errOrder},
		"answer without a request": {[]frame.Frame{{Kind: frame.Data, Request: 1, Total: 8, Payload: atomic[:8]}}, errOrder},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newHosts(t, settings{})
			connect(t, a, b, nd.EndpointConfig{})
			var err error
			must(t, b.onLink(func(l *link) error {
				for i := range c.frames {
					c.frames[i].Tunnel = l.tunnels[0].number
					if err = l.tunnels[0].handle(&c.frames[i]); err != nil {
						break
					}
				}
				return nil
			}))
			if !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

// An answer to an Atomic comes once, and whole.
func TestLiesAboutOldValues(t *testing.T) {
	for name, frames := range map[string][]frame.Frame{
		"in parts":      {{Total: 8, Payload: make([]byte, 4)}},
		"of other size": {{Total: 16, Payload: make([]byte, 16)}},
		"with a hash":   {{Total: 8, Payload: make([]byte, 8), Flags: frame.Hashed}},
		"twice":         {{Total: 8, Payload: make([]byte, 8)}, {Total: 8, Payload: make([]byte, 8)}},
		"not at all":    {{Kind: frame.Done}},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newHosts(t, settings{})
			w := connect(t, a, b, nd.EndpointConfig{})
			resume := b.pause()
			defer resume()
			must(t, w.x.Swap(1, w.a.sge(0, 8).First, w.far.Address, w.far.Token, 1, 0))
			var err error
			proctest.Eventually(t, "the Atomic is on its way", func() (sent bool) {
				must(t, a.onLink(func(l *link) error {
					tunnel := l.tunnels[0]
					if sent = len(tunnel.out.sent) > 0; !sent {
						return nil
					}
					for _, f := range frames {
						f.Tunnel, f.Request = tunnel.number, 1
						if f.Kind == 0 {
							f.Kind = frame.Data
						}
						if err = tunnel.handle(&f); err != nil {
							break
						}
					}
					return nil
				}))
				return sent
			})
			if !errors.Is(err, errOrder) {
				t.Errorf("%v, want %v", err, errOrder)
			}
		})
	}
}

// A local process whose entries contradict each other loses its connection.
func TestExtendedEntriesRefused(t *testing.T) {
	first := relayhook.Request{Kind: relayhook.Write, First: true, Length: 8, Total: 16, HasImmediate: true, Immediate: 5, Solicited: true}
	for name, change := range map[string]func(e *relayhook.Request){
		"another number": func(e *relayhook.Request) { e.Immediate = 6 },
		"no number":      func(e *relayhook.Request) { e.HasImmediate, e.Solicited = false, false },
		"an atomic":      func(e *relayhook.Request) { e.Kind = relayhook.Atomic },
		"a right part":   func(*relayhook.Request) {},
	} {
		tunnel := &tunnel{state: open, stop: func() {}}
		tunnel.out.entry = first
		if !tunnel.checkEntry() {
			t.Fatal("the first entry is refused")
		}
		tunnel.out.carried, tunnel.out.entry.First, tunnel.out.entry.Last = 8, false, true
		change(&tunnel.out.entry)
		if carries := tunnel.checkEntry(); carries != (name == "a right part") || carries == tunnel.hasEnded() {
			t.Errorf("%s: carried %t", name, carries)
		}
	}
}
