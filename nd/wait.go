package nd

import (
	"context"
	"errors"
	"iter"
)

// WaitOne blocks until cq has a result, and takes it. If the request has failed, WaitOne returns the
// result together with the error of [Explain](ep, result).
//
// ep is the endpoint that cq serves. If ep.Done() is closed and cq gets no further result, WaitOne
// returns the zero Result and an error with the status and the cause of ep.Err(). After a Disconnect of
// the peer, this status is [ConnectionDisconnected]. The receives are still posted then; they complete
// when this side calls [Connector.Disconnect] or closes ep.
//
// If cq serves several endpoints, pass nil for ep: WaitOne then blocks until there is a result, and the
// error is that of [Result.Err]. For the cause, call Explain with the endpoint that its EndpointContext
// identifies.
//
// WaitOne allocates memory. In a hot loop, call [CompletionQueue.Poll] with a slice that is reused.
//
// Errors: those of [CompletionQueue.Wait] and of the end of ep, with the zero Result; [Explain] of a
// failed result.
func WaitOne(ctx context.Context, cq CompletionQueue, ep Endpoint) (Result, error) {
	var r [1]Result
	if err := waitResult(ctx, cq, r[:], ep); err != nil {
		return Result{}, err
	}
	return r[0], Explain(ep, r[0])
}

// Results returns an iterator over the results of cq. Each step is a [WaitOne] with cq and ep. It
// blocks until there is a result, and yields the result and the error of [Explain](ep, result).
//
// A failed result does not end the iteration. The iteration ends when ctx ends, even if the queue
// still has results. It also ends after an error of [CompletionQueue.Wait], and when ep has ended and
// all results are taken, as WaitOne does. In each case, the last step yields the zero Result and the
// error; if ctx has ended, the error has status [Canceled].
//
// A loop that breaks loses no result, because the iterator takes a result only when the loop asks for
// it. Several goroutines may iterate over one queue. Each result goes to one of them.
func Results(ctx context.Context, cq CompletionQueue, ep Endpoint) iter.Seq2[Result, error] {
	return func(yield func(Result, error) bool) {
		for r := make([]Result, 1); ; {
			if ctx.Err() != nil { // Wait does not check it while the queue has results
				yield(Result{}, CanceledError(ctx, "results", "completion queue"))
				return
			}
			if err := waitResult(ctx, cq, r, ep); err != nil {
				yield(Result{}, err)
				return
			}
			if !yield(r[0], Explain(ep, r[0])) {
				return
			}
		}
	}
}

// EndpointWaiter is an optional interface of completion queues. [WaitOne] and [Results] use it.
type EndpointWaiter interface {
	// WaitEndpoint is [CompletionQueue.Wait], but also returns when ep.Done() is closed and the queue
	// gets no further result of ep. It returns 0 and nil then. A result of a receive that is posted
	// when the peer disconnects comes later only if this side ends the connection, too: WaitEndpoint
	// does not wait for it.
	//
	// Errors: those of Wait; [NotSupported] if ep is not an endpoint of the same provider.
	WaitEndpoint(ctx context.Context, results []Result, ep Endpoint) (int, error)
}

// waitResult takes a result of cq. It fails if ep has ended and there is none.
func waitResult(ctx context.Context, cq CompletionQueue, results []Result, ep Endpoint) error {
	if ep == nil {
		_, err := cq.Wait(ctx, results)
		return err
	}
	n, err := 0, error(NotSupported)
	if w, ok := cq.(EndpointWaiter); ok {
		n, err = w.WaitEndpoint(ctx, results, ep)
	}
	if err != nil && StatusOf(err) == NotSupported {
		n, err = waitUntilDone(ctx, cq, results, ep)
	}
	if n != 0 || err != nil {
		return err
	}
	cause := ep.Err()
	ended := &OpError{Op: "wait", Object: "completion queue", Status: StatusOf(cause), Detail: "the connection has ended, and no result is left"}
	ended.setCause(cause)
	return ended
}

// waitUntilDone is [EndpointWaiter.WaitEndpoint] for every provider. It starts a goroutine if it blocks.
func waitUntilDone(ctx context.Context, cq CompletionQueue, results []Result, ep Endpoint) (int, error) {
	if n := cq.Poll(results); n > 0 {
		return n, nil
	}
	open, end := context.WithCancel(ctx)
	defer end()
	go func() {
		select {
		case <-ep.Done():
			end()
		case <-open.Done():
		}
	}()
	n, err := cq.Wait(open, results)
	if ctx.Err() != nil || open.Err() == nil || !errors.Is(err, context.Canceled) {
		return n, err
	}
	if !errors.Is(ep.Err(), ConnectionDisconnected) {
		_ = ep.Flush(ctx) // a failed endpoint completes its requests later
		if ctx.Err() != nil {
			return 0, CanceledError(ctx, "wait", "completion queue")
		}
	}
	return cq.Poll(results), nil
}
