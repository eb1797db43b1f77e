package ndcompat

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/softnd/softnd/nd"
)

// untilCanceled is a call that waits for its context.
func untilCanceled(ctx context.Context) error {
	<-ctx.Done()
	return nd.CanceledError(ctx, "wait", "test")
}

func TestOverlappedLife(t *testing.T) {
	var o Overlapped
	for _, wait := range []bool{false, true} {
		if err := o.Result(wait); err != nil {
			t.Errorf("the result of an operation that succeeded at once is %v", err)
		}
	}
	o.Cancel() // nothing to cancel

	for _, outcome := range []error{nil, nd.ConnectionRefused} {
		release := make(chan struct{})
		if err := o.Start(t.Context(), func(context.Context) error { <-release; return outcome }); err != nil {
			t.Fatal(err)
		}
		err := o.Result(false)
		if !errors.Is(err, nd.Pending) || nd.StatusOf(err).Failed() {
			t.Fatalf("the result of a running call is %v, want Pending, which is no failure", err)
		}
		if err := o.Start(t.Context(), untilCanceled); !errors.Is(err, nd.InvalidDeviceState) {
			t.Fatalf("a second request on the same Overlapped: %v, want InvalidDeviceState", err)
		}
		select {
		case <-o.Done():
			t.Fatal("the end was reported while the call runs")
		default:
		}
		close(release)
		<-o.Done()
		for _, wait := range []bool{false, true} {
			if err := o.Result(wait); err != outcome {
				t.Errorf("Result(%v) = %v, want the call's own %v", wait, err, outcome)
			}
		}
	}
}

func TestOverlappedCancel(t *testing.T) {
	var o Overlapped
	if err := o.Start(t.Context(), untilCanceled); err != nil {
		t.Fatal(err)
	}
	o.Cancel()
	if err := o.Result(false); !errors.Is(err, nd.Canceled) {
		t.Errorf("after Cancel the result is %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := o.Start(ctx, untilCanceled); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := o.Result(true); !errors.Is(err, nd.Canceled) || !errors.Is(err, context.Canceled) {
		t.Errorf("the end of its context ends a request with %v", err)
	}
}

func TestOverlappedReportsOnce(t *testing.T) {
	events := make(chan error, 4)
	o := Overlapped{OnEnd: func(o *Overlapped) { events <- o.Result(false) }}
	if err := o.Start(t.Context(), func(context.Context) error { return nd.IOTimeout }); err != nil {
		t.Fatal(err)
	}
	if o.Done() != nil {
		t.Error("a request with OnEnd reports through Done, too")
	}
	o.Cancel() // returns when the end was reported
	if len(events) != 1 {
		t.Fatalf("%d reports of one request", len(events))
	}
	if err := <-events; err != nd.IOTimeout {
		t.Errorf("OnEnd saw the result %v, want IOTimeout", err)
	}
}

// slowReport returns a request whose OnEnd waits for a gate, after which it tells the result.
func slowReport() (o *Overlapped, gate chan struct{}, seen chan error) {
	gate, seen = make(chan struct{}), make(chan error, 2)
	return &Overlapped{OnEnd: func(o *Overlapped) { <-gate; seen <- o.Result(false) }}, gate, seen
}

// stillWaits fails if c is closed within a little while.
func stillWaits(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
		t.Error(what)
	case <-time.After(20 * time.Millisecond):
	}
}

func TestOverlappedStartWaitsForTheReport(t *testing.T) {
	o, gate, seen := slowReport()
	if err := o.Start(t.Context(), func(context.Context) error { return nd.IOTimeout }); err != nil {
		t.Fatal(err)
	}
	if err := o.Result(true); err != nd.IOTimeout {
		t.Fatalf("the first request ended with %v", err)
	}
	brief, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := o.Start(brief, untilCanceled); !errors.Is(err, nd.Canceled) {
		t.Errorf("a Start whose context ends while OnEnd runs: %v, want Canceled", err)
	}
	started := make(chan struct{})
	go func() {
		defer close(started)
		if err := o.Start(t.Context(), untilCanceled); err != nil {
			t.Error(err)
		}
	}()
	stillWaits(t, started, "a request was started before the end of the one before it was reported")
	close(gate)
	if err := <-seen; err != nd.IOTimeout {
		t.Errorf("OnEnd saw the result %v, want that of the request that ended", err)
	}
	<-started
	o.Cancel()
	if err := <-seen; !errors.Is(err, nd.Canceled) {
		t.Errorf("OnEnd saw the result %v of the second request, want Canceled", err)
	}
}

func TestOverlappedSetCancelWaitsForReports(t *testing.T) {
	var set OverlappedSet
	slow, gate, seen := slowReport()
	if err := set.Start(t.Context(), slow, func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := slow.Result(true); err != nil {
		t.Fatal(err)
	}
	var other Overlapped
	if err := set.Start(t.Context(), &other, untilCanceled); err != nil {
		t.Fatal(err)
	}
	canceled := make(chan struct{})
	go func() {
		defer close(canceled)
		if err := set.Cancel(); !errors.Is(err, nd.Unsuccessful) {
			t.Errorf("Cancel of one request that had succeeded: %v, want Unsuccessful", err)
		}
	}()
	stillWaits(t, canceled, "Cancel returned before the end of a request was reported")
	close(gate)
	<-canceled
	if len(seen) != 1 {
		t.Errorf("%d reports when Cancel has returned, want 1", len(seen))
	}
}

func TestOverlappedSetCancelsInOrder(t *testing.T) {
	var set, other OverlappedSet
	requests := make([]Overlapped, 20)
	events := make(chan *Overlapped, len(requests)+2)
	for i := range requests {
		requests[i].OnEnd = func(o *Overlapped) { events <- o }
	}
	moved := Overlapped{}
	done := func(context.Context) error { return nil }
	if err := errors.Join(set.Start(t.Context(), &moved, done), moved.Result(true)); err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		if err := other.Start(t.Context(), &moved, untilCanceled); err != nil {
			t.Fatal(err)
		}
		for i := range requests {
			if err := set.Start(t.Context(), &requests[i], untilCanceled); err != nil {
				t.Fatal(err)
			}
		}
		set.Cancel()
		if len(events) != len(requests) {
			t.Fatalf("round %d: %d of %d requests were reported when Cancel returned", round, len(events), len(requests))
		}
		for i := range requests {
			if o := <-events; o != &requests[i] || !errors.Is(o.Result(false), nd.Canceled) {
				t.Fatalf("round %d: end %d is not of request %d, or not Canceled: %v", round, i, i, o.Result(false))
			}
		}
		if err := moved.Result(false); !errors.Is(err, nd.Pending) {
			t.Fatalf("a request of another set ended: %v", err)
		}
		other.Cancel()
	}
	if err := set.Start(t.Context(), &requests[0], untilCanceled); err != nil {
		t.Fatal(err)
	}
	if err := set.Start(t.Context(), &requests[0], untilCanceled); !errors.Is(err, nd.InvalidDeviceState) {
		t.Errorf("a second request on the same Overlapped: %v, want InvalidDeviceState", err)
	}
	set.Cancel()
}
