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
	settings
	ctx       context.Context // ends when the other half fails, or the watchdog barks
	provider  nd.Provider
	ad        nd.Adapter
	info      nd.AdapterInfo
	addr      netip.Addr // of the adapter
	link      *link
	peerExits bool // the other half will not come to the end

	endpoints []nd.Endpoint // of prepare

	stash    map[nd.CompletionQueue][]nd.Result // taken, and not yet asked for
	serial   uint64
	cleanups []func() // run at the end, latest first
	failures []string
	notes    []string
}

// stop ends a half.
type stop struct{ skipped string }

// setUp opens the adapter.
func (s *side) setUp(h *providers, sc scenario) {
	var err error
	if sc.ownProvider {
		s.provider, err = h.open()
		if err == nil {
			s.cleanup(func() { s.provider.Close() })
		}
	} else {
		s.provider, err = h.forRole(s.role)
	}
	s.must(err)
	s.ad = s.openAdapter()
	s.info, err = s.ad.Query(nd.InfoVersion2)
	s.must(err)
	list, err := s.ad.QueryAddressList()
	s.must(err)
	if len(list) == 0 {
		s.fatalf("the adapter has no address")
	}
	s.addr = list[0]
}

// openAdapter opens another adapter of the same provider.
func (s *side) openAdapter() nd.Adapter {
	list, err := s.provider.QueryAddressList()
	s.must(err)
	if len(list) == 0 {
		s.fatalf("the provider lists no address")
	}
	ad, err := nd.OpenAddress(s.ctx, s.provider, list[0])
	s.must(err)
	s.cleanup(func() { ad.Close() })
	return ad
}

// withAdapter runs f with another adapter in place of the half's own.
func (s *side) withAdapter(ad nd.Adapter, f func()) {
	own := s.ad
	s.ad = ad
	f()
	s.ad = own
}

// cleanup has f called when the half has ended, before what was said earlier.
func (s *side) cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

func (s *side) runCleanups() {
	for i := len(s.cleanups) - 1; i >= 0; i-- {
		s.cleanups[i]()
	}
}

// fatalf fails the scenario and ends this half.
func (s *side) fatalf(format string, args ...any) {
	s.errorf(format, args...)
	panic(stop{})
}

// errorf fails the scenario.
func (s *side) errorf(format string, args ...any) {
	s.failures = append(s.failures, fmt.Sprintf("%s at %s: %s", s.role, s.scenarioLine(), fmt.Sprintf(format, args...)))
}

// scenarioLine returns the line of the scenario that is running.
func (s *side) scenarioLine() string {
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

// mustOrSkip is must for a feature that a provider may lack.
func (s *side) mustOrSkip(err error) {
	if errors.Is(err, nd.NotSupported) {
		s.skipf("%v", err)
	}
	s.must(err)
}

// withTimeout returns a context for a call that is expected to be canceled after d.
func (s *side) withTimeout(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(s.ctx, d)
	s.cleanup(cancel)
	return ctx
}

// withCancel returns a context and what ends it.
func (s *side) withCancel() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(s.ctx)
	s.cleanup(cancel)
	return ctx, cancel
}

// async starts f in a goroutine and returns where its error arrives.
func (s *side) async(f func() error) <-chan error {
	c := make(chan error, 1)
	go func() { c <- f() }()
	return c
}

// await waits for what begun started.
func (s *side) await(c <-chan error) error {
	select {
	case err := <-c:
		return err
	case <-s.ctx.Done():
		s.fatalf("a call did not return: %v", context.Cause(s.ctx))
		return nil
	}
}

// wantPending fails if what begun started has returned.
func (s *side) wantPending(c <-chan error) {
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
	s.syncForRaceDetector()
	s.must(s.link.send(b))
}

// hear waits for the next thing that the other half tells.
func hear[T any](s *side) (v T) {
	select {
	case b := <-s.link.in:
		s.syncForRaceDetector()
		s.must(json.Unmarshal(b, &v))
	case <-s.ctx.Done():
		s.fatalf("heard nothing from the other half: %v", context.Cause(s.ctx))
	}
	return v
}

// barrier waits until the other half gets here too.
func (s *side) barrier() {
	if s.link == nil || s.peerExits {
		return
	}
	s.tell("here")
	if got := hear[string](s); got != "here" {
		s.fatalf("the halves are out of step: heard %q", got)
	}
}

// killProcess kills the process of this half.
func (s *side) killProcess() {
	kill()
	s.fatalf("survived its own SIGKILL")
}

// exit ends this half's program: its process is killed or, where both halves are in one, all that
// it made is closed. The scenario needs exits and own.
func (s *side) exit() {
	if s.TwoProcesses {
		s.killProcess()
	}
	s.runCleanups()
	s.cleanups = nil
}

// expectPeerExit says that the other half will exit.
func (s *side) expectPeerExit() { s.peerExits = s.TwoProcesses }

// parallel calls f in n goroutines at once and waits for all of them.
func (s *side) parallel(n int, f func(i int) error) {
	var calls []<-chan error
	for i := range n {
		calls = append(calls, s.async(func() error { return f(i) }))
	}
	for _, c := range calls {
		s.must(s.await(c))
	}
}

// syncForRaceDetector makes up for what it cannot see: that the order of what the program and the
// provider do to memory comes about through another process. A call into each endpoint takes the
// locks that the provider, if it is written in Go, holds while it copies.
func (s *side) syncForRaceDetector() {
	for _, ep := range s.endpoints {
		_ = ep.Err()
	}
}
