package handshake

import (
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// maxPending is how many handshakes run at a time. One more ends another: see displace.
const maxPending = 64

// Listener accepts control connections of other relays. It closes all connections whose handshake fails, and logs the
// first one only.
type Listener struct {
	listener net.Listener
	config   *Config
	accepted func(net.Conn, *Session)
	logf     func(format string, args ...any)
	refused  atomic.Int64
	logOnce  sync.Once
	running  sync.WaitGroup

	mu      sync.Mutex
	pending []net.Conn // in the order of their arrival
	closed  bool
}

// Listen serves the connections that l accepts. It calls accepted in a goroutine of its own for each handshake that
// has succeeded; the connection then belongs to the callee.
func Listen(l net.Listener, c *Config, accepted func(net.Conn, *Session), logf func(format string, args ...any)) *Listener {
	s := &Listener{listener: l, config: c, accepted: accepted, logf: logf}
	s.running.Go(s.serve)
	return s
}

// Refused returns how many connections were closed because of their handshake.
func (s *Listener) Refused() int64 { return s.refused.Load() }

// Close ends the listener and all handshakes, and blocks until they have ended.
func (s *Listener) Close() error {
	err := s.listener.Close()
	s.mu.Lock()
	s.closed = true
	for _, conn := range s.pending {
		conn.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
	return err
}

func (s *Listener) serve() {
	for {
		conn, err := s.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // such as too many open files
			s.report(err)
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if s.admit(conn) {
			s.running.Go(func() { s.shake(conn) })
		}
	}
}

// admit adds a connection to the pending ones. It ends one of them if there are too many.
func (s *Listener) admit(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		conn.Close()
		return false
	}
	s.pending = append(s.pending, conn)
	if len(s.pending) > maxPending {
		i := displace(s.pending)
		s.pending[i].Close()
		s.pending = slices.Delete(s.pending, i, i+1)
	}
	return true
}

// displace returns which of the pending handshakes has to end: the oldest of those from the address that has the most. An honest
// one takes milliseconds. So a stranger ends its own handshakes, unless it connects from the host of an honest relay or from
// many addresses.
func displace(pending []net.Conn) int {
	count := make(map[string]int)
	for _, conn := range pending {
		count[hostOf(conn)]++
	}
	worst := 0
	for i, conn := range pending {
		if count[hostOf(conn)] > count[hostOf(pending[worst])] {
			worst = i
		}
	}
	return worst
}

// hostOf returns the address of the other side without its port.
func hostOf(conn net.Conn) string {
	host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
	return host
}

// withdraw removes a connection from the pending ones. It reports whether the connection was one of them.
func (s *Listener) withdraw(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.pending, conn)
	if i < 0 {
		return false
	}
	s.pending = slices.Delete(s.pending, i, i+1)
	return !s.closed
}

func (s *Listener) shake(conn net.Conn) {
	// A relay that has proved the secret is never displaced: it takes its link for up when it has the last message.
	session, err := Accept(conn, s.config, func() bool { return s.withdraw(conn) })
	if err != nil {
		s.withdraw(conn)
		conn.Close()
		s.report(err)
		return
	}
	s.accepted(conn, session)
}

// report counts a failure, and logs the first.
func (s *Listener) report(err error) {
	s.refused.Add(1)
	s.logOnce.Do(func() { s.logf("%v; further refusals are only counted", err) })
}
