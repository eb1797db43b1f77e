package traffic

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/softnd/softnd/nd"
)

// finish ends the connection in one of several ways. All requests must complete.
func (s *session) finish() {
	ctx, cancel := context.WithTimeout(context.Background(), stalled)
	defer cancel()
	s.moved = time.Now()
	ways, isOwn := s.IntN(4), !s.ended()
	if !s.ended() && ways == 0 {
		s.disconnect(ctx)
	}
	resultsFollow := !s.ended() && ways == 1 && s.inbox[0] != nil
	if resultsFollow {
		s.fail(s.ep.Close()) // while the peer copies, requests and receives have no results yet
	} else {
		s.fail(s.ep.Flush(ctx))
	}
	for {
		n := s.cq.Poll(s.results[:])
		if s.take(n); n > 0 {
			continue
		}
		if (s.receives == 0 || s.srq != nil) && !s.owes() {
			break
		}
		if s.wait(); time.Since(s.moved) > stalled {
			s.fail(fmt.Errorf("%d requests and %d receives do not complete: %w", len(s.pending), s.receives, s.ep.Err()))
		}
	}
	for _, q := range s.pending { // silent ones: they have succeeded if all results that follow have been taken
		q.done(!resultsFollow || s.srq == nil)
	}
	s.pending = nil
	s.End = s.ep.Err()
	switch status := nd.StatusOf(s.End); {
	case status == nd.ConnectionAborted || status == nd.Canceled: // the peer may have died
	case status == nd.ConnectionDisconnected, s.isExpected(s.End):
		s.OwnEnd = s.End
	default:
		s.fail(fmt.Errorf("the connection has ended: %w", s.End))
	}
	if isOwn {
		s.End = nil
	}
}

// isExpected reports whether err is that of a request or of a receive that may fail.
func (s *session) isExpected(err error) bool {
	switch nd.StatusOf(err) {
	case nd.AccessViolation:
		return s.trap.fired || s.far.fire || s.Errs && strings.Contains(err.Error(), "which grants nothing")
	case nd.BufferOverflow, nd.InvalidDeviceRequest, nd.RemoteError:
		return s.Errs
	}
	return false
}

// disconnect disconnects. If the peer ends the connection in another way, the error must name it.
func (s *session) disconnect(ctx context.Context) {
	err := s.ep.Connector().Disconnect(ctx)
	if err != nil && !s.isExpected(s.ep.Err()) && !strings.Contains(err.Error(), fmt.Sprintf("rank %d", s.Peer)) {
		s.fail(fmt.Errorf("the error does not name rank %d: %w", s.Peer, err))
	}
}

// owes reports whether a request waits for a result.
func (s *session) owes() bool {
	for _, q := range s.pending {
		if !q.silent {
			return true
		}
	}
	return false
}

// close closes all objects. Their memory must not change afterwards.
func (s *session) close() {
	must := func(err error) {
		if !s.Wild {
			s.fail(err)
		}
	}
	closed := func(objects ...interface{ Close(context.Context) error }) {
		for _, c := range objects {
			if c == nil {
				continue
			}
			err := c.Close(context.Background())
			// A FastRegister that waits keeps the pages until it is canceled, perhaps after ep.Close.
			for end := time.Now().Add(stalled); errors.Is(err, nd.DeviceBusy) && !s.Wild && time.Now().Before(end); err = c.Close(context.Background()) {
				time.Sleep(time.Millisecond)
			}
			if err != nil {
				must(fmt.Errorf("close %T: %w", c, err))
			}
		}
	}
	if s.ep != nil {
		must(s.ep.Close())
	}
	s.checkTrap()
	s.checkGrant()
	closed(s.guardWindow, s.window)
	if s.trap.region && s.trap.open {
		must(s.guard.Deregister(context.Background()))
	}
	setAll(s.guard0, poison) // no window and no token is left
	s.trap.sealed = true
	time.Sleep(100 * time.Microsecond)
	s.checkTrap()
	s.checkGrant()
	closed(s.fast, s.sink, s.sinkPages, s.pages)
	for _, mr := range append(append(s.local[:], s.inbox[:]...), s.shared, s.guard) {
		closed(mr)
	}
	if s.srq != nil {
		must(s.srq.Close())
	}
	if s.cq != nil {
		must(s.cq.Close())
	}
	for _, b := range s.own {
		setAll(b, poison)
	}
	s.private = append(s.private, s.own...)
}
