// Package softnd makes a process a rank of a job. A [Job] has the rank's number, collective calls,
// connections with other ranks, and the adapter, which creates all other objects.
//
// A process that calls [Init] becomes the rank that its launcher (ndrun, mpiexec, mpirun or srun)
// assigned to it. Started without a launcher, a program is rank 0 of 1. [Join] makes a job of
// processes that no common launcher has started.
//
//	job, err := softnd.Init(ctx)
//	if err != nil { ... }
//	defer job.Close()
//	mr, err := job.Adapter().Allocate(ctx, 1<<20, nd.AllowLocalWrite)
//
// Memory, requests and completions are those of the NetworkDirect model in package nd. Package
// softndtest starts the ranks of a job inside a test.
package softnd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/internal/bootstrap"
	"github.com/softnd/softnd/internal/panicking"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// Environment variables. ndrun sets the first five, and EnvTerminal. Users set EnvExec,
// EnvReceiveTimeout and EnvDebug.
const (
	EnvRank    = bootstrap.EnvRank    // SOFTND_RANK: 0 to size-1
	EnvSize    = bootstrap.EnvSize    // SOFTND_SIZE: number of ranks
	EnvArenaFD = bootstrap.EnvArenaFD // SOFTND_ARENA_FD: number of the inherited descriptor of the arena
	EnvAppNum  = "SOFTND_APPNUM"      // number of the program that the rank runs, from 0
	EnvFabric  = bootstrap.EnvFabric  // SOFTND_FABRIC: address of ndrun's control channel
	EnvExec    = "SOFTND_EXEC"        // auto or target: which process moves the bytes, see WithExecutor
	EnvDebug   = bootstrap.EnvDebug   // SOFTND_DEBUG: 1 makes Init print a line about the launcher that it has found

	// EnvReceiveTimeout is how long a Send waits for the peer to post a Receive: a duration
	// such as 500ms, 0, or unlimited. See WithReceiveTimeout.
	EnvReceiveTimeout = "SOFTND_RECEIVE_TIMEOUT"

	// EnvTerminal is 1 if the output of a rank appears on a terminal, although its standard output
	// is a pipe. ndrun then shows a line at a carriage return too.
	EnvTerminal = "SOFTND_TERMINAL"
)

// Ports of a rank.
const (
	connectPort = 1 // of each rank, for Connect
	dialPort    = 2 // of a rank that has called Listen, for Dial
)

// Job is this process's membership in a job. Any number of goroutines may call its methods at once.
// All ranks must make the same collective calls (Barrier, Exchange, ExchangeWindows) in the same
// order.
type Job struct {
	arena    *shm.Arena
	detach   func() error     // closes the arena
	place    *bootstrap.Place // nil after Join
	member   *shm.Member
	group    *shm.Group
	provider *endpoint.Provider
	adapter  nd.Adapter
	listener nd.Listener

	collective asym.BiasedMutex // one collective call at a time
	broken     error            // why every further collective call fails; guarded by collective
	deaths     uint64           // number of deaths at the last check of all ranks; guarded by collective
	checkedAt  time.Time        // time of that check; guarded by collective

	exchangeLimit uint64 // of the blobs of all ranks together, in bytes

	closed  atomic.Bool
	ballast *strings.Builder // see newBallast

	mu      sync.Mutex
	waiting map[int][]nd.Connector // connection requests by rank; guarded by mu
}

// Init makes the process a rank of its job, and returns when all ranks have called it, or ctx ends.
// The launcher passes the job and the rank in the environment. It may be ndrun, a launcher that
// speaks PMI (MPICH's mpiexec, srun with --mpi=pmi2), Open MPI's mpirun, or srun alone. Without a
// launcher the process is a job of its own. Launchers that speak PMI allow one Init per process.
//
// Init fails if
//
//   - the environment is incomplete or contradictory; the error names the variable;
//   - the arena cannot be attached or created, with the errors of [shm.Attach] and
//     [shm.OpenFabric], such as [shm.ErrVersion];
//   - ctx ends before all ranks have called Init; the error has [nd.Canceled], and names the ranks
//     that are missing;
//   - the launcher has started a rank on another host; the error names the rank.
func Init(ctx context.Context, options ...Option) (*Job, error) {
	s, err := readSettings(options)
	if err != nil {
		return nil, fmt.Errorf("softnd: init: %w", err)
	}
	p, err := bootstrap.Find(ctx)
	if err != nil {
		return nil, fmt.Errorf("softnd: init: %w", err)
	}
	j := newJob(p.Arena, p.Detach)
	if err := j.start(ctx, p.Rank, s); err != nil {
		if errors.Is(err, shm.ErrTaken) {
			err = fmt.Errorf("%w; %s", err, p.Taken)
		}
		return nil, errors.Join(fmt.Errorf("softnd: init: rank %d of %d: %w", p.Rank, p.Arena.Ranks(), err), j.Close(), p.HangUp())
	}
	j.place, j.ballast = p, newBallast(p.Arena.Ranks())
	current.Store(j)
	return j, nil
}

// newJob returns a job without a rank yet: Close releases only the arena.
func newJob(arena *shm.Arena, detach func() error) *Job {
	return &Job{arena: arena, detach: detach, waiting: make(map[int][]nd.Connector)}
}

// start makes this process a rank of the arena's job, and waits for the other ranks. If it fails,
// the caller closes the job.
func (j *Job) start(ctx context.Context, rank int, s settings) (err error) {
	j.exchangeLimit = s.exchange
	if j.member, err = j.arena.Join(rank); err != nil {
		return err
	}
	if j.group, err = j.member.JoinGroup(); err != nil {
		return err
	}
	if s.logger != nil {
		s.provider.EventHandler = s.logger.With("rank", rank).Handler()
	}
	if j.provider, err = endpoint.New(j.member, s.provider); err != nil {
		return err
	}
	id, err := j.provider.ResolveAddress(endpoint.Address(j.member.ID()))
	if err != nil {
		return err
	}
	if j.adapter, err = j.provider.OpenAdapter(ctx, id); err != nil {
		return err
	}
	if j.listener, err = j.listen(ctx, connectPort); err != nil {
		return err
	}
	err = j.barrier(ctx, "init") // without the lock: no other goroutine has this job yet
	if absent := j.absent(); errors.Is(err, nd.Canceled) && absent != "" {
		err = fmt.Errorf("%w; missing: %s", err, absent)
	}
	return err
}

// absent returns the names of the ranks that have not joined the group yet, and "" if all have.
func (j *Job) absent() string {
	const most = 8
	var names []string
	for rank := range j.Size() {
		if _, ok := j.arena.MemberOf(rank); !ok {
			names = append(names, fmt.Sprintf("rank %d", rank))
		}
	}
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// Rank returns the number of this process in the job, 0 to Size-1.
func (j *Job) Rank() int { return j.group.Rank() }

// Size returns the number of ranks.
func (j *Job) Size() int { return j.arena.Ranks() }

// Adapter returns the adapter of this rank.
func (j *Job) Adapter() nd.Adapter { return j.adapter }

// usable returns an error of op if the job is closed.
func (j *Job) usable(op string) error {
	if j.closed.Load() {
		return &nd.OpError{Op: op, Object: "job", Status: nd.InvalidHandle, Detail: "the job is closed"}
	}
	return nil
}

// Close leaves the job. Connections that are still up are aborted. Call Barrier first if the ranks
// end together. Objects of the job cannot be used afterwards: their calls fail, and
// [nd.MemoryRegion.Bytes] returns nil. A slice of memory from Allocate that the program has kept
// reads as zeros, and stores to it are lost. Calls that race with Close return an error or no
// result. Close reports to ndrun that this rank ends normally. ndrun names the ranks that exit
// without Close.
//
// A deferred Close during a panic returns [nd.Pending] at first, and closes the job one second later
// if the process still runs. Without this delay, errors of the other ranks could bury the
// panic message.
func (j *Job) Close() error {
	if panicking.Postpone(func() { _ = j.Close() }) {
		return &nd.OpError{Op: "close", Object: "job", Status: nd.Pending, Detail: "the goroutine panics: the job is closed in a second if the process still runs"}
	}
	if j.closed.Swap(true) {
		return nil
	}
	var errs []error
	if j.listener != nil {
		errs = append(errs, j.listener.Close())
	}
	if j.provider != nil {
		errs = append(errs, j.provider.Close())
	}
	// A collective call that Close has just ended still has to free memory.
	j.collective.Lock()
	defer j.collective.Unlock()
	if j.member != nil {
		errs = append(errs, j.member.Leave())
	}
	current.CompareAndSwap(j, nil)
	j.ballast = nil
	return errors.Join(append(errs, j.detach(), j.place.Leave())...)
}
