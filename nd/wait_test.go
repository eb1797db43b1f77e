package nd

import (
	"context"
	"errors"
	"testing"
	"time"
)

// cannedQueue is a completion queue with the given results, which is closed when they are taken.
type cannedQueue struct {
	CompletionQueue
	results []Result
}

func (q *cannedQueue) Poll(results []Result) int {
	n := copy(results, q.results)
	q.results = q.results[n:]
	return n
}

func (q *cannedQueue) Wait(ctx context.Context, results []Result) (int, error) {
	if len(q.results) == 0 {
		return 0, &OpError{Op: "wait", Object: "completion queue", Status: Canceled}
	}
	return q.Poll(results), nil
}

func TestWaitOne(t *testing.T) {
	q := &cannedQueue{results: []Result{{RequestContext: 1}, {RequestContext: 2, Status: Canceled}, {RequestContext: 3, Status: IOTimeout}}}
	ep := whyEndpoint{err: &OpError{Op: "write", Status: AccessViolation}} // not done
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
	ep := whyEndpoint{err: &OpError{Op: "write", Status: AccessViolation}} // not done
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

// silentQueue is a queue whose Wait ends with its context only. Flush of its endpoint adds the results.
type silentQueue struct {
	cannedQueue
	later []Result
}

func (q *silentQueue) Wait(ctx context.Context, results []Result) (int, error) {
	<-ctx.Done()
	return 0, CanceledError(ctx, "wait", "completion queue")
}

// endingEndpoint is an endpoint of a silentQueue that ends while the queue is waited for.
type endingEndpoint struct {
	whyEndpoint
	queue *silentQueue
	done  chan struct{}
}

func (e endingEndpoint) Done() <-chan struct{} { return e.done }

func (e endingEndpoint) Flush(context.Context) error {
	e.queue.results, e.queue.later = append(e.queue.results, e.queue.later...), nil
	return nil
}

func TestResultsEndsWithTheEndpoint(t *testing.T) {
	for name, c := range map[string]struct {
		why  Status
		want int // results
	}{
		"the peer has disconnected": {ConnectionDisconnected, 1},
		"the connection has failed": {AccessViolation, 3},
	} {
		t.Run(name, func(t *testing.T) {
			q := &silentQueue{cannedQueue: cannedQueue{results: []Result{{RequestContext: 1}}}}
			q.later = []Result{{RequestContext: 2, Status: Canceled}, {RequestContext: 3, Status: Canceled}}
			ep := endingEndpoint{whyEndpoint{err: &OpError{Op: "serve", Status: c.why, Next: "connect again"}}, q, make(chan struct{})}
			var got []uint64
			var last error
			for r, err := range Results(t.Context(), q, ep) {
				if got = append(got, r.RequestContext); r.RequestContext == 1 {
					close(ep.done)
				}
				last = err
			}
			if len(got) != c.want+1 || got[c.want] != 0 || StatusOf(last) != c.why {
				t.Errorf("results %v, then %v; want %d and the cause of the end", got, last, c.want)
			}
			if e, ok := last.(*OpError); !ok || e.Next != "connect again" || e.Op != "wait" {
				t.Errorf("the last error is %#v, without the Next of its cause", last)
			}
			if r, err := WaitOne(t.Context(), q, ep); r != (Result{}) || !errors.Is(err, c.why) {
				t.Errorf("WaitOne after the end: %v, %v", r, err)
			}
		})
	}
}

// With an endpoint that stays connected, the end of the context ends WaitOne.
func TestWaitOneEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	q := new(silentQueue)
	time.AfterFunc(time.Millisecond, cancel)
	if _, err := WaitOne(ctx, q, endingEndpoint{queue: q, done: make(chan struct{})}); StatusOf(err) != Canceled || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want Canceled", err)
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
