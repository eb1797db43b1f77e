package softnd

import (
	"context"

	"github.com/softnd/softnd/internal/testkit/jobaccess"
	"github.com/softnd/softnd/shm"
)

// init lets tests in other packages reach the inside of a job.
func init() {
	jobaccess.Of = func(job any) jobaccess.Inside {
		j := job.(*Job)
		return jobaccess.Inside{Arena: j.arena, Member: j.member, Group: j.group, Request: j.requestFrom, Kept: j.kept}
	}
	jobaccess.Join = func(ctx context.Context, arena *shm.Arena, rank int, wait bool, options ...any) (any, error) {
		set := make([]Option, len(options))
		for i, o := range options {
			set[i] = o.(Option)
		}
		j := newJob(arena)
		s, err := readSettings(set)
		if err == nil && wait {
			err = j.start(ctx, rank, s, "init")
		} else if err == nil {
			err = j.enter(ctx, rank, s)
		}
		return j, err
	}
}

// kept counts the connection requests of a rank that this rank has not answered.
func (j *Job) kept(rank int) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.waiting[rank])
}
