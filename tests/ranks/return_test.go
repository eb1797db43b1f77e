package ranks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/testkit/jobaccess"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/ranktest"
	"github.com/softnd/softnd/nd"
)

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
	t.Parallel()
	ctx := proctest.Context(t)
	name := fmt.Sprintf("softnd-test-return-%d-%d-%v-%v", os.Getpid(), ranks, dies, exchange)
	last := ranks - 1
	var others []*softnd.Job
	if dies {
		victim := proctest.StartWith(t, nil, ranktest.RoleJoins, name, ranks)
		others = ranktest.Join(t, name, ranks, 0, last)
		victim.Expect("joined")
		victim.Kill()
	} else {
		all := ranktest.Join(t, name, ranks, 0, ranks)
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
	var err error
	for limit := 300 * time.Millisecond; ; limit *= 2 {
		early, cancel := context.WithTimeout(ctx, limit)
		_, err = softnd.Join(early, name, last, ranks)
		cancel()
		if ctx.Err() != nil || err == nil || !strings.Contains(err.Error(), "no member of the fabric answers") {
			break // else the machine is loaded: the process has not come as far as the ranks
		}
	}
	if !errors.Is(err, nd.Canceled) || !strings.Contains(err.Error(), "rank 0 (has not left an earlier job)") {
		t.Errorf("a process joins as rank %d while the others still have the job: %v", last, err)
	}
	again := make(chan *softnd.Job, 1)
	go func() {
		j, err := softnd.Join(ctx, name, last, ranks)
		if err != nil {
			t.Error(err)
		}
		again <- j
	}()
	inside := jobaccess.Of(others[0])
	proctest.Eventually(t, "the process waits", func() bool {
		id, ok := inside.Arena.MemberOf(last)
		known, same := inside.Group.Member(last)
		return ok && !same && id != known
	})
	gone := fmt.Sprintf("rank %d has died or left", last)
	for rank, err := range ranktest.Each(others, func(j *softnd.Job) error {
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
	if id, ok := inside.Group.Member(last); ok {
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
	others = append(ranktest.Join(t, name, ranks, 0, last), proctest.Receive(t, "the process joins", again))
	for rank, err := range ranktest.Each(others, func(j *softnd.Job) error {
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
