package ndtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/softnd/softnd/nd"
)

// side is one half of a scenario while it runs: its provider, its adapter, and the words in
// which scenarios are written. Its methods end the half when something fails.
type side struct {
	role
	terms
	ctx      context.Context // ends when the other half fails, or the watchdog barks
	provider nd.Provider
	ad       nd.Adapter
	info     nd.AdapterInfo
	addr     netip.Addr // of the adapter
	link     *link
	lone     bool // the other half will not come to the end

	endpoints []nd.Endpoint // of prepare

	stash    map[nd.CompletionQueue][]nd.Result // taken, and not yet asked for
	serial   uint64
	last     []func() // run at the end, latest first
	failures []string
	notes    []string
}

// stop ends a half.
type stop struct{ skipped string }

// begin opens the adapter.
func (s *side) begin(h *house, sc scenario) {
	var err error
	if sc.own {
		s.provider, err = h.open()
		if err == nil {
			s.atEnd(func() { s.provider.Close() })
		}
	} else {
		s.provider, err = h.of(s.role)
	}
	s.must(err)
	s.ad = s.open()
	s.info, err = s.ad.Query(nd.InfoVersion2)
	s.must(err)
	list, err := s.ad.QueryAddressList()
	s.must(err)
	if len(list) == 0 {
		s.fatalf("the adapter has no address")
	}
	s.addr = list[0]
}

// open opens another adapter of the same provider.
func (s *side) open() nd.Adapter {
	list, err := s.provider.QueryAddressList()
	s.must(err)
	if len(list) == 0 {
		s.fatalf("the provider lists no address")
	}
	ad, err := nd.OpenAddress(s.ctx, s.provider, list[0])
	s.must(err)
	s.atEnd(func() { ad.Close() })
	return ad
}

// through runs f with another adapter in place of the half's own.
func (s *side) through(ad nd.Adapter, f func()) {
	own := s.ad
	s.ad = ad
	f()
	s.ad = own
}

// atEnd has f called when the half has ended, before what was said earlier.
func (s *side) atEnd(f func()) { s.last = append(s.last, f) }

func (s *side) tidy() {
	for i := len(s.last) - 1; i >= 0; i-- {
		s.last[i]()
	}
}

// fatalf fails the scenario and ends this half.
func (s *side) fatalf(format string, args ...any) {
	s.errorf(format, args...)
	panic(stop{})
}

// errorf fails the scenario.
func (s *side) errorf(format string, args ...any) {
	s.failures = append(s.failures, fmt.Sprintf("%s at %s: %s", s.role, s.where(), fmt.Sprintf(format, args...)))
}

// where returns the line of the scenario that is running.
func (s *side) where() string {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	at := "?"
	for {
		f, more := frames.Next()
		base := filepath.Base(f.File)
		if strings.HasPrefix(base, "scenarios_") { // the outermost frame is the line of the scenario itself
			at = fmt.Sprintf("%s:%d", base, f.Line)
		}
		if !more {
			return at
		}
	}
}

// logf notes what a passing row does not show. It goes into the test's log.
func (s *side) logf(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf("%s: %s", s.role, fmt.Sprintf(format, args...)))
}

// skipf ends the scenario as one that does not apply to this provider.
func (s *side) skipf(format string, args ...any) {
	panic(stop{skipped: fmt.Sprintf(format, args...)})
}

// must ends the half unless err is nil.
func (s *side) must(err error) {
	if err != nil {
		s.fatalf("%v", err)
	}
}

// want ends the half unless the call that returned err had this status; Success stands for nil.
// It checks, too, that every error tells its operation.
func (s *side) want(status nd.Status, err error) {
	if status == nd.Success {
		s.must(err)
		return
	}
	if !errors.Is(err, status) {
		s.fatalf("got %v, want %v", err, status)
	}
	var op *nd.OpError
	if !errors.As(err, &op) || op.Op == "" {
		s.errorf("the error %q does not name its operation; return an *nd.OpError", err)
	}
}

// wantOneOf is want with several statuses to choose from.
func (s *side) wantOneOf(err error, statuses ...nd.Status) {
	for _, status := range statuses {
		if status == nd.Success && err == nil || status != nd.Success && errors.Is(err, status) {
			return
		}
	}
	s.fatalf("got %v, want one of %v", err, statuses)
}

// optional is must for a feature that a provider may lack.
func (s *side) optional(err error) {
	if errors.Is(err, nd.NotSupported) {
		s.skipf("%v", err)
	}
	s.must(err)
}

// brief returns a context for a call that is expected to be canceled after d.
func (s *side) brief(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(s.ctx, d)
	s.atEnd(cancel)
	return ctx
}

// cancelable returns a context and what ends it.
func (s *side) cancelable() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(s.ctx)
	s.atEnd(cancel)
	return ctx, cancel
}

// begun starts f in a goroutine and returns where its error arrives.
func (s *side) begun(f func() error) <-chan error {
	c := make(chan error, 1)
	go func() { c <- f() }()
	return c
}

// ended waits for what begun started.
func (s *side) ended(c <-chan error) error {
	select {
	case err := <-c:
		return err
	case <-s.ctx.Done():
		s.fatalf("a call did not return: %v", context.Cause(s.ctx))
		return nil
	}
}

// pending fails if what begun started has returned.
func (s *side) pending(c <-chan error) {
	select {
	case err := <-c:
		s.fatalf("a call returned %v that should be waiting", err)
	case <-time.After(20 * time.Millisecond):
	}
}

// eventually waits until f is true.
func (s *side) eventually(what string, f func() bool) {
	for !f() {
		if s.ctx.Err() != nil {
			s.fatalf("waited in vain: %s: %v", what, context.Cause(s.ctx))
		}
		time.Sleep(200 * time.Microsecond)
	}
}

// tell says something to the other half; see hear.
func (s *side) tell(v any) {
	b, err := json.Marshal(v)
	s.must(err)
	s.showRaceDetector()
	s.must(s.link.send(b))
}

// hear waits for the next thing that the other half tells.
func hear[T any](s *side) (v T) {
	select {
	case b := <-s.link.in:
		s.showRaceDetector()
		s.must(json.Unmarshal(b, &v))
	case <-s.ctx.Done():
		s.fatalf("heard nothing from the other half: %v", context.Cause(s.ctx))
	}
	return v
}

// meet waits until the other half gets here too.
func (s *side) meet() {
	if s.link == nil || s.lone {
		return
	}
	s.tell("here")
	if got := hear[string](s); got != "here" {
		s.fatalf("the halves are out of step: heard %q", got)
	}
}

// die kills the process of this half.
func (s *side) die() {
	kill()
	s.fatalf("survived its own SIGKILL")
}

// exit ends this half's program: its process is killed or, where both halves are in one, all that
// it made is closed. The scenario needs exits and own.
func (s *side) exit() {
	if s.Remote {
		s.die()
	}
	s.tidy()
	s.last = nil
}

// survive says that the other half will exit.
func (s *side) survive() { s.lone = s.Remote }

// each calls f in n goroutines at once and waits for all of them.
func (s *side) each(n int, f func(i int) error) {
	var calls []<-chan error
	for i := range n {
		calls = append(calls, s.begun(func() error { return f(i) }))
	}
	for _, c := range calls {
		s.must(s.ended(c))
	}
}

// showRaceDetector makes up for what it cannot see: that the order of what the program and the
// provider do to memory comes about through another process. A call into each endpoint takes the
// locks that the provider, if it is written in Go, holds while it copies.
func (s *side) showRaceDetector() {
	for _, ep := range s.endpoints {
		_ = ep.Err()
	}
}
