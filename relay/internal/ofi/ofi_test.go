package ofi

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// watchdog bounds every wait of the tests. No test measures a time.
const watchdog = 60 * time.Second

var providers = []string{"tcp", "tcp;ofi_rxm", "net"}

func open(t testing.TB, provider string, receives, sends int) *Endpoint {
	t.Helper()
	e, err := Open(Config{Provider: provider, Node: "127.0.0.1", Size: 4096, Receives: receives, Sends: sends, Peers: 2})
	if err != nil && provider == "net" {
		t.Skipf("libfabric 1.18 and newer have no provider net: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	if err := e.PostReceives(receives); err != nil {
		t.Fatal(err)
	}
	return e
}

// peerOf makes other known to e.
func peerOf(t testing.TB, e, other *Endpoint) Peer {
	t.Helper()
	address, err := other.Address()
	if err != nil {
		t.Fatal(err)
	}
	p, err := e.AddPeer(address)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// side sends numbered messages, and checks those that arrive.
type side struct {
	t              testing.TB
	e              *Endpoint
	peer           Peer
	sent, received uint64
	room           [16]Received
}

// lengthOf returns the length of a message: small ones around 64 bytes, a large one, and that of the buffer.
func lengthOf(number uint64) int { return []int{8, 64, 65, 1000, 4096}[number%5] }

func (s *side) send() bool {
	buffer, ok := s.e.TakeBuffer()
	if !ok {
		return false
	}
	n := lengthOf(s.sent)
	b := s.e.Bytes(buffer)[:n]
	for i := range b {
		b[i] = byte(s.sent)
	}
	binary.LittleEndian.PutUint64(b, s.sent)
	switch err := s.e.Send(s.peer, buffer, n); {
	case errors.Is(err, ErrBusy):
		s.e.FreeBuffer(buffer)
		return false
	case err != nil:
		s.t.Fatal(err)
	}
	s.sent++
	return true
}

func (s *side) poll() {
	n, failures, err := s.e.Poll(s.room[:])
	if err != nil || len(failures) > 0 {
		s.t.Fatal(failures, err)
	}
	for _, r := range s.room[:n] {
		want := bytes.Repeat([]byte{byte(s.received)}, lengthOf(s.received))
		binary.LittleEndian.PutUint64(want, s.received)
		if !bytes.Equal(r.Message, want) {
			s.t.Fatalf("message %d has %d bytes, and they are not those sent", s.received, len(r.Message))
		}
		s.received++
		if err := s.e.Repost(r.Buffer); err != nil {
			s.t.Fatal(err)
		}
	}
}

// Messages arrive in order, in both directions, with all lengths, and with as many on the way as there are buffers.
func TestMessages(t *testing.T) {
	for _, provider := range providers {
		t.Run(provider, func(t *testing.T) {
			const credits, total = 32, 5000
			a, b := open(t, provider, credits, 8), open(t, provider, credits, 8)
			x, y := &side{t: t, e: a, peer: peerOf(t, a, b)}, &side{t: t, e: b, peer: peerOf(t, b, a)}
			start := time.Now()
			for x.received < total || y.received < total {
				for _, p := range [][2]*side{{x, y}, {y, x}} {
					for p[0].sent < total && p[0].sent-p[1].received < credits && p[0].send() {
					}
					p[0].poll()
				}
				if time.Since(start) > watchdog {
					t.Fatalf("%d and %d of %d messages have arrived", x.received, y.received, total)
				}
			}
			for x.e.FreeBuffers() < 8 || y.e.FreeBuffers() < 8 {
				x.poll()
				y.poll()
				if time.Since(start) > watchdog {
					t.Fatal("a send buffer is never freed")
				}
			}
		})
	}
}

// A peer that was removed makes room for another one.
func TestRemovePeer(t *testing.T) {
	for _, provider := range providers {
		t.Run(provider, func(t *testing.T) {
			a, b, c := open(t, provider, 8, 8), open(t, provider, 8, 8), open(t, provider, 8, 8)
			first := peerOf(t, a, b)
			if err := a.RemovePeer(first); err != nil {
				t.Fatal(err)
			}
			x, y := &side{t: t, e: a, peer: peerOf(t, a, c)}, &side{t: t, e: c, peer: peerOf(t, c, a)}
			if x.peer.address != first.address || x.peer.number == first.number {
				t.Errorf("the second peer is %v, and the first one was %v: want the same address and another number", x.peer, first)
			}
			for start := time.Now(); y.received == 0; {
				if x.sent == 0 {
					x.send()
				}
				x.poll()
				y.poll()
				if time.Since(start) > watchdog {
					t.Fatal("no message arrives at the second peer")
				}
			}
		})
	}
}

// A receiver that sleeps on the descriptor whenever it may misses no message.
func TestSleep(t *testing.T) {
	for _, provider := range providers {
		t.Run(provider, func(t *testing.T) {
			a, b := open(t, provider, 8, 8), open(t, provider, 8, 8)
			x, y := &side{t: t, e: a, peer: peerOf(t, a, b)}, &side{t: t, e: b, peer: peerOf(t, b, a)}
			const total = 300
			done := make(chan struct{})
			go func() { // answers each message
				defer close(done)
				for y.received < total {
					y.sleep()
					before := y.received
					y.poll()
					for range y.received - before {
						for !y.send() {
							y.poll()
						}
					}
				}
				for y.e.FreeBuffers() < 8 {
					y.poll()
				}
			}()
			for x.received < total {
				if x.sent == x.received {
					for !x.send() {
						x.poll()
					}
				}
				x.sleep()
				x.poll()
			}
			<-done
		})
	}
}

// sleep waits until there may be something to poll.
func (s *side) sleep() {
	fd, err := s.e.WaitDescriptor()
	if err != nil {
		s.t.Error(err)
		return
	}
	for start := time.Now(); s.e.MaySleep(); {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 1000)
		if n > 0 || err != nil && err != unix.EINTR {
			return
		}
		if time.Since(start) > watchdog {
			s.t.Error("no message wakes the receiver")
			return
		}
	}
}

func TestErrors(t *testing.T) {
	if _, err := Open(Config{Provider: "no such provider", Size: 1, Receives: 1, Sends: 1}); err == nil {
		t.Error("a provider that does not exist was opened")
	}
	if _, err := Open(Config{Provider: "tcp", Node: "192.0.2.200", Size: 1, Receives: 1, Sends: 1}); err == nil {
		t.Error("an address of another host was opened")
	}
	if _, err := Open(Config{Provider: "tcp"}); err == nil {
		t.Error("an endpoint without buffers was opened")
	}
	if _, err := open(t, "tcp", 1, 1).AddPeer([]byte("short")); err == nil {
		t.Error("a damaged address was accepted")
	}
}

// If a peer ends, the failed Sends name their buffers and free them, and other peers are not disturbed.
func TestPeerEnds(t *testing.T) {
	for _, provider := range providers {
		t.Run(provider, func(t *testing.T) {
			a, b, c := open(t, provider, 8, 8), open(t, provider, 8, 8), open(t, provider, 8, 8)
			x, y := &side{t: t, e: a, peer: peerOf(t, a, c)}, &side{t: t, e: c, peer: peerOf(t, c, a)}
			gone, other := &side{t: t, e: a, peer: peerOf(t, a, b)}, &side{t: t, e: b}
			start := time.Now()
			wait := func(done func() bool) {
				t.Helper()
				for !done() {
					if time.Since(start) > watchdog {
						t.Fatalf("%d send buffers are free, %d messages have arrived", a.FreeBuffers(), y.received)
					}
				}
			}
			wait(func() bool {
				if gone.sent == 0 {
					gone.send()
				}
				gone.poll()
				other.poll()
				return other.received == 1 && a.FreeBuffers() == 8
			})
			b.Close()
			for _, size := range []int{64, 4096} { // without and with a completion
				failed, sent := 0, 0
				wait(func() bool {
					if buffer, ok := a.TakeBuffer(); ok {
						if sent++; failed > 0 {
							a.FreeBuffer(buffer)
						} else if err := a.Send(gone.peer, buffer, size); err != nil {
							a.FreeBuffer(buffer)
							if !errors.Is(err, ErrBusy) {
								failed++
							}
						}
					}
					_, failures, err := a.Poll(x.room[:])
					if err != nil {
						t.Error(err)
					}
					for _, e := range failures {
						if e.Buffer < 8 && (!e.HasPeer || e.Peer != gone.peer) {
							t.Errorf("an error without a send buffer and a peer: %v", e)
						}
						failed++
					}
					isOver := failed > 0 || provider == "net" && sent >= 8 // net reports no failure: the keepalive of a link notices it
					return isOver && a.FreeBuffers() == 8
				})
			}
			wait(func() bool {
				if x.sent-y.received < 8 && x.sent < 100 {
					x.send()
				}
				if _, failures, err := a.Poll(x.room[:]); err != nil || slices.ContainsFunc(failures, func(e *Error) bool { return !e.HasPeer || e.Peer != gone.peer }) {
					t.Fatal(failures, err)
				}
				y.poll()
				return y.received == 100
			})
		})
	}
}

// A receive that fails is no error of the endpoint: its buffer is posted again. A failed Send of the same Poll is reported as well.
func TestFailedReceive(t *testing.T) {
	a, b := open(t, "tcp", 1, 8), open(t, "tcp", 1, 1)
	x, y := &side{t: t, e: a, peer: peerOf(t, a, b)}, &side{t: t, e: b}
	start := time.Now()
	for y.received < 20 {
		if x.sent == y.received {
			x.send()
		}
		x.poll()
		n, failures, err := b.Poll(y.room[:])
		if n == 1 {
			y.received++
			sending, _ := b.TakeBuffer()
			b.events[0].buffer, b.events[0].error = 0, 125 // FI_ECANCELED of the only receive buffer
			b.events[1].buffer, b.events[1].error = 1, 107
			n, failures, err = b.take(y.room[:], 2)
			if n != 0 || err != nil || len(failures) != 2 || failures[0].Buffer != -1 || failures[0].Code != 125 || failures[1].Buffer != sending {
				t.Fatalf("%d messages, failures %v, %v", n, failures, err)
			}
		} else if len(failures) > 0 || err != nil {
			t.Fatal(failures, err)
		}
		if time.Since(start) > watchdog {
			t.Fatalf("%d of 20 messages have arrived", y.received)
		}
	}
}

// Addresses of provider shm are texts of different lengths. Messages pass between endpoints that have such ones. A peer of
// another provider is refused where the length shows it.
func TestAddressesOfDifferentLengths(t *testing.T) {
	var ends [2]*Endpoint
	var addresses [2][]byte
	for i, node := range []string{"127.0.0.1", "127.100.100.100"} {
		var err error
		if ends[i], err = Open(Config{Provider: "shm", Node: node, Size: 4096, Receives: 8, Sends: 8}); err != nil {
			t.Skipf("libfabric's provider shm does not open here: %v", err)
		}
		defer ends[i].Close()
		if addresses[i], err = ends[i].Address(); err != nil {
			t.Fatal(err)
		}
	}
	a, b := ends[0], ends[1]
	if len(addresses[0]) == len(addresses[1]) {
		t.Fatalf("addresses %q and %q have one length", addresses[0], addresses[1])
	}
	x, y := &side{t: t, e: a, peer: peerOf(t, a, b)}, &side{t: t, e: b, peer: peerOf(t, b, a)}
	for _, e := range ends {
		if err := e.PostReceives(8); err != nil {
			t.Fatal(err)
		}
	}
	for start := time.Now(); x.received < 20 || y.received < 20; {
		for s, other := range map[*side]*side{x: y, y: x} {
			if s.sent == other.received && s.sent < 20 {
				s.send()
			}
			s.poll()
		}
		if time.Since(start) > watchdog {
			t.Fatalf("%d and %d of 20 messages have arrived", x.received, y.received)
		}
	}
	for _, address := range [][]byte{nil, make([]byte, maxAddress)} {
		if _, err := a.AddPeer(address); err == nil {
			t.Errorf("shm takes an address of %d bytes", len(address))
		}
	}
	tcp := open(t, "tcp", 1, 1)
	for _, address := range [][]byte{nil, addresses[0][:3], addresses[1], make([]byte, maxAddress)} {
		if _, err := tcp.AddPeer(address); err == nil {
			t.Errorf("tcp takes an address of %d bytes", len(address))
		}
	}
}

// Garbage on the port of the endpoint does not disturb it.
func TestGarbageOnThePort(t *testing.T) {
	for _, provider := range providers {
		t.Run(provider, func(t *testing.T) {
			a, b := open(t, provider, 8, 8), open(t, provider, 8, 8)
			x, y := &side{t: t, e: a, peer: peerOf(t, a, b)}, &side{t: t, e: b, peer: peerOf(t, b, a)}
			address, err := b.Address()
			if err != nil {
				t.Fatal(err)
			}
			port := int(binary.BigEndian.Uint16(address[2:])) // a sockaddr_in
			for i := range 200 {
				conn, err := net.DialTCP("tcp", nil, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				_, _ = conn.Write(bytes.Repeat([]byte{byte(i)}, i*7))
			}
			start := time.Now()
			for y.received < 100 {
				if x.sent-y.received < 8 {
					x.send()
				}
				x.poll()
				y.poll()
				if time.Since(start) > watchdog {
					t.Fatalf("%d of 100 messages have arrived", y.received)
				}
			}
		})
	}
}
