package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/softnd/softnd/internal/meet/bootstrap"
)

const (
	probeLimit  = 5 * time.Second // to connect, as relays have, and again for the round trips
	probeRounds = 16
	maxUnproved = 64 // connections without a proof at a time; one more ends the oldest
)

// errOtherProcess is the error of probe if the process that accepts the connection is not the right one.
var errOtherProcess = errors.New("the process that answers there is not the ndinfo of that host")

// probeServer answers the probes of other hosts: a connection begins with a proof, and each byte after it is answered with
// this host's clock.
type probeServer struct {
	listener net.Listener
	proof    []byte // nil if there are no other hosts
	served   sync.WaitGroup
	mu       sync.Mutex
	conns    map[net.Conn]bool // nil after close
	unproved []net.Conn        // in the order of their arrival
}

// newProbeServer listens at an address of this host, with a port of the kernel's choice. hosts may be nil.
func newProbeServer(at netip.Addr, hosts *bootstrap.Hosts) (*probeServer, error) {
	l, err := net.Listen("tcp", netip.AddrPortFrom(at, 0).String())
	if err != nil {
		return nil, err
	}
	p := &probeServer{listener: l, conns: make(map[net.Conn]bool)}
	if hosts != nil {
		p.proof = probeProof(hosts.Secret, hosts.Number)
	}
	p.served.Go(p.accept)
	return p, nil
}

// probeProof proves that a process belongs to the job, and names the host that it wants.
func probeProof(secret []byte, host int) []byte {
	h := hmac.New(sha256.New, secret)
	fmt.Fprintf(h, "ndinfo probes host %d", host)
	return h.Sum(nil)
}

func (p *probeServer) address() string { return p.listener.Addr().String() }

func (p *probeServer) accept() {
	for {
		conn, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors: try again later
			time.Sleep(10 * time.Millisecond)
			continue
		}
		p.served.Go(func() { p.serve(conn) })
	}
}

func (p *probeServer) serve(conn net.Conn) {
	defer conn.Close()
	if !p.admit(conn) {
		return
	}
	defer p.forget(conn)
	if conn.SetDeadline(time.Now().Add(2*probeLimit)) != nil {
		return
	}
	got := make([]byte, sha256.Size)
	if _, err := io.ReadFull(conn, got); err != nil || p.proof == nil || !hmac.Equal(got, p.proof) {
		return
	}
	p.mu.Lock()
	p.hasProved(conn)
	p.mu.Unlock()
	for range probeRounds {
		if _, err := io.ReadFull(conn, got[:1]); err != nil {
			return
		}
		if _, err := conn.Write(binary.LittleEndian.AppendUint64(nil, uint64(time.Now().UnixNano()))); err != nil {
			return
		}
	}
	_, _ = io.Copy(io.Discard, conn) // the other side closes first
}

// admit adds a connection. It ends the oldest one without a proof if there are too many: a process that says nothing must not keep
// out the other hosts.
func (p *probeServer) admit(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil {
		return false
	}
	p.conns[conn] = true
	if len(p.unproved) == maxUnproved {
		p.unproved[0].Close()
		p.unproved = slices.Delete(p.unproved, 0, 1)
	}
	p.unproved = append(p.unproved, conn)
	return true
}

// hasProved removes a connection from those without a proof. The caller holds p.mu.
func (p *probeServer) hasProved(conn net.Conn) {
	if i := slices.Index(p.unproved, conn); i >= 0 {
		p.unproved = slices.Delete(p.unproved, i, i+1)
	}
}

func (p *probeServer) forget(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hasProved(conn)
	delete(p.conns, conn)
}

// close ends the service. p may be nil.
func (p *probeServer) close() {
	if p == nil {
		return
	}
	p.listener.Close()
	p.mu.Lock()
	for conn := range p.conns {
		conn.Close()
	}
	p.conns = nil
	p.mu.Unlock()
	p.served.Wait()
}

// measurement is the fastest of several round trips.
type measurement struct {
	roundTrip time.Duration
	ahead     time.Duration // of the other host's clock
}

// uncertainty is the largest error of ahead: the answer may have been written at any time of the round trip.
func (m measurement) uncertainty() time.Duration { return m.roundTrip / 2 }

// probe connects to the probeServer of a host, and compares the clocks.
func probe(ctx context.Context, to netip.AddrPort, secret []byte, host int) (m measurement, err error) {
	dialer := net.Dialer{Timeout: probeLimit}
	conn, err := dialer.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return m, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(probeLimit)); err != nil {
		return m, err
	}
	if _, err := conn.Write(probeProof(secret, host)); err != nil {
		return m, err
	}
	answer := make([]byte, 8)
	for round := range probeRounds {
		began := time.Now()
		if _, err := conn.Write([]byte{0}); err != nil {
			return m, otherProcess(to, err)
		}
		if _, err := io.ReadFull(conn, answer); err != nil {
			return m, otherProcess(to, err)
		}
		took := time.Since(began)
		if round == 0 || took < m.roundTrip {
			theirs := time.Unix(0, int64(binary.LittleEndian.Uint64(answer)))
			m = measurement{took, theirs.Sub(began.Round(0).Add(took / 2))}
		}
	}
	return m, nil
}

// otherProcess returns the error of a connection that the other side has ended, or did not answer.
func otherProcess(to netip.AddrPort, err error) error {
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return fmt.Errorf("%v: %w", to, err)
	}
	return fmt.Errorf("%v: %w: %w", to, errOtherProcess, err)
}
