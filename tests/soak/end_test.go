package soak

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/softnd/softnd/nd"
)

// finish ends the connection in one of several ways. All requests must complete.
func (s *soakSession) finish() {
	ctx, cancel := context.WithTimeout(context.Background(), soakStalled)
	defer cancel()
	s.moved = time.Now()
	ways := s.IntN(4)
	if !s.ended() && ways == 0 {
		_ = s.ep.Connector().Disconnect(ctx) // fails if the peer ends the connection in another way
	}
	if !s.ended() && ways == 1 && s.inbox[0] != nil {
		s.fail(s.ep.Close()) // results may follow later
	} else {
		s.fail(s.ep.Flush(ctx))
	}
	for {
		n := s.cq.Poll(s.results[:])
		if s.take(n); n > 0 {
			continue
		}
		if s.receives == 0 && !s.owes() {
			break
		}
		if s.wait(); time.Since(s.moved) > soakStalled {
			s.fail(fmt.Errorf("%d requests and %d receives do not complete: %w", len(s.pending), s.receives, s.ep.Err()))
		}
	}
	for _, q := range s.pending { // silent ones, which have succeeded
		q.done(true)
	}
	s.pending = nil
	err := s.ep.Err()
	for _, status := range []nd.Status{nd.ConnectionDisconnected, nd.ConnectionAborted, nd.Canceled} {
		if errors.Is(err, status) {
			return
		}
	}
	if !errors.Is(err, nd.AccessViolation) || !s.trap.fired && !s.far.fire {
		s.fail(fmt.Errorf("the connection has ended: %w", err))
	}
}

// owes reports whether a request waits for a result.
func (s *soakSession) owes() bool {
	for _, q := range s.pending {
		if !q.silent {
			return true
		}
	}
	return false
}

// close closes all objects. Their memory must not change afterwards.
func (s *soakSession) close() {
	closed := func(c interface{ Close(context.Context) error }) {
		if err := c.Close(context.Background()); err != nil {
			s.fail(fmt.Errorf("close %T: %w", c, err))
		}
	}
	if s.ep != nil {
		s.fail(s.ep.Close())
	}
	s.checkTrap()
	closed(s.guardWindow)
	closed(s.window)
	if s.trap.region && s.trap.open {
		s.fail(s.guard.Deregister(context.Background()))
	}
	setAll(s.guard0, soakPoison) // no window and no token is left
	s.trap.sealed = true
	time.Sleep(100 * time.Microsecond)
	s.checkTrap()
	closed(s.fast)
	closed(s.sink)
	closed(s.sinkPages)
	if s.pages != nil {
		closed(s.pages)
	}
	for _, mr := range append(append(s.local[:], s.inbox[:]...), s.shared, s.guard) {
		if mr != nil {
			closed(mr)
		}
	}
	s.fail(s.cq.Close())
	for _, b := range s.own {
		setAll(b, soakPoison)
	}
	s.private = append(s.private, s.own...)
}
