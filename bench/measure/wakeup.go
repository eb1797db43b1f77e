package measure

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/bench/report"
	"github.com/softnd/softnd/nd"
)

const (
	wakeupPause = 2 * time.Millisecond // enough to fall asleep
	wakeupBytes = 8
	// Each operation includes the pause, so the warm-up is short.
	wakeupWarmUp = 10
	// A distribution needs more operations than a repeat has.
	wakeupSamples = 5
)

// runWakeup measures the time from the post of a message to a rank that sleeps, until that rank's answer arrives, for
// each way of sleeping.
func runWakeup(ctx context.Context, w *World, o Options) (found []report.Result, err error) {
	for _, way := range []struct {
		test, note string
		sleep      func(*link) error // nil: poll itself sleeps
	}{
		{"wakeup", "asleep in Wait", nil},
		{"wakeup_notify", "asleep in Notify", sleepInNotify},
		{"wakeup_eventfd", "asleep in poll(2), with the event descriptor", sleepInPoll},
	} {
		o.Pairs, o.Inline, o.WarmUp = 1, false, min(o.WarmUp, wakeupWarmUp)
		o.Events = way.sleep == nil && w.Job.Rank() != 0
		l, err := openLink(ctx, w, o, sendLat.config.sized(wakeupBytes))
		if err != nil {
			return nil, err
		}
		r, err := wakeupLoop(w, o, l, way.test, way.note, way.sleep).measure(ctx, w, o)
		if err := afterAll(ctx, w, err, l.release); err != nil {
			return nil, err
		}
		found = append(found, r...)
	}
	return found, nil
}

func (c linkConfig) sized(size int) linkConfig {
	c.size = size
	return c
}

func wakeupLoop(w *World, o Options, l *link, test, remark string, sleep func(*link) error) *loop {
	res := timed(w, o, test, wakeupBytes)
	res.Mode, res.Memory, res.Note = "event", memoryName(o.Private), "from the post to the answer; "+remark
	return &loop{result: res,
		run: func(_ context.Context, n int) (float64, error) {
			sum := 0.0
			err := l.wakeups(n, sleep, func(ns float64) { sum += ns })
			return sum / float64(n), err
		},
		sample: func(_ context.Context, n int, h *histogram) error {
			return l.wakeups(n*wakeupSamples, sleep, h.record)
		},
	}
}

// wakeups makes n round trips to a rank that has had time to fall asleep, and records the time of each.
func (l *link) wakeups(n int, sleep func(*link) error, record func(ns float64)) error {
	clock := newClock()
	for range n {
		if !l.active() {
			if err := l.answerAsleep(sleep); err != nil {
				return err
			}
			continue
		}
		time.Sleep(wakeupPause)
		start := clock.now()
		if err := l.pingSends(1); err != nil {
			return err
		}
		record(clock.ns(start, clock.now()))
	}
	return nil
}

// answerAsleep sleeps until a message arrives, and answers it.
func (l *link) answerAsleep(sleep func(*link) error) error {
	for l.expected++; ; {
		if err := l.poll(); err != nil {
			return err
		}
		if l.received == l.expected {
			return l.sendOn(l.nextPair())
		}
		if sleep == nil {
			continue
		}
		if err := sleep(l); err != nil {
			return err
		}
	}
}

func sleepInNotify(l *link) error { return l.cq.Notify(l.ctx, nd.NotifyAny) }

// sleepInPoll sleeps in the kernel, like a program that also waits for other descriptors.
func sleepInPoll(l *link) error {
	fd, err := l.cq.EventFD()
	if err != nil {
		return err
	}
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, pollTimeout)
	switch {
	case err == unix.EINTR:
		return l.ctx.Err()
	case err != nil:
		return fmt.Errorf("measure: poll: %w", err)
	case n == 0:
		return l.ctx.Err()
	}
	var count [8]byte
	_, err = unix.Read(fd, count[:])
	return err
}

const pollTimeout = 100 // ms after which a blocked goroutine checks whether its context has ended
