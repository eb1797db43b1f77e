package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/bench/measure"
)

// session is this process's part in a job, however it was started.
type session struct {
	world  *measure.World
	shared bool         // every rank reports, not only rank 0
	over   *atomic.Bool // set when ranks may exit
	wait   func() error // waits for the processes that this process has started
}

// start makes the process a rank of a job of this many ranks. It is the job of its launcher, the job with the given
// name, or a new one.
func (o *options) start(ctx context.Context, ranks int) (s *session, err error) {
	os.Setenv(softnd.EnvExec, o.executor)
	s = &session{over: new(atomic.Bool), wait: func() error { return nil }}
	var job *softnd.Job
	_, inJob := os.LookupEnv(softnd.EnvArenaFD)
	named := o.server != "" || o.client != ""
	switch {
	case inJob && named:
		return nil, errors.New("start: this process is a rank of a job: omit --server and --client, or start it without ndrun")
	case inJob:
		job, err = softnd.Init(ctx)
	case named:
		s.shared = true
		job, err = o.meet(ctx, ranks, s.over)
	default:
		job, err = s.startAlone(ctx, ranks)
	}
	if err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	o.Pinned = o.pinned(job.Size())
	if s.world, err = measure.NewWorld(ctx, job, o.Pinned); err != nil {
		return nil, errors.Join(fmt.Errorf("start: %w", err), job.Close())
	}
	return s, nil
}

// end leaves the job together with the other ranks.
func (s *session) end(ctx context.Context) error {
	s.over.Store(true)
	return errors.Join(s.world.Job.Barrier(ctx), s.world.Job.Close(), s.wait())
}
