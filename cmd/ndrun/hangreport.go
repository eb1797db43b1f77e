package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/softnd/softnd/internal/hang"
	"github.com/softnd/softnd/launcher"
	"github.com/softnd/softnd/shm"
)

// How long ranks may take to give their stacks. signalTime is shorter: the user waits.
const (
	answerTime = 2 * time.Second
	signalTime = 500 * time.Millisecond
)

// idleTime is for how long no rank has made progress in a job that is explained when a
// signal ends it.
const idleTime = time.Second

// explainer finds out why a job does not go on, and tells the user.
type explainer struct {
	plan *plan
	to   io.Writer
	ask  chan struct{} // to Run

	mu    sync.Mutex
	arena *shm.Arena // nil once it is closed; guarded by mu
	early []int      // ranks that ended before they joined, and of which the user has not been told; guarded by mu
}

// close closes the arena. An explanation may be under way still, because it cannot be
// written, or because nobody waits for it any more.
func (e *explainer) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.arena.Close()
	e.arena = nil
}

// look takes a picture of the job; nil if it is over.
func (e *explainer) look(processes []hang.Process, patience time.Duration) *hang.Picture {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.arena == nil {
		return nil
	}
	return hang.Look(e.arena, processes, patience)
}

// explain looks at the job, tells in one piece what it sees, and returns the causes.
func (e *explainer) explain(why launcher.Occasion, r *launcher.Report) []string {
	var text bytes.Buffer
	patience := answerTime
	say := func(line string) { fmt.Fprintf(&text, "ndrun: %s\n", line) }
	switch why {
	case launcher.TimeOver:
		say(e.plan.timedOut(r))
	case launcher.Asked:
		if len(r.Running()) == 0 {
			return r.Hang // it is over, which takes a moment to be seen
		}
		say(fmt.Sprintf("no rank has made progress for %v", e.plan.command.hangAfter))
	case launcher.Signaled:
		idle, ok := e.idle()
		if !ok || idle < idleTime {
			return nil
		}
		say(fmt.Sprintf("a signal ends the job, in which no rank has made progress for %v", idle.Round(100*time.Millisecond)))
		patience = signalTime
	}
	var processes []hang.Process
	for _, rank := range r.Ranks {
		p := hang.Process{PID: rank.PID, Program: rank.Program}
		switch {
		case rank.Ended:
			p.Ended = rank.How()
		case p.PID == 0:
			p.Ended = "was not started"
		}
		processes = append(processes, p)
	}
	picture := e.look(processes, patience)
	if picture == nil {
		return nil
	}
	lines := picture.Lines
	if why == launcher.Signaled {
		if len(picture.Findings()) == 0 {
			return nil
		}
		lines = picture.Brief
	}
	causes := picture.Causes()
	for _, line := range lines() {
		say(line)
	}
	_, _ = e.to.Write(text.Bytes()) // a failed write has no other place to be reported
	return causes
}

// watch reports the cause each time that no rank has made progress for a while, until
// ctx ends.
func (e *explainer) watch(ctx context.Context) {
	patience := e.plan.command.hangAfter
	tick := time.NewTicker(max(patience/20, 10*time.Millisecond))
	defer tick.Stop()
	seen, since, told := e.progress(), time.Now(), false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		switch now := e.progress(); {
		case now != seen:
			seen, since, told = now, time.Now(), false
		case !told && time.Since(since) >= patience:
			told = true
			select {
			case e.ask <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}
}

// progress is a mark that changes when something goes on between the ranks.
func (e *explainer) progress() (mark [3]uint64) {
	mark = [3]uint64{e.arena.BarrierArrivals(), e.arena.Deaths()}
	for rank := range e.arena.Ranks() {
		id, ok := e.arena.MemberOf(rank)
		if !ok {
			continue
		}
		if peer, err := e.arena.Peer(id); err == nil {
			mark[2] += uint64(peer.LastProgress())
		}
	}
	return mark
}

// idle returns how long ago a rank last made progress; ok is false if none has joined, or
// if the job is over.
func (e *explainer) idle() (idle time.Duration, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.arena == nil {
		return 0, false
	}
	now, last := shm.Clock(), int64(0)
	for rank := range e.arena.Ranks() {
		if id, joined := e.arena.MemberOf(rank); joined {
			if peer, err := e.arena.Peer(id); err == nil {
				last, ok = max(last, peer.LastProgress()), true
			}
		}
	}
	return time.Duration(now - last), ok
}
