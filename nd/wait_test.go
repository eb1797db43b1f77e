package nd

import (
	"context"
	"errors"
	"testing"
)

// cannedQueue is a completion queue with the given results, which is closed when they are taken.
type cannedQueue struct {
	CompletionQueue
	results []Result
}

func (q *cannedQueue) Wait(ctx context.Context, results []Result) (int, error) {
	if len(q.results) == 0 {
		return 0, &OpError{Op: "wait", Object: "completion queue", Status: Canceled}
	}
	n := copy(results, q.results)
	q.results = q.results[n:]
	return n, nil
}

func TestWaitOne(t *testing.T) {
	q := &cannedQueue{results: []Result{{RequestContext: 1}, {RequestContext: 2, Status: Canceled}, {RequestContext: 3, Status: IOTimeout}}}
	ep := whyEndpoint{err: &OpError{Op: "write", Status: AccessViolation}}
	if r, err := WaitOne(t.Context(), q, ep); err != nil || r.RequestContext != 1 {
		t.Errorf("a success: %v, %v", r, err)
	}
	if r, err := WaitOne(t.Context(), q, ep); r.RequestContext != 2 || !errors.Is(err, Canceled) || !errors.Is(err, AccessViolation) {
		t.Errorf("a failure: %v, %v, want Canceled and the cause of the endpoint", r, err)
	}
	if r, err := WaitOne(t.Context(), q, nil); r.RequestContext != 3 || !errors.Is(err, IOTimeout) || errors.Is(err, AccessViolation) {
		t.Errorf("a failure without an endpoint: %v, %v", r, err)
	}
	if r, err := WaitOne(t.Context(), q, ep); r != (Result{}) || !errors.Is(err, Canceled) || errors.Is(err, AccessViolation) {
		t.Errorf("no result: %v, %v, want the error of Wait", r, err)
	}
}

func TestResultsEndsWithTheErrorOfWait(t *testing.T) {
	q := &cannedQueue{results: []Result{{RequestContext: 1}, {RequestContext: 2, Status: Canceled}, {RequestContext: 3}}}
	ep := whyEndpoint{err: &OpError{Op: "write", Status: AccessViolation}}
	var got []uint64
	var last error
	for r, err := range Results(t.Context(), q, ep) {
		got = append(got, r.RequestContext)
		last = err
		if failed := r.RequestContext == 2; failed != errors.Is(err, AccessViolation) {
			t.Errorf("result %d: %v", r.RequestContext, err)
		}
	}
	if len(got) != 4 || got[2] != 3 || got[3] != 0 || !errors.Is(last, Canceled) {
		t.Errorf("results %v, then %v; want 1, 2, 3 and the error of Wait", got, last)
	}
}

func TestResultsLosesNothingOnBreak(t *testing.T) {
	q := &cannedQueue{results: []Result{{RequestContext: 1}, {RequestContext: 2}, {RequestContext: 3}}}
	for want := uint64(1); want <= 3; want++ {
		for r := range Results(t.Context(), q, nil) {
			if r.RequestContext != want {
				t.Errorf("got result %d, want %d", r.RequestContext, want)
			}
			break
		}
	}
}

func TestResultsEndsWithItsContextWhileTheQueueHasResults(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	q := &cannedQueue{results: []Result{{RequestContext: 1}, {RequestContext: 2}, {RequestContext: 3}}}
	var got []uint64
	var last error
	for r, err := range Results(ctx, q, nil) {
		got = append(got, r.RequestContext)
		last = err
		cancel()
	}
	if len(got) != 2 || got[1] != 0 || !errors.Is(last, Canceled) || !errors.Is(last, context.Canceled) {
		t.Errorf("results %v, then %v; want 1, then Canceled with context.Canceled in it", got, last)
	}
	if len(q.results) != 2 {
		t.Errorf("%d results left in the queue, want 2", len(q.results))
	}
}
