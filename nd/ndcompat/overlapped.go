package ndcompat

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/softnd/softnd/nd"
)

// Overlapped gives a blocking control call the life of an overlapped request: it is started, goes
// on in the background, and its result is asked for later. One Overlapped carries one request at
// a time and may be used again when that has ended. The zero value is ready for use.
//
// The end of a request is reported once, through Done or through OnEnd.
// Source: NetworkDirect IND2Overlapped, INDOverlapped, OVERLAPPED.
type Overlapped struct {
	// OnEnd, when not nil, is called at the end of each request, and Done reports nothing: this is
	// how several requests report to one queue of events. Result has the outcome by then. OnEnd
	// must call neither Start nor Cancel, which wait for it. Set it before Start.
	OnEnd func(*Overlapped)

	mu      sync.Mutex
	current *request // the latest; nil before the first
}

// request is one call that Start has started.
type request struct {
	cancel   context.CancelFunc
	err      error         // what the call returned; valid when returned is closed
	returned chan struct{} // closed when the call has returned
	reported chan struct{} // closed when OnEnd has returned too; without OnEnd the same channel
}

// Start runs call in the background; the end of ctx cancels it. Calls that are started one right
// after the other may reach their object in any order. While OnEnd reports the end of the latest
// request, Start waits for it, so that OnEnd sees the result that it is called for.
//
// Errors: [nd.InvalidDeviceState] while the latest request is pending, which goes on; [nd.Canceled] when
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
			Detail: "its latest request is pending", Next: "wait for the end, or use another Overlapped",
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

// Result returns what the latest call returned. It may be asked for repeatedly. Without a
// request the result is nil: the operation that was to be waited for succeeded at once.
//
// Errors: [nd.Pending], not a failure, while the call runs and wait is false; else the call's own.
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

// Done returns a channel that is closed when the latest request ends. It is nil, and reports
// nothing, without a request and with OnEnd.
func (o *Overlapped) Done() <-chan struct{} {
	if r := o.latest(); r != nil && o.OnEnd == nil {
		return r.returned
	}
	return nil
}

// Cancel ends the context of the pending request, if there is one, and returns when it has ended
// and was reported. A call that finished at the same moment keeps its own result.
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

// pending tells whether the call runs; ended, whether its end was reported, too.
func (r *request) pending() bool { return !closed(r.returned) }
func (r *request) ended() bool   { return closed(r.reported) }

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

// OverlappedSet is the requests of one object, so that all of them can be canceled together. The
// zero value is ready for use.
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

// Cancel cancels the pending requests of the set in the order in which they were started, each
// when the one before it has ended and was reported, and returns after the last. Requests that
// are started meanwhile go on.
//
// Errors: [nd.Unsuccessful] when some of them ended with another result than [nd.Canceled]; all have
// ended all the same.
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
			Next:   "look at their results",
		}
	}
	return nil
}
