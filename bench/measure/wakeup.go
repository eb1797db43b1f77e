package measure

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/bench/report"
	"github.com/softnd/softnd/nd"
)

// Wakeup measures how long it takes from the post of a message to a rank that
// sleeps until that rank's answer is seen, for each way of sleeping.
func Wakeup() Test {
	return Test{Name: "wakeup", Title: "message to a sleeping rank, until its answer is seen", Ranks: 2, Run: runWakeup}
}

const (
	wakeupPause = 2 * time.Millisecond // enough to fall asleep
	wakeupBytes = 8
	// A distribution takes more operations than a repeat, which has few.
	wakeupSamples = 5
)

func runWakeup(ctx context.Context, w *World, o Options) (found []report.Result, err error) {
	for _, way := range []struct {
		test, note string
		wait       func(*sleeper) error
	}{
		{"wakeup", "asleep in Wait", (*sleeper).wait},
		{"wakeup_notify", "asleep in Notify", (*sleeper).notify},
		{"wakeup_eventfd", "asleep in poll(2), with the event descriptor", (*sleeper).pollDescriptor},
	} {
		s, err := newSleeper(ctx, w)
		if err != nil {
			return nil, err
		}
		res := timed(w, o, way.test, wakeupBytes)
		res.Mode, res.Memory, res.Note = "event", "", way.note
		l := &Loop{Result: res,
			Run: func(_ context.Context, n int) (float64, error) {
				sum := 0.0
				err := s.trips(w.Job.Rank(), n, way.wait, func(ns float64) { sum += ns })
				return sum / float64(n), err
			},
			Sample: func(_ context.Context, n int, h *Histogram) error {
				return s.trips(w.Job.Rank(), n*wakeupSamples, way.wait, h.Record)
			},
		}
		r, err := l.Measure(ctx, w, o)
		if err := afterAll(ctx, w, err, s.close); err != nil {
			return nil, err
		}
		found = append(found, r...)
	}
	return found, nil
}

// sleeper is one side of a connection over which empty-handed ranks wake each
// other. A receive is always posted; sends leave no completion.
type sleeper struct {
	*wire
	ctx context.Context
	mr  nd.MemoryRegion
	fd  int
}

func newSleeper(ctx context.Context, w *World) (*sleeper, error) {
	wire, err := connectWire(ctx, w)
	if err != nil {
		return nil, err
	}
	s := &sleeper{wire: wire, ctx: ctx, fd: -1}
	if s.mr, err = newRegion(ctx, w.Job.Adapter(), 2*wakeupBytes, false); err == nil {
		err = s.receive()
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *sleeper) part(from, to int) []nd.SGE {
	return []nd.SGE{{Buffer: s.mr.Bytes()[from:to], Token: s.mr.LocalToken()}}
}

func (s *sleeper) receive() error { return s.ep.Receive(0, s.part(0, wakeupBytes)) }

func (s *sleeper) send() error {
	return s.ep.Send(0, s.part(wakeupBytes, 2*wakeupBytes), nd.SilentSuccess)
}

// trips makes n round trips, each to a rank that has had time to fall asleep.
// On rank 0 it records them.
func (s *sleeper) trips(rank, n int, wait func(*sleeper) error, record func(ns float64)) error {
	clock := NewClock()
	for range n {
		if rank != 0 {
			if err := s.answer(wait); err != nil {
				return err
			}
			continue
		}
		time.Sleep(wakeupPause)
		start := clock.Now()
		if err := s.send(); err != nil {
			return err
		}
		if err := s.take(1); err != nil {
			return err
		}
		record(clock.Ns(start, clock.Now()))
		if err := s.receive(); err != nil {
			return err
		}
	}
	return nil
}

// answer sleeps until a message comes.
func (s *sleeper) answer(wait func(*sleeper) error) error {
	if err := wait(s); err != nil {
		return err
	}
	if err := s.receive(); err != nil {
		return err
	}
	return s.send()
}

func (s *sleeper) wait() error {
	n, err := s.cq.Wait(s.ctx, s.found[:1])
	if err != nil {
		return err
	}
	return allSucceeded(s.found[:n])
}

func (s *sleeper) notify() error {
	if err := s.cq.Notify(s.ctx, nd.NotifyAny); err != nil {
		return err
	}
	return s.take(1)
}

// pollDescriptor sleeps in the kernel, as a program does that waits for other
// descriptors too.
func (s *sleeper) pollDescriptor() (err error) {
	if s.fd < 0 {
		if s.fd, err = s.cq.EventFD(); err != nil {
			return err
		}
	}
	var count [8]byte
	for {
		if n := s.cq.Poll(s.found[:1]); n > 0 {
			return allSucceeded(s.found[:n])
		}
		if err := s.ctx.Err(); err != nil {
			return err
		}
		fds := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, lookAround); err != nil && err != unix.EINTR {
			return fmt.Errorf("measure: poll: %w", err)
		}
		if n, err := unix.Read(s.fd, count[:]); err == nil && (n != len(count) || binary.NativeEndian.Uint64(count[:]) == 0) {
			return errors.New("measure: the event descriptor has counted nothing")
		}
	}
}

const lookAround = 100 // ms after which a sleeper sees whether its context has ended

func (s *sleeper) close() (err error) {
	err = s.wire.close()
	if s.mr != nil {
		err = errors.Join(err, s.mr.Close())
	}
	return err
}
