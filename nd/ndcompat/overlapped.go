package ndcompat

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/softnd/softnd/nd"
)

// Overlapped runs a blocking control call as an overlapped request: Start runs the call in the
// background, and Result returns its error later. An Overlapped has one request at a time. When the
// request has ended, the Overlapped can be used for another. The zero value is ready for use.
//
// The end of a request is reported by the channel of Done, or, if OnEnd is set, by a call of OnEnd.
// Source: NetworkDirect IND2Overlapped, INDOverlapped, OVERLAPPED.
type Overlapped struct {
	// OnEnd, if not nil, is called at the end of each request, and Done returns nil. With OnEnd,
	// several requests can report to one queue of events. OnEnd may call Result, which does not block
	// then. OnEnd must not call Start or Cancel, because they wait until OnEnd has returned. Set OnEnd
	// before Start.
	OnEnd func(*Overlapped)

	mu      sync.Mutex
	current *request // the latest; nil before the first
}

// request is one call that Start has started.
type request struct {
	cancel   context.CancelFunc
	err      error         // of the call; valid when returned is closed
	returned chan struct{} // closed when the call has returned
	reported chan struct{} // closed when OnEnd has returned too; without OnEnd the same channel
}

// Start runs call in the background, as the new request of o. If ctx ends, the context of call ends
// too. If several calls are started, it is undefined in which order they run. If OnEnd is running for
// the previous request, Start blocks until OnEnd has returned, so that OnEnd sees the result of that
// request.
//
// Errors (call is not started then):
//
//   - [nd.InvalidDeviceState]: the previous request has not ended. It continues.
//   - [nd.Canceled]: ctx has ended before OnEnd has returned.
func (o *Overlapped) Start(ctx context.Context, call func(context.Context) error) error {
	_, err := o.start(ctx, call)
	return err
}

func (o *Overlapped) start(ctx context.Context, call func(context.Context) error) (*request, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.current != nil && !o.current.ended() {
		if err := o.awaitReport(ctx, o.current); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &request{cancel: cancel, returned: make(chan struct{})}
	r.reported = r.returned
	if o.OnEnd != nil {
		r.reported = make(chan struct{})
	}
	o.current = r
	go func() {
		defer cancel()
		r.err = call(ctx)
		close(r.returned)
		if o.OnEnd != nil {
			defer close(r.reported)
			o.OnEnd(o)
		}
	}()
	return r, nil
}

// awaitReport waits, without the lock, until OnEnd has returned for r.
func (o *Overlapped) awaitReport(ctx context.Context, r *request) error {
	if r.pending() {
		return &nd.OpError{
			Op: "start", Object: "overlapped request", Status: nd.InvalidDeviceState,
			Detail: "the previous request is pending", Next: "wait until it completes, or use another Overlapped",
		}
	}
	o.mu.Unlock()
	defer o.mu.Lock()
	select {
	case <-r.reported:
		return nil
	case <-ctx.Done():
		return nd.CanceledError(ctx, "start", "overlapped request")
	}
}

// Result returns the error that the latest call has returned, and nil if there was no call. If the call
// still runs and wait is true, Result blocks until the call returns. If the call still runs and wait is
// false, Result returns [nd.Pending], which is not a failure. Result may be called repeatedly.
//
// Source: IND2Overlapped::GetOverlappedResult.
func (o *Overlapped) Result(wait bool) error {
	r := o.latest()
	switch {
	case r == nil:
		return nil
	case wait:
		<-r.returned
	case r.pending():
		return &nd.OpError{Op: "get result", Object: "overlapped request", Status: nd.Pending, Next: "ask again, or wait"}
	}
	return r.err
}

// Done returns a channel that is closed when the latest request ends. If there was no request, or
// OnEnd is set, it returns nil.
func (o *Overlapped) Done() <-chan struct{} {
	if r := o.latest(); r != nil && o.OnEnd == nil {
		return r.returned
	}
	return nil
}

// Cancel ends the context of the latest request, and blocks until the request has ended and OnEnd, if
// set, has returned. If the call has returned before, Cancel does not change its error.
func (o *Overlapped) Cancel() {
	if r := o.latest(); r != nil {
		r.stop()
	}
}

func (o *Overlapped) latest() *request {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.current
}

// pending reports whether the call runs.
func (r *request) pending() bool { return !closed(r.returned) }

// ended reports whether the call has returned and its end was reported.
func (r *request) ended() bool { return closed(r.reported) }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (r *request) stop() {
	r.cancel()
	<-r.reported
}

// OverlappedSet is a set of requests that can be canceled together, usually the requests of one
// object. The zero value is ready for use.
type OverlappedSet struct {
	mu       sync.Mutex
	requests []*request // in the order of Start, some of them ended
}

// Start calls o.Start(ctx, call), and adds the request to the set.
//
// Errors: those of [Overlapped.Start].
func (s *OverlappedSet) Start(ctx context.Context, o *Overlapped, call func(context.Context) error) error {
	r, err := o.start(ctx, call) // without the lock: an OnEnd that it waits for may use the set
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = slices.DeleteFunc(s.requests, (*request).ended)
	s.requests = append(s.requests, r)
	return nil
}

// Cancel cancels the requests of the set one after the other, in the order of Start, and returns when
// all have ended. For each request it does what [Overlapped.Cancel] does. Requests that are started
// during Cancel continue.
//
// Errors: [nd.Unsuccessful] if a request was not canceled: it succeeded, or failed with another error
// than [nd.Canceled]. All requests have ended even so.
// Source: IND2Overlapped::CancelOverlappedRequests.
func (s *OverlappedSet) Cancel() error {
	s.mu.Lock()
	requests := s.requests
	s.requests = nil
	s.mu.Unlock()
	escaped := 0
	for _, r := range requests {
		r.stop()
		if !errors.Is(r.err, nd.Canceled) {
			escaped++
		}
	}
	if escaped > 0 {
		return &nd.OpError{
			Op: "cancel", Object: "overlapped requests", Status: nd.Unsuccessful,
			Detail: fmt.Sprintf("%d of %d ended before they could be canceled", escaped, len(requests)),
			Next:   "check their results",
		}
	}
	return nil
}
