package nd

import (
	"context"
	"iter"
)

// WaitOne blocks until cq has a result, and takes it. If the request has failed, WaitOne returns the
// result together with the error of [Result.Err](ep).
//
// ep is the endpoint that cq serves. If cq serves several endpoints, pass nil for ep. If WaitOne then
// returns a failed result, call its Err method with the endpoint that its EndpointContext identifies.
//
// WaitOne allocates memory. In a hot loop, call [CompletionQueue.Poll] with a slice that is reused.
//
// Errors: those of [CompletionQueue.Wait], with the zero Result; [Result.Err] of a failed result.
func WaitOne(ctx context.Context, cq CompletionQueue, ep Endpoint) (Result, error) {
	var r [1]Result
	if _, err := cq.Wait(ctx, r[:]); err != nil {
		return Result{}, err
	}
	return r[0], r[0].Err(ep)
}

// Results returns an iterator over the results of cq. Each step is a [WaitOne] with cq and ep. It
// blocks until there is a result, and yields the result and the error of its [Result.Err].
//
// A failed result does not end the iteration. The iteration ends when ctx ends, even if the queue
// still has results. It also ends after an error of [CompletionQueue.Wait]. In both cases, the last
// step yields the zero Result and the error; if ctx has ended, the error has status [Canceled].
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
			if _, err := cq.Wait(ctx, r); err != nil {
				yield(Result{}, err)
				return
			}
			if !yield(r[0], r[0].Err(ep)) {
				return
			}
		}
	}
}
