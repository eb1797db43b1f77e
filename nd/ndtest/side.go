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

// side is a running side of a scenario: its provider, its adapter, and the helpers that scenarios
// are written with. A helper that fails ends the side.
type side struct {
	role
	settings
	scenario  scenario
	ctx       context.Context // ends when the other side fails, or after Watchdog
	provider  nd.Provider
	ad        nd.Adapter
	info      nd.AdapterInfo
	addr      netip.Addr // of the adapter
	link      *link
	peerExits bool // the other side exits before the end, so barriers would block

	endpoints []nd.Endpoint // created by prepare

	stash    map[nd.CompletionQueue][]nd.Result // results taken from a queue before a helper asked for them
	serial   uint64
	cleanups []func() // called at the end, the latest first
	failures []string
	notes    []string
}

// stop is the panic value that ends a side.
type stop struct{ skipped string }

// setUp opens the provider and its adapter, and queries the adapter.
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
	s.info, err = s.ad.Query()
	s.must(err)
	list, err := s.ad.QueryAddressList()
	s.must(err)
	if len(list) == 0 {
		s.fatalf("Adapter.QueryAddressList: empty list, want an address at least")
	}
	s.addr = list[0]
}

// openAdapter opens an adapter handle of the side's provider.
func (s *side) openAdapter() nd.Adapter {
	list, err := s.provider.QueryAddressList()
	s.must(err)
	if len(list) == 0 {
		s.fatalf("Provider.QueryAddressList: empty list, want an address at least")
	}
	ad, err := nd.OpenAddress(s.ctx, s.provider, list[0])
	s.must(err)
	s.cleanup(func() { ad.Close(s.ctx) })
	s.expectMisuse(ad)
	return ad
}

// withAdapter runs f with ad in place of the side's own adapter.
func (s *side) withAdapter(ad nd.Adapter, f func()) {
	own := s.ad
	s.ad = ad
	f()
	s.ad = own
}

// cleanup registers f, which is called when the side has ended. The latest f is called first.
func (s *side) cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

func (s *side) runCleanups() {
	for i := len(s.cleanups) - 1; i >= 0; i-- {
		s.cleanups[i]()
	}
}

// fatalf fails the scenario and ends this side.
func (s *side) fatalf(format string, args ...any) {
	s.errorf(format, args...)
	panic(stop{})
}

// errorf fails the scenario; the side continues.
func (s *side) errorf(format string, args ...any) {
	s.failures = append(s.failures, fmt.Sprintf("%s at %s: %s", s.role, s.scenarioLine(), fmt.Sprintf(format, args...)))
}

// scenarioLine returns the file and line of the scenario that is running.
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

// logf adds a line to the log of the row's subtest.
func (s *side) logf(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf("%s: %s", s.role, fmt.Sprintf(format, args...)))
}

// skipf ends the scenario as skipped, because it does not apply to this provider.
func (s *side) skipf(format string, args ...any) {
	panic(stop{skipped: fmt.Sprintf(format, args...)})
}

// must ends the side unless err is nil.
func (s *side) must(err error) {
	if err != nil {
		s.fatalf("%v", err)
	}
}

// want ends the side unless err has this status. Success stands for a nil error. It also checks
// that err names the operation that failed.
func (s *side) want(status nd.Status, err error) {
	if status == nd.Success {
		s.must(err)
		return
	}
	if !errors.Is(err, status) {
		s.fatalf("the call returned %v, want %v", err, status)
	}
	var op *nd.OpError
	if !errors.As(err, &op) || op.Op == "" {
		s.errorf("the error %q does not name its operation: return an *nd.OpError with Op set", err)
	}
}

// wantOneOf ends the side unless err has one of the statuses.
func (s *side) wantOneOf(err error, statuses ...nd.Status) {
	for _, status := range statuses {
		if status == nd.Success && err == nil || status != nd.Success && errors.Is(err, status) {
			return
		}
	}
	s.fatalf("the call returned %v, want one of %v", err, statuses)
}

// mustOrSkip is must for an optional feature: it skips the scenario if err is NotSupported.
func (s *side) mustOrSkip(err error) {
	if errors.Is(err, nd.NotSupported) {
		s.skipf("%v", err)
	}
	s.must(err)
}

// withTimeout returns a context that ends after d.
func (s *side) withTimeout(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(s.ctx, d)
	s.cleanup(cancel)
	return ctx
}

// withCancel returns a context and the function that ends it.
func (s *side) withCancel() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(s.ctx)
	s.cleanup(cancel)
	return ctx, cancel
}

// async calls f in a goroutine and returns a channel that receives its error. The goroutine is running then: on a busy machine
// that can take longer than wantPending waits.
func (s *side) async(f func() error) <-chan error {
	c, running := make(chan error, 1), make(chan struct{})
	go func() {
		close(running)
		c <- f()
	}()
	<-running
	return c
}

// await returns the error of a call that async started. It fails when the side's context ends.
func (s *side) await(c <-chan error) error {
	select {
	case err := <-c:
		return err
	case <-s.ctx.Done():
		s.fatalf("a call has not returned, want it to: %v", context.Cause(s.ctx))
		return nil
	}
}

// wantPending fails if a call that async started returns within 20 ms.
func (s *side) wantPending(c <-chan error) {
	select {
	case err := <-c:
		s.fatalf("the call returned %v, want it to block", err)
	case <-time.After(20 * time.Millisecond):
	}
}

// eventually polls f until it returns true. It fails when the side's context ends.
func (s *side) eventually(what string, f func() bool) {
	for !f() {
		if s.ctx.Err() != nil {
			s.fatalf("%s: not true when the scenario ended: %v", what, context.Cause(s.ctx))
		}
		time.Sleep(200 * time.Microsecond)
	}
}

// tell sends v to the other side, outside of the provider under test. The other side calls hear.
func (s *side) tell(v any) {
	b, err := json.Marshal(v)
	s.must(err)
	s.syncForRaceDetector()
	s.must(s.link.send(b))
}

// hear returns the next value that the other side passes to tell.
func hear[T any](s *side) (v T) {
	select {
	case b := <-s.link.in:
		s.syncForRaceDetector()
		s.must(json.Unmarshal(b, &v))
	case <-s.ctx.Done():
		s.fatalf("the other side has sent no value: %v", context.Cause(s.ctx))
	}
	return v
}

// barrier blocks until the other side has called it, too, and both have seen what the other has done before.
func (s *side) barrier() {
	if s.link == nil || s.peerExits {
		return
	}
	time.Sleep(s.Delay)
	s.tell("here")
	if got := hear[string](s); got != "here" {
		s.fatalf("barrier: the other side sent %q: the sides of the scenario do not match", got)
	}
}

// killProcess kills the process of this side.
func (s *side) killProcess() {
	kill()
	s.fatalf("the process is alive after SIGKILL to itself")
}

// exit ends this side's program: it kills the process or, if both sides share one, closes all objects
// of the side. The scenario sets exits and ownProvider.
func (s *side) exit() {
	if s.TwoProcesses {
		s.killProcess()
	}
	s.runCleanups()
	s.cleanups = nil
}

// expectPeerExit is called if the other side calls exit.
func (s *side) expectPeerExit() { s.peerExits = s.TwoProcesses }

// parallel calls f in n goroutines and waits for all of them.
func (s *side) parallel(n int, f func(i int) error) {
	var calls []<-chan error
	for i := range n {
		calls = append(calls, s.async(func() error { return f(i) }))
	}
	for _, c := range calls {
		s.must(s.await(c))
	}
}

// syncForRaceDetector makes an order visible to the race detector that exists through the other side
// only, which may be in another process. A provider in Go holds locks of an endpoint while it copies. A
// call of each endpoint takes these locks.
func (s *side) syncForRaceDetector() {
	for _, ep := range s.endpoints {
		_ = ep.Err()
	}
}
