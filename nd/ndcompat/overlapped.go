package ndcompat

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/softnd/softnd/nd"
)

// Overlapped runs a blocking control call as an overlapped request: Start starts it in the
// background, and Result returns its result later. An Overlapped has one request at a time, and may
// be used again when that has ended. The zero value is ready for use.
//
// The end of a request is reported once, through Done or through OnEnd.
// Source: NetworkDirect IND2Overlapped, INDOverlapped, OVERLAPPED.
type Overlapped struct {
	// OnEnd, if not nil, is called at the end of each request, and Done reports nothing. With it,
	// several requests can report to one queue of events. Result returns the outcome when OnEnd is
	// called. OnEnd must not call Start or Cancel, because they wait until it has returned. Set it
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

// Start runs call in the background; the end of ctx cancels it. Calls started one right after the
// other may reach their object in any order. While OnEnd runs for the latest request, Start waits
// for its return, so that OnEnd sees the result of the request that has ended.
//
// Errors: [nd.InvalidDeviceState] while the latest request is pending, which continues; [nd.Canceled] when
// ctx ends before OnEnd has returned. Nothing is started then.
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

// Result returns the error of the latest call. It may be called repeatedly. It returns nil
// if no call was started.
//
// Errors: [nd.Pending], which is not a failure, while the call runs and wait is false; otherwise
// that of the call.
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

// Done returns a channel that is closed when the latest request ends. Without a request, and with
// OnEnd, it returns nil.
func (o *Overlapped) Done() <-chan struct{} {
	if r := o.latest(); r != nil && o.OnEnd == nil {
		return r.returned
	}
	return nil
}

// Cancel ends the context of the pending request, if there is one, and returns when the request has
// ended and was reported. A call that ends at the same moment keeps its own result.
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

// OverlappedSet is a set of requests, usually those of one object, that can be canceled together.
// The zero value is ready for use.
type OverlappedSet struct {
	mu       sync.Mutex
	requests []*request // in the order of Start, some of them ended
}

// Start is o.Start for a request that belongs to the set.
//
// Errors: as [Overlapped.Start].
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

// Cancel cancels the pending requests of the set in the order in which they were started. It cancels
// each when the one before it has ended and was reported, and returns after the last. Requests that
// are started meanwhile continue.
//
// Errors: [nd.Unsuccessful] when some of them ended with another result than [nd.Canceled]; all have
// ended then too.
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
