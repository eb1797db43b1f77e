package ndtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/softnd/softnd/nd"
)

// grace is how long a side may take to return after its context has ended. In that time the calls of the
// provider return, and the side closes its objects.
func (t *settings) grace() time.Duration { return t.Watchdog / 4 }

// supervise runs play with a limit on its time. If the side does not return soon after its context has
// ended, supervise reports it as stuck and leaves its goroutine running.
func supervise(ctx context.Context, h *providers, sc scenario, part role, l *link, t settings) sideResult {
	h = h.forScenario(sc)
	ended := make(chan sideResult, 1)
	go func() { ended <- play(ctx, h, sc, part, l, t) }()
	limit := t.Watchdog + t.grace()
	select {
	case v := <-ended:
		return v
	case <-time.After(limit):
		h.stuck.Store(true)
		return sideResult{Stuck: true, Failures: []string{fmt.Sprintf(
			"side %s: has not returned after %v: a call of the provider ignores the end of its context. "+
				"Goroutines of the scenario:\n\n%s", part, limit, stacks())}}
	}
}

// stacks returns the stacks of this process's goroutines that run a side, or that a side started.
// softnd's own tests have internal/testkit/proctest for this and for processes. This package must not import it, so that any
// provider can use the suite.
func stacks() string {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	var ours []string
	for stack := range bytes.SplitSeq(buf, []byte("\n\n")) {
		s := string(stack)
		if strings.Contains(s, "/nd/ndtest.play(") || strings.Contains(s, "/nd/ndtest.(*side).") {
			ours = append(ours, s)
		}
	}
	return strings.Join(ours, "\n\n")
}

// play runs one side.
func play(ctx context.Context, h *providers, sc scenario, part role, l *link, t settings) (v sideResult) {
	ctx, cancel := context.WithTimeout(ctx, t.Watchdog)
	defer cancel()
	s := &side{role: part, scenario: sc, ctx: ctx, settings: t, link: l, stash: make(map[nd.CompletionQueue][]nd.Result)}
	defer func() {
		s.runCleanups()
		v.Failures, v.Notes = s.failures, s.notes
	}()
	defer func() {
		switch e := recover().(type) {
		case nil:
		case stop:
			v.Skipped = e.skipped
			v.Derived = errors.Is(context.Cause(ctx), errAbandoned)
		default:
			panic(e)
		}
	}()
	s.setUp(h, sc)
	if part == active {
		sc.active(s)
	} else {
		sc.passive(s)
	}
	s.barrier() // so that neither side closes objects that the other still uses
	return v
}
