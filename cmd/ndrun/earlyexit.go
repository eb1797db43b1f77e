package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/softnd/softnd/internal/linux"
)

// earlyExitPeriod is the time between two checks of a job in which a rank has exited early.
const earlyExitPeriod = 50 * time.Millisecond

// ended records that a rank has ended, and that this does not stop the job. If the rank had not called softnd.Init, another
// rank that calls Init waits for it forever. The user is told as soon as there is such a rank.
// ended does not block.
func (e *hangReporter) ended(rank int) { go e.recordExit(rank) }

func (e *hangReporter) recordExit(rank int) {
	e.standstill.resume() // a standstill that is reported already has another cause now
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.arena == nil {
		return
	}
	if _, joined := e.arena.MemberOf(rank); joined {
		return
	}
	e.early = append(e.early, rank)
	if len(e.early) == 1 {
		go e.reportEarlyExits()
	}
}

// reportEarlyExits waits until a rank waits for those that exited early, or the job is over.
func (e *hangReporter) reportEarlyExits() {
	for ; ; time.Sleep(earlyExitPeriod) {
		line, over := e.earlyExitMessage()
		if line != "" {
			_, _ = fmt.Fprintf(e.to, "ndrun: %s\n", line) // there is nowhere to report a failed write
		}
		if over {
			return
		}
	}
}

// earlyExitMessage returns a message about the ranks that ended early and the ranks that wait
// for them. It forgets the former. over is set if nothing is left to wait for.
func (e *hangReporter) earlyExitMessage() (line string, over bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.arena == nil {
		return "", true
	}
	var waiting []int
	for rank := range e.arena.Ranks() {
		if _, joined := e.arena.MemberOf(rank); joined {
			waiting = append(waiting, rank)
		}
	}
	if len(waiting) == 0 {
		return "", false
	}
	slices.Sort(e.early)
	wait := "wait"
	if len(waiting) == 1 {
		wait = "waits"
	}
	line = fmt.Sprintf("%s ended without calling softnd.Init (in C snd_job_init), and %s %s for it there: call it in all ranks of a job",
		numbered(e.early), numbered(waiting), wait)
	e.early = nil
	return line, true
}

func numbered(ranks []int) string {
	if len(ranks) == 1 {
		return "rank " + linux.FormatList(ranks)
	}
	return "ranks " + linux.FormatList(ranks)
}
