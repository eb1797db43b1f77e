package handshake

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// maxPending is how many handshakes run at a time. One more ends the oldest: an honest one takes milliseconds, so the
// oldest is that of a stranger.
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

// admit adds a connection to the pending ones. It ends the oldest of them if there are too many.
func (s *Listener) admit(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		conn.Close()
		return false
	}
	if len(s.pending) == maxPending {
		s.pending[0].Close()
		s.pending = append(s.pending[:0], s.pending[1:]...)
	}
	s.pending = append(s.pending, conn)
	return true
}

// withdraw removes a connection from the pending ones. It reports whether the connection was one of them.
func (s *Listener) withdraw(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range s.pending {
		if c == conn {
			s.pending = append(s.pending[:i], s.pending[i+1:]...)
			return !s.closed
		}
	}
	return false
}

func (s *Listener) shake(conn net.Conn) {
	session, err := Accept(conn, s.config)
	if isPending := s.withdraw(conn); err == nil && !isPending {
		err = fmt.Errorf("handshake with %v: ended in favour of newer ones", conn.RemoteAddr())
	}
	if err != nil {
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
