package ranktest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

// RoleJoins is the last rank of a named job until it is killed. Its arguments are the name and the number of ranks.
var RoleJoins = proctest.Role("rejoin victim", func(s *proctest.Self) error {
	var ranks int
	if _, err := fmt.Sscan(s.Args[1], &ranks); err != nil {
		return err
	}
	if _, err := softnd.Join(s.Ctx, s.Args[0], ranks-1, ranks); err != nil {
		return err
	}
	s.Say("joined")
	_, err := s.Hear()
	return err
})

// Join joins a named job as the ranks from first to below end, all at once.
func Join(t testing.TB, name string, ranks int, first, end int) []*softnd.Job {
	t.Helper()
	jobs := make([]*softnd.Job, end-first)
	errs := make(chan error, len(jobs))
	for i := range jobs {
		go func() {
			j, err := softnd.Join(proctest.Context(t), name, first+i, ranks)
			jobs[i] = j
			errs <- err
		}()
	}
	for range jobs {
		if err := proctest.Receive(t, "a rank joins", errs); err != nil {
			t.Fatal(err)
		}
	}
	return jobs
}

// Each calls f for each rank at the same time, and returns the errors.
func Each(jobs []*softnd.Job, f func(j *softnd.Job) error) []error {
	errs := make([]error, len(jobs))
	var done sync.WaitGroup
	for i, j := range jobs {
		done.Go(func() { errs[i] = f(j) })
	}
	done.Wait()
	return errs
}
