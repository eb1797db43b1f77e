package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/softnd/softnd/internal/hang"
	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/launcher"
	"github.com/softnd/softnd/shm"
)

// stackTimeout limits how long ranks may take to send their stacks. After a signal the user
// waits, so stackTimeoutOnSignal is shorter.
const (
	stackTimeout         = 2 * time.Second
	stackTimeoutOnSignal = 500 * time.Millisecond
)

// idleTime is the time without progress after which a signal that ends the job also makes ndrun
// diagnose it.
const idleTime = time.Second

// hangReporter finds out why a job makes no progress, and reports it.
type hangReporter struct {
	plan        *plan
	to          io.Writer
	diagnoseNow chan struct{} // to Run

	mu    sync.Mutex // held while ranks answer
	arena *shm.Arena // nil after close; guarded by mu
	early []int      // ranks that ended before they joined and are not reported yet; guarded by mu

	latest     atomic.Int64 // progress of any rank, also of one whose record has another owner since
	standstill standstill
}

// standstill is what watch and a diagnosis that it has requested tell each other. Its lock is held for a moment only.
type standstill struct {
	mu    sync.Mutex
	asked [3]uint64 // progress of the ranks when watch requested a diagnosis last
	told  bool      // no rank is known to have made progress, or to have ended, since a diagnosis reported that none does
}

// close closes the arena. A diagnosis may still be running, because its message cannot be written
// or because the launcher does not wait for it.
func (e *hangReporter) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.arena.Close()
	e.arena = nil
}

// look returns a snapshot of the job, nil if it is over.
func (e *hangReporter) look(processes []hang.Process, timeout time.Duration) *hang.Snapshot {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.arena == nil {
		return nil
	}
	return hang.Capture(e.arena, processes, timeout)
}

// diagnose examines the job, writes one message with the result, and returns the causes.
func (e *hangReporter) diagnose(trigger launcher.Trigger, r *launcher.Report) []string {
	var text bytes.Buffer
	e.addJoined(r)
	timeout := stackTimeout
	var idle time.Duration // since the last progress
	progresses := false
	add := func(line string) { fmt.Fprintf(&text, "ndrun: %s\n", line) }
	switch trigger {
	case launcher.TriggerTimeout:
		idle, progresses = e.idle()
		progresses = progresses && idle < idleTime
		add(e.plan.timedOut(r))
	case launcher.TriggerRequest:
		if len(runningRanks(r)) == 0 {
			return r.Hang // the job is over, or its first process is not running yet: watch asks again
		}
		if !e.confirm() {
			return r.Hang // a rank went on meanwhile: watch asks again when none does
		}
		add(fmt.Sprintf("no rank has made progress for %v", e.plan.command.hangAfter))
	case launcher.TriggerSignal:
		idle, ok := e.idle()
		if !ok || idle < idleTime {
			return nil
		}
		add(fmt.Sprintf("a signal ends the job; no rank has made progress for %v", idle.Round(100*time.Millisecond)))
		timeout = stackTimeoutOnSignal
	}
	var processes []hang.Process
	for i, rank := range r.Ranks {
		p := hang.Process{PID: rank.PID, Program: rank.Program}
		switch {
		case rank.Ended:
			p.Ended = rank.How()
		case rank.PID == unknownPID:
			p.PID = 0
		case rank.PID == 0:
			p.Ended = "was not started"
			if when := e.plan.command.apps[e.plan.ranks[i].app].after; when != "" {
				p.Ended = "waits to be started (--after " + when + ")"
			}
		}
		processes = append(processes, p)
	}
	picture := e.look(processes, timeout)
	if picture == nil {
		return nil
	}
	if progresses {
		if lines, ok := picture.Moves(); ok {
			lines = slices.Insert(lines, 0, fmt.Sprintf("the job makes progress, the last one %v before, so it does not hang: give it more time with --timeout, or make its slow ranks faster", idle.Round(time.Millisecond)))
			for _, line := range lines {
				add(line)
			}
			_, _ = e.to.Write(text.Bytes()) // a failed write has no other place to be reported
			return lines
		}
	}
	lines := picture.Lines
	if trigger == launcher.TriggerSignal {
		if len(picture.Findings()) == 0 {
			return nil
		}
		lines = picture.Brief
	}
	causes := picture.Causes()
	for _, line := range lines() {
		add(line)
	}
	_, _ = e.to.Write(text.Bytes()) // a failed write has no other place to be reported
	return causes
}

// unknownPID is the number of a process that has joined and that this process may know by another number, or not at all: it
// runs in another PID namespace, or has left.
const unknownPID = -1

// addJoined adds the processes that have joined to r, the launcher's view. On a busy machine a rank may run for a moment
// before the launcher knows its process.
func (e *hangReporter) addJoined(r *launcher.Report) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.arena == nil {
		return
	}
	for i := range r.Ranks {
		id, joined := hang.MemberOf(e.arena, i)
		if !joined || r.Ranks[i].PID != 0 {
			continue
		}
		r.Ranks[i].PID = unknownPID
		if peer, err := e.arena.Peer(id); err == nil {
			if pid, ok := peer.PID(); ok {
				r.Ranks[i].PID = pid
			}
		}
	}
}

// watch requests a diagnosis each time that no rank has made progress for --hang-after, until ctx
// ends.
func (e *hangReporter) watch(ctx context.Context) {
	hangAfter := e.plan.command.hangAfter
	tick := time.NewTicker(max(hangAfter/20, 10*time.Millisecond))
	defer tick.Stop()
	seen, since := e.progress(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		switch now := e.progress(); {
		case now != seen:
			seen, since = now, time.Now()
			e.standstill.resume()
		case time.Since(since) >= hangAfter && e.standstill.ask(now):
			since = time.Now()
			select {
			case e.diagnoseNow <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}
}

// resume records that a rank has made progress or has ended, so that the next standstill is reported too.
func (s *standstill) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = false
}

// ask records the progress at which watch requests a diagnosis. It returns false if the standstill is already reported.
func (s *standstill) ask(progress [3]uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = progress
	return !s.told
}

// confirm reports whether no rank has made progress since watch requested a diagnosis, and the standstill is not reported yet. Then
// the caller reports it, and watch does not ask again before a rank goes on.
func (e *hangReporter) confirm() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.standstill.mu.Lock()
	defer e.standstill.mu.Unlock()
	if e.arena == nil || e.standstill.told || e.progress() != e.standstill.asked {
		return false
	}
	e.standstill.told = true
	return true
}

// progress returns a value that changes when a rank makes progress.
func (e *hangReporter) progress() (mark [3]uint64) {
	mark = [3]uint64{e.arena.BarrierArrivals(), e.arena.Deaths()}
	for rank := range e.arena.Ranks() {
		id, ok := hang.MemberOf(e.arena, rank)
		if !ok {
			continue
		}
		mark[2] += uint64(e.progressOf(id))
	}
	return mark
}

// progressOf returns when a member last noted progress, 0 if that is not known.
func (e *hangReporter) progressOf(id shm.MemberID) (at int64) {
	if o, err := statuspage.Observe(e.arena, id); err == nil {
		at = o.LastProgress()
	}
	for seen := e.latest.Load(); at > seen && !e.latest.CompareAndSwap(seen, at); seen = e.latest.Load() {
	}
	return at
}

// idle returns the time since a rank last made progress. ok is false if no rank has joined or the
// job is over.
func (e *hangReporter) idle() (idle time.Duration, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.arena == nil {
		return 0, false
	}
	now := linux.HostClock()
	for rank := range e.arena.Ranks() {
		if id, joined := hang.MemberOf(e.arena, rank); joined && e.progressOf(id) != 0 {
			ok = true
		}
	}
	return time.Duration(now - e.latest.Load()), ok
}
