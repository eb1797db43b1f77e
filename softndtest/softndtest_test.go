package softndtest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/softndtest"
)

func TestNewReturnsTheRanksInOrder(t *testing.T) {
	for _, n := range []int{1, 3} {
		jobs := softndtest.New(t, n)
		if len(jobs) != n {
			t.Fatalf("%d ranks, want %d", len(jobs), n)
		}
		for rank, job := range jobs {
			if job.Rank() != rank || job.Size() != n {
				t.Errorf("rank %d of %d, want %d of %d", job.Rank(), job.Size(), rank, n)
			}
		}
	}
}

func TestNewClosesTheRanksAtTheEndOfTheTest(t *testing.T) {
	var jobs []*softnd.Job
	t.Run("inner", func(t *testing.T) { jobs = softndtest.New(t, 2) })
	for _, job := range jobs {
		if err := job.Barrier(t.Context()); !errors.Is(err, nd.InvalidHandle) {
			t.Errorf("after the test rank %d has %v, want InvalidHandle", job.Rank(), err)
		}
	}
}

func TestRunGivesEachRankAGoroutine(t *testing.T) {
	softndtest.Run(t, 4, func(ctx context.Context, job *softnd.Job) error {
		all, err := job.Exchange(ctx, fmt.Append(nil, job.Rank()))
		if err == nil && string(all[3]) != "3" {
			err = fmt.Errorf("rank 3 sent %q", all[3])
		}
		return err
	})
}

// recorder is a test that keeps what is reported as a failure of it.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(r)
}

func TestRunCancelsTheOtherRanksAfterAnError(t *testing.T) {
	r := &recorder{TB: t}
	softndtest.Run(r, 3, func(ctx context.Context, job *softnd.Job) error {
		if job.Rank() == 1 {
			return errors.New("no more")
		}
		return job.Barrier(ctx) // which rank 1 does not enter
	})
	if len(r.errors) != 1 || r.errors[0] != "softndtest: rank 1: no more" {
		t.Errorf("reported %q", r.errors)
	}
}

// A rank that calls FailNow does not leave the others waiting for it.
func TestRunCancelsTheOtherRanksAfterGoexit(t *testing.T) {
	r := &recorder{TB: t}
	softndtest.Run(r, 3, func(ctx context.Context, job *softnd.Job) error {
		if job.Rank() == 1 {
			runtime.Goexit()
		}
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		err := job.Barrier(ctx) // which rank 1 does not enter
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Errorf("rank %d is not canceled", job.Rank())
		}
		return err
	})
	if len(r.errors) != 1 || !strings.HasPrefix(r.errors[0], "softndtest: rank 1: the function has ended its goroutine") {
		t.Errorf("reported %q", r.errors)
	}
}

func TestNewRefusesAJobWithoutRanks(t *testing.T) {
	for _, n := range []int{0, -1} {
		r := &recorder{TB: t}
		func() {
			defer func() {
				if got := recover(); got != any(r) {
					t.Errorf("%d ranks: recovered %v, reported %q", n, got, r.errors)
				}
			}()
			softndtest.New(r, n)
		}()
	}
}

func TestNewFailsTheTestIfTheJobDoesNotStart(t *testing.T) {
	r := &recorder{TB: t}
	defer func() {
		if got := recover(); got != any(r) || len(r.errors) != 1 || !strings.Contains(r.errors[0], "exchange limit of 0 bytes") {
			t.Errorf("recovered %v, reported %q", got, r.errors)
		}
	}()
	softndtest.New(r, 2, softnd.WithExchangeLimit(0))
}
