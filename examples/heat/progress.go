package main

import (
	"fmt"
	"os"
	"time"
)

// progress prints how far the computation is. On a terminal it overwrites one line. Elsewhere it
// prints one line after the other, and only if the user asks for it.
type progress struct {
	to       *os.File
	on, tty  bool
	shown    bool // the terminal has a line of it
	steps    int
	last     time.Time
	interval time.Duration
}

func newProgress(to *os.File, wanted bool, steps int) *progress {
	info, err := to.Stat()
	// Under ndrun this is a pipe, but ndrun reports whether its own output is a terminal.
	tty := err == nil && info.Mode()&os.ModeCharDevice != 0 || os.Getenv("SOFTND_TERMINAL") == "1"
	return &progress{to: to, on: wanted || tty, tty: tty, steps: steps,
		last: time.Now(), interval: 200 * time.Millisecond}
}

// update shows that step steps are done, unless it has shown something shortly before.
func (p *progress) update(step int) {
	if !p.on || time.Since(p.last) < p.interval {
		return
	}
	p.last = time.Now()
	line := fmt.Sprintf("heat: step %d of %d, %d %%", step, p.steps, 100*step/p.steps)
	if p.tty {
		p.shown = true
		fmt.Fprintf(p.to, "%s\x1b[K\r", line)
	} else {
		fmt.Fprintln(p.to, line)
	}
}

// clear takes the line off the terminal, if there is one.
func (p *progress) clear() {
	if p.shown {
		p.shown = false
		fmt.Fprint(p.to, "\x1b[K")
	}
}
