package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/softnd/softnd/internal/numlist"
)

// earlyPeriod is how often a job is checked in which a rank has ended early.
const earlyPeriod = 50 * time.Millisecond

// ended notes that a rank has exited with 0. If it did so before softnd.Init, the user is
// told as soon as another rank is there and waits for it: that rank waits for ever. It does
// not block.
func (e *explainer) ended(rank int) { go e.noteEnd(rank) }

func (e *explainer) noteEnd(rank int) {
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
		go e.tellEarly()
	}
}

// tellEarly waits until the early ends matter or the job is over.
func (e *explainer) tellEarly() {
	for ; ; time.Sleep(earlyPeriod) {
		line, over := e.earlyLine()
		if line != "" {
			_, _ = fmt.Fprintf(e.to, "ndrun: %s\n", line) // a failed write has no other place to be reported
		}
		if over {
			return
		}
	}
}

// earlyLine says which ranks have ended early and which wait for them. It forgets
// the former. over is true if there is nothing left to wait for.
func (e *explainer) earlyLine() (line string, over bool) {
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
	line = fmt.Sprintf("%s exited with code 0 without having called softnd.Init, where %s %s for it; let all ranks of a job call Init",
		numbered(e.early), numbered(waiting), wait)
	e.early = nil
	return line, true
}

func numbered(ranks []int) string {
	if len(ranks) == 1 {
		return "rank " + numlist.Format(ranks)
	}
	return "ranks " + numlist.Format(ranks)
}
