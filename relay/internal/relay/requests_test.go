package relay

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd/nd"
)

var sizes = []int{0, 1, 8, 40, 48, 49, 4096, 16 << 10, maxPayload - 1, maxPayload, maxPayload + 1, 1 << 20, 1<<20 + 65537}

func pattern(b []byte, seed int) {
	for i := range b {
		b[i] = byte(i*7 + i>>8 + seed)
	}
}

// Messages of all sizes arrive in both directions, and complete with the statuses of one host.
func TestSend(t *testing.T) {
	forEach(t, func(t *testing.T, w *wire) {
		for _, d := range []struct {
			from, to *rank
			x, y     nd.Endpoint
		}{{w.a, w.b, w.x, w.y}, {w.b, w.a, w.y, w.x}} {
			for i, n := range sizes {
				pattern(d.from.memory.Bytes()[:n], i)
				clear(d.to.memory.Bytes())
				if err := d.y.Receive(uint64(i), d.to.sge(100, n)); err != nil {
					t.Fatal(err)
				}
				parts := nd.List(d.from.sge(0, n/3).First, d.from.sge(n/3, n-n/3).First)
				if err := d.x.Send(uint64(1000+i), parts, 0); err != nil {
					t.Fatal(err)
				}
				if r := d.to.result(t); r.Status != nd.Success || r.RequestContext != uint64(i) || int(r.BytesTransferred) != n || r.RequestType != nd.RequestReceive {
					t.Fatalf("%d bytes: receive %+v: %v", n, r, d.y.Err())
				}
				if r := d.from.result(t); r.Status != nd.Success || r.RequestContext != uint64(1000+i) || int(r.BytesTransferred) != n || r.RequestType != nd.RequestSend {
					t.Fatalf("%d bytes: send %+v: %v", n, r, d.x.Err())
				}
				if !bytes.Equal(d.from.memory.Bytes()[:n], d.to.memory.Bytes()[100:100+n]) || d.to.memory.Bytes()[100+n] != 0 {
					t.Fatalf("a message of %d bytes arrives damaged", n)
				}
			}
		}
	})
}

// Writes and Reads reach memory of the other host.
func TestWriteAndRead(t *testing.T) {
	forEach(t, func(t *testing.T, w *wire) {
		for _, d := range []struct {
			from, to *rank
			x        nd.Endpoint
			far      nd.WindowDescriptor
		}{{w.a, w.b, w.x, w.far}, {w.b, w.a, w.y, w.near}} {
			for i, n := range sizes {
				mine, theirs := d.from.memory.Bytes(), d.to.memory.Bytes()
				pattern(mine[:n], i)
				clear(theirs)
				to, err := d.far.Slice(100, n)
				if err != nil {
					t.Fatal(err)
				}
				if err := nd.WriteTo(d.x, 1, nd.List(d.from.sge(0, n/3).First, d.from.sge(n/3, n-n/3).First), to, 0); err != nil {
					t.Fatal(err)
				}
				if r := d.from.result(t); r.Status != nd.Success || r.RequestType != nd.RequestWrite || int(r.BytesTransferred) != n {
					t.Fatalf("%d bytes: %+v: %v", n, r, d.x.Err())
				}
				if !bytes.Equal(mine[:n], theirs[100:100+n]) || theirs[100+n] != 0 || theirs[99] != 0 {
					t.Fatalf("a Write of %d bytes arrives damaged", n)
				}
				pattern(theirs[100:100+n], i+1)
				if err := nd.ReadFrom(d.x, 2, nd.List(d.from.sge(0, n/3).First, d.from.sge(n/3, n-n/3).First), to, 0); err != nil {
					t.Fatal(err)
				}
				if r := d.from.result(t); r.Status != nd.Success || r.RequestType != nd.RequestRead || int(r.BytesTransferred) != n {
					t.Fatalf("%d bytes: %+v: %v", n, r, d.x.Err())
				}
				if !bytes.Equal(mine[:n], theirs[100:100+n]) {
					t.Fatalf("a Read of %d bytes arrives damaged", n)
				}
			}
		}
	})
}

// Requests that fail at the other host have the status of one host, and those before and after them, too.
func TestFailures(t *testing.T) {
	for name, c := range map[string]struct {
		post    func(w *wire) error
		want    nd.Status
		receive nd.Status // of a Receive at the other host; 0 = Canceled
		text    string
	}{
		"unknown token":  {func(w *wire) error { return w.x.Write(1, w.a.sge(0, 100), w.far.Address, 0x5_0000, 0) }, nd.AccessViolation, nd.Canceled, "token"},
		"beyond the end": {func(w *wire) error { return w.x.Write(1, w.a.sge(0, 100), w.far.Address+memorySize-99, w.far.Token, 0) }, nd.AccessViolation, nd.Canceled, ""},
		"read beyond":    {func(w *wire) error { return w.x.Read(1, w.a.sge(0, 100), w.far.Address+memorySize-99, w.far.Token, 0) }, nd.AccessViolation, nd.Canceled, ""},
		"long message":   {func(w *wire) error { return w.x.Send(1, w.a.sge(0, 101), 0) }, nd.RemoteError, nd.BufferOverflow, ""},
		"bad invalidate": {func(w *wire) error { return w.x.SendAndInvalidate(1, w.a.sge(0, 10), w.far.Token, 0) }, nd.RemoteError, nd.InvalidDeviceRequest, ""},
	} {
		t.Run(name, func(t *testing.T) {
			forEach(t, func(t *testing.T, w *wire) {
				if err := w.y.Receive(9, w.b.sge(0, 100)); err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(w.x.Write(0, w.a.sge(0, 8), w.far.Address, w.far.Token, 0), c.post(w), w.x.Write(2, w.a.sge(0, 8), w.far.Address, w.far.Token, 0)); err != nil {
					t.Fatal(err)
				}
				for i, want := range []nd.Status{nd.Success, c.want, nd.Canceled} {
					if r := w.a.result(t); r.Status != want || r.RequestContext != uint64(i) {
						t.Errorf("request %d: %+v, want %v: %v", i, r, want, w.x.Err())
					}
				}
				if err := w.x.Err(); nd.StatusOf(err) != c.want || !strings.Contains(err.Error(), c.text) {
					t.Errorf("error %v, want status %v and %q", err, c.want, c.text)
				}
				if r := w.b.result(t); r.Status != c.receive {
					t.Errorf("receive: %+v, want %v", r, c.receive)
				}
			})
		})
	}
}

// A Send waits for a Receive, and fails when the time-out of the relay has passed.
func TestNoReceive(t *testing.T) {
	a, b := newHosts(t, settings{timeout: 50 * time.Millisecond})
	w := connect(t, a, b, nd.EndpointConfig{})
	if err := w.x.Send(1, w.a.sge(0, 8), 0); err != nil {
		t.Fatal(err)
	}
	if r := w.a.result(t); r.Status != nd.IOTimeout {
		t.Errorf("%+v, want %v", r, nd.IOTimeout)
	}
}
