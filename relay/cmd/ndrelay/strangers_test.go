package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/relay/internal/handshake"
	"github.com/softnd/softnd/shm"
)

// strangers are connections of processes that are no part of the job. They stay open until the test ends.
type strangers struct {
	mu    sync.Mutex
	conns []net.Conn
	count int
}

// connect connects a stranger of one of four kinds. It reports whether the port was open.
func (s *strangers) connect(to string) bool {
	conn, err := net.Dial("tcp", to)
	if err != nil {
		return false
	}
	s.mu.Lock()
	kind := s.count % 4
	s.count++
	s.conns = append(s.conns, conn)
	s.mu.Unlock()
	switch kind {
	case 0: // says nothing
	case 1:
		_, _ = conn.Write(bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 30))
	case 2: // begins as a relay does, and says no more
		_, _ = conn.Write(greeting(10))
	case 3: // knows all but the secret
		_, _ = conn.Write(append(greeting(64), make([]byte, 162)...))
	}
	return true
}

// number returns the number of strangers that have connected.
func (s *strangers) number() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// greeting returns the first n bytes of the greeting of a relay of host 1 to that of host 0. Package handshake has its fields.
func greeting(n int) []byte {
	job := sha256.Sum256([]byte("abc"))
	b := append([]byte("SNDRELAY"), handshake.Version, 0, 1, 0, 0, 0, 0, 0)
	b = append(b, job[:16]...)
	return append(b, make([]byte, 32)...)[:n]
}

// close closes the connections, half of them with a reset because of unread bytes.
func (s *strangers) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range s.conns {
		conn.Close()
	}
	s.conns = nil
}

// flood connects strangers from several goroutines until stop is called.
func (s *strangers) flood(to string) (stop func()) {
	var ended atomic.Bool
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			for i := 0; i < 150 && !ended.Load(); i++ {
				s.connect(to)
			}
		})
	}
	return func() {
		ended.Store(true)
		running.Wait()
	}
}

// descriptors returns the number of open files of a process.
func descriptors(t *testing.T, p *proctest.Process) int {
	t.Helper()
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// residentKiB returns the most memory that a process has had.
func residentKiB(t *testing.T, p *proctest.Process) (n int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\nVmHWM:")
	if _, err := fmt.Sscan(rest, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// listens returns the addresses at which a process listens over IPv4.
func listens(t *testing.T, p *proctest.Process) (all []string) {
	t.Helper()
	sockets := make(map[string]bool)
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "socket:[") {
			sockets[strings.Trim(to, "socket:[]")] = true
		}
	}
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		const listening = "0A"
		if f := strings.Fields(line); len(f) > 9 && f[3] == listening && sockets[f[9]] {
			port, err := strconv.ParseUint(f[1][strings.IndexByte(f[1], ':')+1:], 16, 16)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, fmt.Sprintf("127.0.0.1:%d", port))
		}
	}
	return all
}

// A thousand strangers connect to the ports of the relays before, during and after the links come up. The job starts and
// works. Each relay prints one line at most. It has 64 connections of strangers at a time at most, and keeps none.
func TestManyStrangers(t *testing.T) {
	const (
		mostPending = 64       // handshakes of a relay at a time, as in docs/security.md
		spare       = 16       // descriptors for the links, and for connections that are just accepted or closed
		mostMemory  = 32 << 10 // KiB beyond the memory of a relay without strangers
	)
	a, b := newHost(t, 0), newHost(t, 1)
	hosts := []*host{a, b}
	var s strangers
	defer s.close()
	var before, memory [2]int
	for i, h := range hosts {
		before[i], memory[i] = descriptors(t, h.relay), residentKiB(t, h.relay)
	}
	bounded := func(when string) {
		t.Helper()
		for i, h := range hosts {
			if n := descriptors(t, h.relay); n > before[i]+mostPending+spare {
				t.Errorf("%s: the relay of host %d has %d descriptors, and had %d", when, i, n, before[i])
			}
			if n := residentKiB(t, h.relay); n > memory[i]+mostMemory && !testing.Short() { // the race detector, whose run is short, needs memory of its own
				t.Errorf("%s: the relay of host %d had %d KiB of memory, before %d", when, i, n, memory[i])
			}
		}
	}
	for range 200 {
		for _, h := range hosts {
			if !s.connect(h.control) {
				t.Fatal("the port of a relay that has no links is closed")
			}
		}
	}
	bounded("before the links")

	stop := s.flood(a.control)
	proctest.Eventually(t, "there are 600 strangers before the links", func() bool { return s.number() >= 600 }) // the links close the ports
	for _, h := range hosts {
		h.relay.Say("%s", peersLine(a.control, b.control))
	}
	for _, h := range hosts {
		h.relay.Expect(`{"ready":true}`)
	}
	stop()
	x, y := a.dial(t, b), b.dial(t, a)
	bounded("during the links")

	for _, h := range hosts {
		proctest.Eventually(t, "the port for control connections is closed after the links", func() bool { return !s.connect(h.control) })
		ports := listens(t, h.relay)
		if len(ports) == 0 {
			t.Error("libfabric has no port")
		}
		for _, port := range ports { // those of libfabric
			for range 100 {
				garbage, err := net.Dial("tcp", port)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = garbage.Write(bytes.Repeat([]byte{0xa5}, 1000))
				garbage.Close()
			}
		}
	}
	for i := range 100 {
		for _, c := range []*connection{x, y} {
			if err := c.ping(byte(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("%d strangers at the ports of handshakes", s.number())
	s.close()
	proctest.Eventually(t, "the relays keep no connection of a stranger", func() bool {
		for i, h := range hosts {
			if descriptors(t, h.relay) > before[i]+spare {
				return false
			}
		}
		return true
	})
	bounded("at the end")
	for _, h := range hosts {
		h.end(t)
		if text := h.relay.Err.String(); strings.Count(text, "\n") > 1 {
			t.Errorf("a relay has printed %q", text)
		}
	}
}

// A handshake that ends in the middle, as that of a relay does that many strangers displace, is repeated.
func TestHandshakeIsRepeated(t *testing.T) {
	a, b := newHost(t, 0), newHost(t, 1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for attempt := 0; ; attempt++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			switch attempt {
			case 0: // ends without an answer
			case 1: // ends after the greeting
				_, _ = io.ReadFull(conn, make([]byte, 64))
			case 2: // ends with a reset
				_ = conn.(*net.TCPConn).SetLinger(0)
			default:
				to, err := net.Dial("tcp", a.control)
				if err != nil {
					return
				}
				go func() {
					_, _ = io.Copy(to, conn)
					to.Close()
				}()
				go func() {
					_, _ = io.Copy(conn, to)
					conn.Close()
				}()
				continue
			}
			conn.Close()
		}
	}()
	a.relay.Say("%s", peersLine(a.control, b.control))
	b.relay.Say("%s", peersLine(l.Addr().String(), b.control))
	for _, h := range []*host{a, b} {
		h.relay.Expect(`{"ready":true}`)
	}
	b.dial(t, a)
	for _, h := range []*host{a, b} {
		h.end(t)
		if text := h.relay.Err.String(); text != "" {
			t.Errorf("a relay has printed %q", text)
		}
	}
}

// Relays of different jobs or secrets refuse each other, and a relay that has a stranger in place of another one ends.
func TestStrangers(t *testing.T) {
	for name, c := range map[string]struct {
		change map[string]any
		want   string
	}{
		"secret": {map[string]any{"secret": strings.Repeat("A", 42) + "E="}, "secret"},
		"job":    {map[string]any{"job": "abd"}, "handshake with the relay of host 0"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newHost(t, 0)
			arena, err := shm.Create(shm.Config{Host: 1, Size: arenaSize})
			if err != nil {
				t.Fatal(err)
			}
			defer arena.Close()
			a.relay.Say("%s", peersLine(a.control, "127.0.0.1:1"))
			fails(t, arena, c.want, configLine(1, "127.0.0.1", c.change), peersLine(a.control, "127.0.0.1:1"))
			failed(t, a.relay, inputEnded) // it still waits for the right one
			if text := a.relay.Err.String(); !strings.HasPrefix(text, "softnd: relay of host 0: handshake with ") || strings.Count(text, "\n") != 1 {
				t.Errorf("it says %q, want one line about the stranger", text)
			}
		})
	}
	t.Run("no relay", func(t *testing.T) {
		arena, err := shm.Create(shm.Config{Host: 1, Size: arenaSize})
		if err != nil {
			t.Fatal(err)
		}
		defer arena.Close()
		fails(t, arena, "connect to the relay of host 0", configLine(1, "127.0.0.1", nil), peersLine("127.0.0.1:1", "127.0.0.1:1"))
	})
}

// control returns the address in the first answer of a relay.
func control(t *testing.T, p *proctest.Process) string {
	t.Helper()
	line := p.Hear()
	address, ok := strings.CutPrefix(line, `{"control":"`)
	address, _, _ = strings.Cut(address, `"`)
	if _, err := netip.ParseAddrPort(address); !ok || err != nil {
		t.Fatalf("%q, want an address\n%s", line, p.Err)
	}
	return address
}
