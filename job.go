// Package softnd is the door for one rank of a job: who am I, who are the
// others, and the adapter through which all memory moves.
//
// Under ndrun every process that calls [Init] becomes the rank that it was
// started as, and so it does under mpiexec, mpirun and srun; started alone, a
// program is rank 0 of 1.
//
//	job, err := softnd.Init(ctx)
//	if err != nil { ... }
//	defer job.Close()
//	mr, err := job.Adapter().Allocate(ctx, 1<<20, nd.AllowLocalWrite)
//
// Everything after that is the NetworkDirect model of package nd.
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

// Environment of a rank. ndrun sets the first five, and EnvTerminal; the user may set
// EnvExec, EnvReceiveTimeout and EnvDebug.
const (
	EnvRank    = bootstrap.EnvRank    // SOFTND_RANK: 0 to size-1
	EnvSize    = bootstrap.EnvSize    // SOFTND_SIZE: number of ranks
	EnvArenaFD = bootstrap.EnvArenaFD // SOFTND_ARENA_FD: number of the inherited descriptor of the arena
	EnvAppNum  = "SOFTND_APPNUM"      // number of the program that the rank runs, from 0
	EnvFabric  = bootstrap.EnvFabric  // SOFTND_FABRIC: where ndrun hands out the arena if the descriptor was lost, and learns how ranks end
	EnvExec    = "SOFTND_EXEC"        // auto or target: which process moves the bytes, see WithExecutor
	EnvDebug   = bootstrap.EnvDebug   // SOFTND_DEBUG: 1 makes Init print a line about the launcher that it has found

	// EnvReceiveTimeout is how long a Send waits for the peer to post a Receive: a duration
	// such as 500ms, 0, or unlimited. See WithReceiveTimeout.
	EnvReceiveTimeout = "SOFTND_RECEIVE_TIMEOUT"

	// EnvTerminal is 1 if what a rank prints appears on a terminal. Its standard
	// output is a pipe all the same. A carriage return shows a line at once.
	EnvTerminal = "SOFTND_TERMINAL"
)

// Ports of a rank.
const (
	connectPort = 1 // of each rank, for Connect
	dialPort    = 2 // of a rank that has called Listen, for Dial
)

// Job is this process's part in a job. Its methods are safe for concurrent
// use; collective calls (Barrier, Exchange, ExchangeWindows) must be made by
// all ranks in the same order.
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
	broken     error            // why no collective call can succeed any more; guarded by collective
	deaths     uint64           // when we last looked who is gone; guarded by collective
	looked     time.Time        // when that was; guarded by collective

	exchangeLimit uint64 // bytes of the blobs of all ranks

	closed  atomic.Bool
	ballast *strings.Builder // see newBallast

	mu      sync.Mutex
	waiting map[int][]nd.Connector // connection requests by rank; guarded by mu
}

// Init makes the process a rank of its job, and returns when all ranks have
// done so or ctx ends. Which job that is, the launcher has said in the
// environment: ndrun, one that speaks PMI (MPICH's mpiexec, srun with
// --mpi=pmi2), Open MPI's mpirun, or srun alone; without any of them the
// process is a job of its own. Launchers that speak PMI allow one Init in a
// process.
//
// Errors name what is wrong with the environment, or are those of
// [shm.Attach] and [shm.OpenFabric] ([shm.ErrVersion],
// ...), or name the ranks that had not come when ctx ended, or a rank that
// the launcher has put on another host.
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

func newJob(arena *shm.Arena, detach func() error) *Job {
	return &Job{arena: arena, detach: detach, waiting: make(map[int][]nd.Connector)}
}

func (j *Job) start(ctx context.Context, rank int, s settings) (err error) {
	j.exchangeLimit = s.exchange
	if j.member, err = j.arena.Join(rank); err != nil {
		return err
	}
	if j.group, err = j.member.JoinGroup(); err != nil {
		return err
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
	err = j.barrier(ctx, "init") // nobody else has this job yet
	if absent := j.absent(); errors.Is(err, nd.Canceled) && absent != "" {
		err = fmt.Errorf("%w; not here: %s", err, absent)
	}
	return err
}

// absent names the ranks that have not joined the group yet, "" if all have.
func (j *Job) absent() string {
	const shown = 8
	var names []string
	for rank := range j.Size() {
		if _, ok := j.group.Member(rank); !ok {
			names = append(names, fmt.Sprintf("rank %d", rank))
		}
	}
	if more := len(names) - shown; more > 0 {
		names = append(names[:shown], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// Rank returns the number of this process in the job, 0 to Size-1.
func (j *Job) Rank() int { return j.group.Rank() }

// Size returns the number of ranks.
func (j *Job) Size() int { return j.group.Size() }

// Adapter returns the adapter of this rank.
func (j *Job) Adapter() nd.Adapter { return j.adapter }

func (j *Job) usable(op string) error {
	if j.closed.Load() {
		return &nd.OpError{Op: op, Object: "job", Status: nd.InvalidHandle, Detail: "the job is closed"}
	}
	return nil
}

// Close leaves the job. Connections that are still up end by force, so ranks
// that want to end together call Barrier first. Nothing taken from the job may
// be used afterwards: calls fail, [nd.MemoryRegion.Bytes] returns nil, and a slice of
// memory from Allocate that was kept shows zeros and loses what is stored there.
// Calls that race with Close return an error or nothing; they do no harm. A launcher that
// listens is told that this rank ends well; ndrun names those that end without.
//
// In a goroutine that panics Close returns [nd.Pending] and takes effect a second later,
// if the process still lives because the panic was recovered: the
// other ranks must not fail at the end of this one before its panic has been printed.
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
	// A collective call that Close has just ended still has memory to give back.
	j.collective.Lock()
	defer j.collective.Unlock()
	if j.member != nil {
		errs = append(errs, j.member.Leave())
	}
	current.CompareAndSwap(j, nil)
	j.ballast = nil
	return errors.Join(append(errs, j.detach(), j.place.Leave())...)
}
