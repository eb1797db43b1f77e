package carry

import (
	"fmt"
	"testing"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/internal/forward"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/relay/internal/frame"
)

// pause stops the relay until the function that it returns is called.
func (h *host) pause() (resume func()) {
	paused, end := make(chan struct{}), make(chan struct{})
	h.relay.do(func() {
		close(paused)
		<-end
	})
	<-paused
	return func() { close(end) }
}

// A buffer that changes while its Send or Write is on its way to another host is found there. Only the first request fails so; later
// ones are canceled.
func TestChangedBufferBetweenHosts(t *testing.T) {
	sizes := map[forward.Kind]int{forward.Send: 44, forward.Write: 100}
	for _, s := range []settings{{check: true}, {check: true, private: true, executor: endpoint.Target}} {
		for _, size := range []int{44, 100, 70_000, 200_000} {
			for _, kind := range []forward.Kind{forward.Send, forward.Write} {
				if size < sizes[kind] || s.private && size < 200_000 { // the post copies the data, into a ring entry or a bounce buffer
					continue
				}
				t.Run(fmt.Sprintf("private %t, kind %d, %d bytes", s.private, kind, size), func(t *testing.T) {
					a, b := newHosts(t, s)
					w := connect(t, a, b, nd.EndpointConfig{})
					if err := w.y.Receive(9, w.b.sge(0, size)); err != nil {
						t.Fatal(err)
					}
					resume := a.pause()
					var err error
					if kind == forward.Send {
						err = w.x.Send(1, w.a.sge(0, size), 0)
					} else {
						err = w.x.Write(1, w.a.sge(0, size), w.far.Address, w.far.Token, 0)
					}
					if err != nil {
						t.Fatal(err)
					}
					w.a.memory.Bytes()[size-1]++
					resume()
					if r := w.a.result(t); r.Status != nd.DataChecksumError {
						t.Errorf("%+v, want %v: %v", r, nd.DataChecksumError, w.x.Err())
					}
					want := nd.Canceled
					if kind == forward.Send {
						want = nd.DataChecksumError
					}
					if r := w.b.result(t); r.Status != want {
						t.Errorf("receive: %+v, want %v: %v", r, want, w.y.Err())
					}
				})
			}
		}
	}
}

// Data of a Read that has changed between the relays is not stored.
func TestChangedDataBetweenHosts(t *testing.T) {
	const size = 100
	a, b := newHosts(t, settings{check: true})
	w := connect(t, a, b, nd.EndpointConfig{})
	resume := b.pause()
	defer resume()
	if err := w.x.Read(1, w.a.sge(0, size), w.far.Address, w.far.Token, 0); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, size)
	for i := range data {
		data[i] = 0xee
	}
	for sent := false; !sent; {
		if err := a.onLink(func(l *link) error {
			tunnel := l.tunnels[0]
			if len(tunnel.out.sent) == 0 {
				return nil
			}
			sent = true
			return tunnel.handle(&frame.Frame{Kind: frame.Data, Flags: frame.Hashed, Tunnel: tunnel.number, Request: 1, Total: size, Hash: 1, Payload: data})
		}); err != nil {
			t.Fatal(err)
		}
	}
	if r := w.a.result(t); r.Status != nd.DataChecksumError {
		t.Errorf("%+v, want %v: %v", r, nd.DataChecksumError, w.x.Err())
	}
	if have := w.a.memory.Bytes()[0]; have == 0xee {
		t.Error("the data is stored")
	}
}
