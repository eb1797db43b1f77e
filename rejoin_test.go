package softnd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// roleRejoinVictim is the last rank of a named job until it is killed.
var roleRejoinVictim = proctest.Role("rejoin victim", func(s *proctest.Self) error {
	var ranks int
	if _, err := fmt.Sscan(s.Args[1], &ranks); err != nil {
		return err
	}
	if _, err := Join(s.Ctx, s.Args[0], ranks-1, ranks); err != nil {
		return err
	}
	s.Say("joined")
	_, err := s.Hear()
	return err
})

// joinAll joins a job as several ranks at once.
func joinAll(t *testing.T, name string, ranks int, first, end int) []*Job {
	t.Helper()
	jobs := make([]*Job, end-first)
	errs := make(chan error, len(jobs))
	for i := range jobs {
		go func() {
			j, err := Join(proctest.Context(t), name, first+i, ranks)
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

// TestRankThatReturnsIsNotTheOldOne: a rank dies or leaves, and a process joins as that rank. The collective calls of the others
// fail. The process waits until they have left the job. Then all can join it again.
func TestRankThatReturnsIsNotTheOldOne(t *testing.T) {
	for _, ranks := range []int{2, 3} {
		for _, dies := range []bool{false, true} {
			for _, exchange := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d ranks, dies %v, exchange %v", ranks, dies, exchange), func(t *testing.T) {
					testReturn(t, ranks, dies, exchange)
				})
			}
		}
	}
}

func testReturn(t *testing.T, ranks int, dies, exchange bool) {
	ctx := proctest.Context(t)
	name := fmt.Sprintf("softnd-test-return-%d-%d-%v-%v", os.Getpid(), ranks, dies, exchange)
	last := ranks - 1
	var others []*Job
	if dies {
		victim := proctest.StartWith(t, nil, roleRejoinVictim, name, ranks)
		others = joinAll(t, name, ranks, 0, last)
		victim.Expect("joined")
		victim.Kill()
	} else {
		all := joinAll(t, name, ranks, 0, ranks)
		others = all[:last]
		if err := all[last].Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, j := range others {
			_ = j.Close()
		}
	})
	early, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if _, err := Join(early, name, last, ranks); !errors.Is(err, nd.Canceled) || !strings.Contains(err.Error(), "rank 0 (has not left an earlier job)") {
		t.Errorf("a process joins as rank %d while the others still have the job: %v", last, err)
	}
	again := make(chan *Job, 1)
	go func() {
		j, err := Join(ctx, name, last, ranks)
		if err != nil {
			t.Error(err)
		}
		again <- j
	}()
	proctest.Eventually(t, "the process waits", func() bool {
		id, ok := others[0].arena.MemberOf(last)
		known, same := others[0].group.Member(last)
		return ok && !same && id != known
	})
	gone := fmt.Sprintf("rank %d has died or left", last)
	for rank, err := range eachJob(others, func(j *Job) error {
		if exchange {
			_, err := j.Exchange(ctx, []byte{1})
			return err
		}
		return j.Barrier(ctx)
	}) {
		if !errors.Is(err, nd.ConnectionAborted) || !strings.Contains(err.Error(), gone) {
			t.Errorf("rank %d: %v, want %q", rank, err, gone)
		}
	}
	if id, ok := others[0].memberOf(last); ok {
		t.Errorf("rank %d is %v", last, id)
	}
	select {
	case <-again:
		t.Fatal("the process has joined although the others have not left")
	default:
	}
	for _, j := range others {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}
	others = append(joinAll(t, name, ranks, 0, last), proctest.Receive(t, "the process joins", again))
	for rank, err := range eachJob(others, func(j *Job) error {
		for round := range byte(4) {
			all, err := j.Exchange(ctx, []byte{round, byte(j.Rank())})
			if err != nil {
				return err
			}
			for rank, blob := range all {
				if string(blob) != string([]byte{round, byte(rank)}) {
					return fmt.Errorf("round %d: %v from rank %d", round, blob, rank)
				}
			}
			if err := j.Barrier(ctx); err != nil {
				return err
			}
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("rank %d, after all have joined again: %v", rank, err)
		}
	}
}
