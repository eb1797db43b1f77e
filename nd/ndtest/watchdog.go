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

// grace is how long a half may take to end when the watchdog has barked: calls of the provider
// have to notice that their context is over, and the half closes what it has made.
func (t *settings) grace() time.Duration { return t.Watchdog / 4 }

// supervise is play, except that it does not wait for ever: a half that ends neither by itself nor
// when its context does is given up. Its goroutine stays.
func supervise(ctx context.Context, h *providers, sc scenario, part role, l *link, t settings) sideResult {
	ended := make(chan sideResult, 1)
	go func() { ended <- play(ctx, h, sc, part, l, t) }()
	limit := t.Watchdog + t.grace()
	select {
	case v := <-ended:
		return v
	case <-time.After(limit):
		h.stuck.Store(true)
		return sideResult{Stuck: true, Failures: []string{fmt.Sprintf(
			"%s did not end within %v: a call does not return although its context has ended. "+
				"The goroutines of the scenarios:\n\n%s", part, limit, stacks())}}
	}
}

// stacks returns those of the goroutines of this process that play a half, or were begun by one.
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

// play runs one half.
func play(ctx context.Context, h *providers, sc scenario, part role, l *link, t settings) (v sideResult) {
	ctx, cancel := context.WithTimeout(ctx, t.Watchdog)
	defer cancel()
	s := &side{role: part, ctx: ctx, settings: t, link: l, stash: make(map[nd.CompletionQueue][]nd.Result)}
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
	s.barrier() // so that neither half takes away what the other still looks at
	return v
}
