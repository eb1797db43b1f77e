package relay

import (
	"errors"
	"fmt"
	"testing"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/internal/relayhook"
	"github.com/softnd/softnd/internal/testkit/proctest"
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
	const long = 3 * maxPayload // more than the bounce buffers of an endpoint hold
	sizes := map[relayhook.Kind]int{relayhook.Send: 44, relayhook.Write: 100}
	for _, s := range []settings{{check: true}, {check: true, private: true, executor: endpoint.Target}} {
		for _, size := range []int{44, 100, maxPayload + 5000, long} {
			for _, kind := range []relayhook.Kind{relayhook.Send, relayhook.Write} {
				if size < sizes[kind] || s.private && size < long { // the post copies the data, into a ring entry or a bounce buffer
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
					if kind == relayhook.Send {
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
					if kind == relayhook.Send {
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
	proctest.Eventually(t, "the Read is on its way", func() (sent bool) {
		must(t, a.onLink(func(l *link) error {
			tunnel := l.tunnels[0]
			if sent = len(tunnel.out.sent) > 0; !sent {
				return nil
			}
			return tunnel.handle(&frame.Frame{Kind: frame.Data, Flags: frame.Hashed, Tunnel: tunnel.number, Request: 1, Total: size, Hash: 1, Payload: data})
		}))
		return sent
	})
	if r := w.a.result(t); r.Status != nd.DataChecksumError {
		t.Errorf("%+v, want %v: %v", r, nd.DataChecksumError, w.x.Err())
	}
	if have := w.a.memory.Bytes()[0]; have == 0xee {
		t.Error("the data is stored")
	}
}

// Data of a Read before that of an earlier one ends the link: no correct relay sends it.
func TestDataOutOfOrder(t *testing.T) {
	const size = 100
	a, b := newHosts(t, settings{})
	w := connect(t, a, b, nd.EndpointConfig{})
	resume := b.pause()
	defer resume()
	for i := range 2 {
		must(t, w.x.Read(uint64(i), w.a.sge(i*size, size), w.far.Address, w.far.Token, 0))
	}
	var err error
	proctest.Eventually(t, "the Reads are on their way", func() (sent bool) {
		err = a.onLink(func(l *link) error {
			tunnel := l.tunnels[0]
			if sent = len(tunnel.out.sent) == 2; !sent {
				return nil
			}
			return tunnel.handle(&frame.Frame{Kind: frame.Data, Tunnel: tunnel.number, Request: 2, Total: size, Payload: make([]byte, size)})
		})
		return sent
	})
	if !errors.Is(err, errOrder) {
		t.Errorf("%v, want %v", err, errOrder)
	}
}
