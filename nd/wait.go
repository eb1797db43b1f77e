package nd

import (
	"context"
	"iter"
)

// WaitOne takes one result from cq, and blocks until there is one. If the result is a failure,
// WaitOne returns it together with the error of [Result.Err], which has the cause that ep gives.
// ep is the endpoint whose results cq collects. If cq serves several endpoints, pass nil, and call
// Result.Err with the endpoint that [Result].EndpointContext names.
//
// WaitOne allocates. A hot loop calls [CompletionQueue.Poll] with a slice of its own.
//
// Errors: those of [CompletionQueue.Wait], with the zero Result; [Result.Err] of a failed result.
func WaitOne(ctx context.Context, cq CompletionQueue, ep Endpoint) (Result, error) {
	var r [1]Result
	if _, err := cq.Wait(ctx, r[:]); err != nil {
		return Result{}, err
	}
	return r[0], r[0].Err(ep)
}

// Results returns an iterator over the results of cq, in the order of the queue. Each step blocks
// until there is a result. Each result comes with its [Result.Err], nil for a success; ep is as for
// [WaitOne]. A failed result does not end the iteration. The iteration ends when ctx ends, even if the queue
// still has results: the last step then yields the zero Result and [Canceled]. It also ends after an
// error of [CompletionQueue.Wait], which comes with the zero Result.
//
// A loop that breaks loses no result: the iterator takes each result when the loop asks for it.
// Several goroutines may iterate over one queue; each result goes to one of them.
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
