package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/bench/measure"
)

// session is this process's part in a job, however it was started.
type session struct {
	world   *measure.World
	job     *softnd.Job    // in which this process is a rank; nil if it is none
	shared  bool           // every rank reports, not only rank 0
	over    atomic.Bool    // set when ranks may exit
	leave   []func() error // tell the ranks in C to leave
	started []<-chan error // how the processes that this process has started have ended
}

// start makes the process a rank of a job of this many ranks. It is the job of its launcher, the job with the given
// name, or a new one.
func (o *options) start(ctx context.Context, ranks int) (s *session, err error) {
	os.Setenv(softnd.EnvExec, o.executor)
	s = new(session)
	var job *softnd.Job
	named := o.server != "" || o.client != ""
	switch {
	case inJob() && named:
		return nil, errors.New("start: this process is a rank of a job: omit --server and --client, or start it without a launcher")
	case inJob():
		job, err = softnd.Init(ctx, softnd.WithExit())
	case named:
		s.shared = true
		job, err = o.meet(ctx, ranks, &s.over)
	default:
		job, err = s.startAlone(ctx, ranks)
	}
	if err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	s.job = job
	o.Hosts = len(job.Hosts())
	o.Pinned = o.pinned(job.Size()) && o.Hosts == 1
	if s.world, err = measure.NewWorld(ctx, job, o.Pinned, [2]io.ReadWriter{}, nil); err != nil {
		return nil, errors.Join(fmt.Errorf("start: %w", err), job.Close())
	}
	return s, nil
}

// end leaves the job together with the other ranks.
func (s *session) end(ctx context.Context) error {
	s.over.Store(true)
	var errs []error
	for _, leave := range s.leave {
		errs = append(errs, leave())
	}
	if s.job != nil {
		errs = append(errs, s.job.Barrier(ctx), s.job.Close())
	}
	for _, ended := range s.started {
		errs = append(errs, <-ended)
	}
	return errors.Join(errs...)
}
