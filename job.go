// Package softnd makes a process a rank of a job. A job is a group of processes, the ranks, which are
// numbered from 0 as in MPI. The ranks of a host communicate through the arena, shared memory that
// each of them maps. A relay, the program ndrelay, carries requests to ranks on other hosts.
//
// [Init] makes a process the rank that its launcher (ndrun, mpiexec, mpirun or srun) has assigned to
// it. A program that is started without a launcher becomes rank 0 of a job of one rank. [Join] makes a
// job of processes that no common launcher has started.
//
//	job, err := softnd.Init(ctx)
//	if err != nil { ... }
//	defer job.Close()
//	mr, err := job.Adapter().Allocate(ctx, 1<<20, nd.AllowLocalWrite)
//
// A [Job] has collective calls, such as [Job.Barrier], and connects endpoints of its ranks. Its
// adapter creates all other objects: memory regions, completion queues, endpoints. These objects and
// their requests are those of the NetworkDirect model, which package nd describes. Package softndtest
// runs the ranks of a job inside a test.
//
// Only [Abort], [Check], [Must], [Main] and [WithExit] end the process, apart from a panic if a filter of system calls that is
// installed later refuses membarrier. If a rank of a job without a launcher ends the
// job, the other ranks learn it from errors and [Job.Done].
//
// The defaults of [nd.EndpointConfig] and [nd.SharedReceiveQueueConfig] are 64 requests per queue, and 4
// entries per request. The number of an invalid token is used again only after at least 4,096 further
// Binds and registrations.
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
	"github.com/softnd/softnd/internal/goruntime"
	"github.com/softnd/softnd/internal/meet/bootstrap"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndcheck"
	"github.com/softnd/softnd/shm"
)

// Names of environment variables. docs/environment.md says which program sets each.
const (
	EnvRank    = bootstrap.EnvRank    // SOFTND_RANK: number of the rank, 0 to size-1
	EnvSize    = bootstrap.EnvSize    // SOFTND_SIZE: number of ranks
	EnvArenaFD = bootstrap.EnvArenaFD // SOFTND_ARENA_FD: number of the inherited file descriptor of the arena
	EnvAppNum  = "SOFTND_APPNUM"      // number of the program that the rank runs, from 0
	EnvControl = bootstrap.EnvControl // SOFTND_CONTROL: address of ndrun's control channel
	EnvExec    = "SOFTND_EXEC"        // auto or target: the process that copies the data of requests, see WithExecutor
	EnvDebug   = bootstrap.EnvDebug   // SOFTND_DEBUG: with 1, Init prints which launcher it has detected

	// EnvReceiveTimeout limits how long a Send waits for the peer to post a Receive. The value is a
	// duration such as 500ms, 0, or unlimited. See WithReceiveTimeout.
	EnvReceiveTimeout = "SOFTND_RECEIVE_TIMEOUT"

	// EnvCheck is 1 if the checker watches the program: see WithChecker. ndrun --check sets it. It also sets
	// EnvCheckFD, the number of the inherited descriptor of the ranks' journal. EnvCheckIgnore has the rules that are
	// not reported, as ndrun --check-ignore.
	EnvCheck       = "SOFTND_CHECK"
	EnvCheckFD     = "SOFTND_CHECK_FD"
	EnvCheckIgnore = "SOFTND_CHECK_IGNORE"

	// EnvFaults identifies the fault plan of ndrun --faults, which sets it.
	EnvFaults = "SOFTND_FAULTS"

	// EnvWeakOrder is the seed of a weak order, a number. See WithWeakOrder. ndrun --weak-order sets it too.
	EnvWeakOrder = "SOFTND_WEAK_ORDER"

	// EnvIntegrity is 1 if all endpoints check payloads. See WithIntegrity. ndrun --integrity sets it too.
	EnvIntegrity = "SOFTND_INTEGRITY"

	// EnvSpinBudget is how many times a blocking call checks for its event before it yields its core, a number from 0 to 2^31-1.
	// See WithSpinBudget.
	EnvSpinBudget = "SOFTND_SPIN_BUDGET"

	// EnvTerminal is 1 if ndrun forwards the rank's output, which is a pipe, to a terminal. ndrun then
	// also shows lines that end with a carriage return.
	EnvTerminal = "SOFTND_TERMINAL"
)

// Ports of a rank.
const (
	connectPort = 1 // of each rank, for Connect
	dialPort    = 2 // of a rank that has called Listen, for Dial
)

// Job is this process's membership in a job. Any number of goroutines may call its methods at once.
// Barrier, Exchange and ExchangeWindows are collective calls: all ranks must make the same collective
// calls in the same order.
type Job struct {
	arena *shm.Arena
	place *bootstrap.Place // nil after Join
	hosts *hosts           // nil if all ranks run on one host

	rank, size int
	member     *shm.Member
	group      *shm.Group
	provider   *endpoint.Provider
	checker    *ndcheck.Provider // watches the provider; nil = it does not
	adapter    nd.Adapter
	listener   nd.Listener

	collective asym.BiasedMutex // one collective call at a time
	spins      endpoint.Spin    // of collective calls
	adapts     bool             // the number of checks of a collective call adapts: the program has not set it
	started    bool             // all ranks have joined
	broken     error            // why every further collective call fails; guarded by collective
	deaths     uint64           // number of deaths at the last check of all ranks; guarded by collective
	checkedAt  time.Time        // time of that check; guarded by collective

	deathWatch deathWatch

	exchangeLimit uint64 // of the blobs of all ranks together, in bytes

	closed  atomic.Bool
	ballast *strings.Builder // see newBallast

	exits bool                       // see WithExit
	done  chan struct{}              // closed when cause is set
	cause atomic.Pointer[nd.OpError] // why another rank has ended the job

	mu      sync.Mutex
	waiting map[int][]nd.Connector // connection requests by rank; guarded by mu
}

// Init makes the process a rank of its job. It blocks until all ranks have called Init. The launcher
// passes the job and the rank in environment variables. Supported launchers are ndrun, launchers that
// speak PMI (MPICH's mpiexec, srun with --mpi=pmi2), Open MPI's mpirun, and srun alone. Without a
// launcher, the process is the only rank of a job, unless SOFTND_ROOT says where the ranks meet. After
// Job.Close, a process can join the job again if all ranks do: Init waits until the others have closed it,
// too. Until then, collective calls of the others fail, because the rank that they know has left. With a
// launcher that speaks PMI, a process can call Init once.
//
// Ranks at SOFTND_ROOT, and under launchers that speak PMI, may run on several hosts. Init then starts
// ndrelay at each host. The page docs/hosts.md has more.
//
// Init fails if
//
//   - the environment is incomplete or contradictory; the error names the variable;
//   - the process cannot map or create the job's memory: [ErrVersion] if another release of softnd
//     made it, or [NoMemoryError];
//   - ctx ends before all ranks have called Init; the error has status [nd.Canceled], and names the
//     ranks that are missing;
//   - the ranks run on several hosts, and the launcher does not let them meet, or a host has no relay.
func Init(ctx context.Context, options ...Option) (*Job, error) {
	s, refusal := readSettings(options)
	var lost bool
	if refusal == nil {
		lost, refusal = s.inheritJournal()
	}
	p, err := bootstrap.Find(ctx, lost)
	if refusal != nil && err != nil {
		err = refusal
	}
	if err != nil {
		return nil, fmt.Errorf("softnd: init: %w", err)
	}
	j := newJob(p.Arena)
	if refusal == nil {
		refusal = s.takeJournal(p.Journal)
	}
	if refusal != nil {
		j.refuse(ctx, p.Local)
		return nil, errors.Join(fmt.Errorf("softnd: init: %w", refusal), j.Close(), p.HangUp(refusal))
	}
	j.rank, j.size = p.Rank, p.Size
	if p.Hosts != nil {
		j.hosts = newHosts(p.Hosts)
	}
	if err = j.startWatched(ctx, p, s); err != nil {
		if errors.Is(err, shm.ErrTaken) {
			err = fmt.Errorf("%w; %s", err, p.RankTakenHint)
		}
		return nil, errors.Join(fmt.Errorf("softnd: init: rank %d of %d: %w", p.Rank, p.Size, err), j.Close(), p.HangUp(err))
	}
	j.place, j.ballast = p, newBallast(p.Size)
	current.Store(j)
	p.OnEnd(j.end)
	return j, nil
}

// startWatched is start that fails if another rank ends the job meanwhile, and no launcher ends this process.
func (j *Job) startWatched(ctx context.Context, p *bootstrap.Place, s settings) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p.OnEnd(func(_ int, why string) { cancel(errors.New(why)) })
	return j.start(ctx, p.Local, s, "init")
}

// refusalTimeout limits how long a rank that cannot take part waits for the others.
const refusalTimeout = 5 * time.Second

// refuse lets the other ranks know this process as their rank that does not take part, before it leaves. They would otherwise wait for
// it. It waits until they are there: the memory of a named job ends with its last process, and a rank that comes later would find no
// trace of this one. TWIN c/src/job/job.c.
func (j *Job) refuse(ctx context.Context, local int) {
	var err error
	if j.member == nil {
		j.member, err = j.arena.Join(local)
	}
	if err == nil && j.group == nil {
		j.group, err = j.member.JoinGroup()
	}
	if err != nil {
		return // another process is the rank
	}
	j.group.Refuse()
	haveJoined := func() bool {
		for rank := range j.arena.Ranks() {
			if _, ok := j.arena.MemberOf(rank); !ok {
				return false
			}
		}
		return true
	}
	for end := time.Now().Add(refusalTimeout); !haveJoined() && ctx.Err() == nil && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
}

// newJob returns a job without a rank yet: Close releases only the arena.
func newJob(arena *shm.Arena) *Job {
	return &Job{arena: arena, size: arena.Ranks(), waiting: make(map[int][]nd.Connector), done: make(chan struct{})}
}

// start makes this process a rank of the arena, and waits in op for the other ranks of the job. If it fails,
// the caller closes the job.
func (j *Job) start(ctx context.Context, local int, s settings, op string) error {
	err := j.enter(ctx, local, s)
	if err != nil && ctx.Err() == nil {
		j.refuse(ctx, local)
	}
	if err == nil {
		err = j.form(ctx, op) // without the lock: no other goroutine has this job yet
	}
	if absent := j.absent(); errors.Is(err, nd.Canceled) && absent != "" {
		err = fmt.Errorf("%w; missing: %s", err, absent)
	}
	if err == nil && j.hosts != nil {
		err = j.startHosts(ctx)
	}
	return err
}

// enter is start without the wait for the other ranks.
func (j *Job) enter(ctx context.Context, local int, s settings) (err error) {
	j.exchangeLimit, j.exits = s.exchange, s.exits
	if j.hosts == nil {
		j.rank = local
	}
	if err := s.loadFaults(j.arena); err != nil {
		return err
	}
	if j.member, err = j.arena.Join(local); err != nil {
		return err
	}
	if j.group, err = j.member.JoinGroup(); err != nil {
		return err
	}
	if s.logger != nil {
		s.provider.EventHandler = s.logger.With("rank", j.rank).Handler()
	}
	j.adapts = s.provider.SpinBudget == 0
	if j.provider, err = endpoint.New(j.member, s.provider); err != nil {
		return err
	}
	id, err := j.provider.ResolveAddress(endpoint.Address(j.arena.Host(), j.member.ID()))
	if err != nil {
		return err
	}
	var provider nd.Provider = j.provider
	if s.check != nil {
		s.check.Rank, s.check.Faults = j.rank, s.provider.Faults != nil
		j.checker = ndcheck.Wrap(j.provider, *s.check)
		provider = j.checker
	}
	if j.adapter, err = provider.OpenAdapter(ctx, id); err != nil {
		return err
	}
	j.listener, err = j.listen(ctx, connectPort)
	return err
}

// absent returns the names of the ranks of this host that have not joined the group yet, or have left it, and "" if all are there.
func (j *Job) absent() string {
	const most = 8
	var names []string
	for local := range j.arena.Ranks() {
		id, ok := j.arena.MemberOf(local)
		if !ok {
			names = append(names, fmt.Sprintf("rank %d", j.rankAt(local)))
		} else if p, err := j.arena.Peer(id); err != nil || p.Gone() {
			names = append(names, fmt.Sprintf("rank %d (has left)", j.rankAt(local)))
		} else if j.group != nil && !j.started && j.group.IsEarlier(local) {
			names = append(names, fmt.Sprintf("rank %d (has not left an earlier job)", j.rankAt(local)))
		}
	}
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// Rank returns the number of this process in the job, 0 to Size-1.
func (j *Job) Rank() int { return j.rank }

// Size returns the number of ranks.
func (j *Job) Size() int { return j.size }

// Adapter returns the adapter of this rank.
func (j *Job) Adapter() nd.Adapter { return j.adapter }

// usable returns an error of op if the job is closed.
func (j *Job) usable(op string) error {
	if j.closed.Load() {
		return &nd.OpError{Op: op, Object: "job", Status: nd.InvalidHandle, Detail: "the job is closed", Next: "make the call before Job.Close"}
	}
	return nil
}

// Close leaves the job, and aborts connections that are still open. If all ranks end at the same
// time, call Barrier before Close, so that no rank aborts a connection that another rank still uses.
//
// After Close, calls on objects of the job fail, and [nd.MemoryRegion.Bytes] returns nil. If the
// program has kept a slice of memory from Allocate, the slice reads as zeros, and stores to it are
// lost. A call that runs at the same time as Close may return an error or no result.
//
// Close also tells ndrun that this rank ends normally. ndrun reports each rank that exits without
// Close.
//
// In rank 0 of a job at SOFTND_ROOT, Close blocks until the other ranks have called it. Until then it
// tells them if one of them dies or calls [Abort], and returns an error with [nd.ConnectionAborted].
// The other ranks may get that error, too, if the job ends while they leave it, and an error if rank 0 does not answer in
// two seconds.
//
// If Close is deferred and runs because of a panic, it returns [nd.Pending], and closes the job one
// second later if the process still runs. Without this delay, errors of the other ranks could bury
// the panic message.
func (j *Job) Close() error {
	if goruntime.PostponeIfPanicking(func() { _ = j.Close() }) {
		return &nd.OpError{Op: "close", Object: "job", Status: nd.Pending, Detail: "the goroutine panics: the job is closed in a second if the process still runs"}
	}
	if j.closed.Swap(true) {
		return nil
	}
	var errs []error
	if j.listener != nil {
		errs = append(errs, j.listener.Close())
	}
	j.hosts.leave(j.place != nil)
	if j.checker != nil {
		j.checker.End()
	}
	if j.provider != nil {
		errs = append(errs, j.provider.Close())
	}
	errs = append(errs, j.leaveMemory(), j.leave())
	return errors.Join(errs...)
}

// leaveMemory leaves the memory of the job. A collective call that Close has just ended still has to free some.
func (j *Job) leaveMemory() error {
	j.collective.Lock()
	defer j.collective.Unlock()
	var err error
	if j.member != nil {
		err = j.member.Leave()
	}
	j.ballast = nil
	return errors.Join(err, j.arena.Close())
}

// leave tells the launcher that this rank ends well. Until then, Abort ends the job.
func (j *Job) leave() error {
	err := j.place.Leave()
	current.CompareAndSwap(j, nil)
	if end := (bootstrap.Ended{}); errors.As(err, &end) {
		return &nd.OpError{Op: "close", Object: "job", Status: nd.ConnectionAborted, Err: end}
	}
	return err
}

// Join makes the process a rank of a named job. It is for processes that no common launcher starts,
// for example in two terminals. Join blocks until all ranks have called it. All ranks pass the same
// name and size, and each rank passes its own number. The name has 1 to 64 characters of A-Z a-z 0-9
// . _ and -. The first rank creates the memory of the job. When the last rank
// has left, the name is free again. Options and the variables of options have the same effect as
// with [Init].
//
// Errors:
//
//   - [ErrVersion]: a rank that has joined uses another release of softnd.
//   - [NoMemoryError]: the limits of this process do not allow the memory of the job.
//   - [nd.Canceled]: ctx has ended before all ranks have called Join. The error names the ranks that
//     are missing, also those that have not closed an earlier job of this name. A process that takes the place of
//     a rank which has died waits for them.
//   - An error without a status: another process is this rank. The same holds if the name belongs to
//     another user, to a job of another size, or to a process that does not run softnd.
func Join(ctx context.Context, name string, rank, size int, options ...Option) (*Job, error) {
	s, refusal := readSettings(options)
	if size < 1 || size > shm.MaxRanks {
		return nil, fmt.Errorf("softnd: join %q: size %d: want 1 to %d", name, size, shm.MaxRanks)
	}
	if rank < 0 || rank >= size {
		return nil, fmt.Errorf("softnd: join %q: rank %d of %d: want 0 to %d", name, rank, size, size-1)
	}
	arena, err := shm.OpenFabric(ctx, name, shm.Config{Ranks: size})
	if err != nil {
		if refusal != nil {
			err = refusal
		}
		return nil, fmt.Errorf("softnd: join: %w", err)
	}
	j := newJob(arena)
	if refusal != nil {
		j.refuse(ctx, rank)
		return nil, errors.Join(fmt.Errorf("softnd: join: %w", refusal), j.Close())
	}
	if err := j.start(ctx, rank, s, "join"); err != nil {
		if errors.Is(err, shm.ErrTaken) {
			err = fmt.Errorf("%w: start each rank once", err)
		}
		return nil, errors.Join(fmt.Errorf("softnd: join %q: rank %d of %d: %w", name, rank, size, err), j.Close())
	}
	current.Store(j)
	return j, nil
}

// Stats has the counters of a rank. It can be encoded as JSON.
type Stats struct {
	Rank, Size int

	Endpoints        []nd.EndpointStats        // of the open endpoints
	Closed           nd.EndpointStats          // sums over the closed endpoints
	ClosedEndpoints  int                       // number of closed endpoints
	CompletionQueues []nd.CompletionQueueStats // of the completion queues that open endpoints use
}

// Stats returns the counters of all endpoints and completion queues of this rank. For the counters of
// one object, call [nd.StatsOf] or [nd.QueueStatsOf]. The counters do not slow requests down, except
// those that [WithStats] adds.
//
// Stats takes the lock of each endpoint and queue for a moment. After that, the next call on the
// endpoint or queue is slower by some microseconds. Call Stats only a few times per second. Stats may
// be called after Close.
func (j *Job) Stats() Stats {
	s := j.provider.Stats()
	return Stats{Rank: j.Rank(), Size: j.Size(),
		Endpoints: s.Endpoints, Closed: s.Closed, ClosedEndpoints: s.ClosedEndpoints, CompletionQueues: s.CompletionQueues}
}
