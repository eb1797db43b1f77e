package endpoint

import (
	"context"
	"errors"
	"time"

	"github.com/softnd/softnd/nd"
)

// outcome is the result of an attempt to execute a request or to serve a ring entry.
type outcome int

const (
	blocked  outcome = iota // it waits for the peer, or for a time-out
	partial                 // the budget is used up; the rest follows
	executed                // finished; a request's status may still come from the peer
)

// quantum is the number of bytes that one call of progress transfers at most in each direction, so that
// a large transfer delays neither the program nor other endpoints.
const quantum = 1 << 20

// progressResult is the result of a call of progress.
type progressResult uint8

const (
	noProgress   progressResult = iota // there was nothing to do
	contended                          // another goroutine holds the lock of an endpoint or of the inbox, and may or may not make progress
	madeProgress                       // something has changed, or may have
)

func progressIf(progressed bool) progressResult {
	if progressed {
		return madeProgress
	}
	return noProgress
}

// errClosed is the error of a wait that Provider.Close ended.
var errClosed = errors.New("the provider is closed")

// Canceled returns the error of a call whose WaitFor returned err: an [nd.OpError] with the status [nd.Canceled].
// If the wait has slept, the text says for how long.
func Canceled(ctx context.Context, err error, op, object string) error {
	if errors.Is(err, errClosed) {
		return &nd.OpError{Op: op, Object: object, Status: nd.Canceled, Err: err, Next: "close the job, or the provider, after all calls have returned"}
	}
	canceled := nd.CanceledError(ctx, op, object)
	if e, wait := (*nd.OpError)(nil), (*endedWait)(nil); errors.As(canceled, &e) && errors.As(err, &wait) {
		e.Detail = "waited " + wait.waited.Round(time.Millisecond).String()
	}
	return canceled
}

// endedWait is the error of a context that has ended during a wait that sleeps.
type endedWait struct {
	error
	waited time.Duration
}

func (e *endedWait) Unwrap() error { return e.error }

// drainError returns the error of a call whose wait for a drain ended with err. Provider.Close
// ends such a wait, and the drain with it; that is no error.
func drainError(ctx context.Context, err error, op, object string) error {
	if err == nil || errors.Is(err, errClosed) {
		return nil
	}
	return Canceled(ctx, err, op, object)
}
