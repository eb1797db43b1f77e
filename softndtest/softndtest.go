// Package softndtest runs the ranks of a job inside a test. All ranks are in the process of the test.
// Therefore no launcher is needed, and the race detector sees all accesses of the ranks to Go memory.
//
//	func TestSum(t *testing.T) {
//		softndtest.Run(t, 4, func(ctx context.Context, job *softnd.Job) error {
//			return sum(ctx, job) // each rank runs in a goroutine of its own
//		})
//	}
//
// A test of effects between processes, such as the death of a rank, must start processes, for example
// with ndrun.
package softndtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/softnd/softnd"
)

// New starts a job of n ranks in this process, and returns one [softnd.Job] for each rank, indexed by
// rank. Each rank has the given options. When the test ends, a cleanup function closes the job at all
// ranks. A test may start several jobs.
//
// A collective call blocks until all ranks have made it, and [softnd.Job.Connect] blocks until the peer
// calls it too. Therefore make these calls in one goroutine for each rank, as [Run] does.
//
// If the job does not start, New ends the test with tb.Fatal. The goroutine that runs the test must
// call New.
func New(tb testing.TB, n int, options ...softnd.Option) []*softnd.Job {
	tb.Helper()
	if n < 1 {
		tb.Fatalf("softndtest: a job of %d ranks: want 1 or more", n)
	}
	name := "softndtest-" + rand.Text()
	jobs := make([]*softnd.Job, n)
	tb.Cleanup(func() {
		for rank, job := range jobs {
			if job == nil {
				continue
			}
			if err := job.Close(); err != nil {
				tb.Errorf("softndtest: close rank %d: %v", rank, err)
			}
		}
	})
	if err := each(tb.Context(), n, func(ctx context.Context, rank int) (err error) {
		jobs[rank], err = softnd.Join(ctx, name, rank, n, options...)
		return err
	}); err != nil {
		tb.Fatalf("softndtest: %v", err)
	}
	return jobs
}

// Run starts a job of n ranks as [New] does. It calls the function rank once for each rank, in a
// goroutine of its own, and returns when all calls have returned. If a call returns an error, Run
// cancels the context of all calls, and reports the error with tb.Errorf. The context also ends when
// [testing.TB.Context] ends.
//
// The function must not call tb.Fatal or tb.Skip, because it does not run in the goroutine of the test.
// It returns an error instead. If it calls tb.Fatal or tb.Skip nevertheless, Run reports an error.
func Run(tb testing.TB, n int, rank func(ctx context.Context, job *softnd.Job) error, options ...softnd.Option) {
	tb.Helper()
	jobs := New(tb, n, options...)
	if err := each(tb.Context(), n, func(ctx context.Context, i int) error { return rank(ctx, jobs[i]) }); err != nil {
		tb.Errorf("softndtest: %v", err)
	}
}

// errGoexit is the error of a call that does not return, because it ends its goroutine.
var errGoexit = errors.New("the function has ended its goroutine, as tb.Fatal and tb.Skip do: return an error instead")

// each calls f for each rank at the same time. It returns the first error, with its rank, when all
// calls have ended; the context of the others ends with that error.
func each(ctx context.Context, n int, f func(ctx context.Context, rank int) error) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var (
		calls sync.WaitGroup
		once  sync.Once
		first error
	)
	for rank := range n {
		calls.Go(func() {
			err := errGoexit
			defer func() {
				if err != nil {
					once.Do(func() {
						first = fmt.Errorf("rank %d: %w", rank, err)
						fail(first)
					})
				}
			}()
			err = f(ctx, rank)
		})
	}
	calls.Wait()
	return first
}
