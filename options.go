package softnd

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/faults"
	"github.com/softnd/softnd/internal/faultplan"
	"github.com/softnd/softnd/nd/ndcheck"
	"github.com/softnd/softnd/shm"
)

// Option is a setting of [Init] or [Join]. An option takes precedence over the environment variable
// for the same setting.
type Option func(*settings) error

// NoLimit is a receive timeout that never expires: see [WithReceiveTimeout].
const NoLimit = endpoint.NoLimit

// settings are the values that options and environment set.
type settings struct {
	provider endpoint.Options
	logger   *slog.Logger     // nil = none
	exchange uint64           // limit of an Exchange, in bytes
	check    *ndcheck.Options // nil = the program is not watched
	exits    bool             // see WithExit
}

// defaultExchangeLimit is the limit of an Exchange without WithExchangeLimit.
const defaultExchangeLimit = 256 << 20

// WithReceiveTimeout limits how long a Send of this rank waits for the peer to post a Receive. After
// that time, the Send completes with [nd.IOTimeout]. The default is 2 s. With 0, a Send fails at once
// if no Receive is posted. With [NoLimit], a Send waits until the connection ends. If the peer's
// endpoint uses a shared receive queue, Sends to it always wait without limit.
//
// The environment variable is [EnvReceiveTimeout]. Init and Join fail if d is negative.
func WithReceiveTimeout(d time.Duration) Option {
	return func(s *settings) error {
		if d < 0 {
			return fmt.Errorf("receive time-out of %v: want 0 or more", d)
		}
		if s.provider.ReceiveTimeout = d; d == 0 {
			s.provider.ReceiveTimeout = endpoint.AtOnce
		}
		return nil
	}
}

// Executor selects the process that copies the data of a request: the requester, which posts the
// request, or the responder, its peer. It applies to Reads, Writes, and messages of more than 48
// bytes.
type Executor = endpoint.Executor

const (
	// ExecutorAuto is the default. If the responder's memory is from [nd.Adapter.Allocate], the requester
	// can reach it and copies. Otherwise the responder copies.
	ExecutorAuto = endpoint.Auto
	// ExecutorTarget makes the responder copy. This is slower. Use it in tests, because it runs
	// different code, with different timing.
	ExecutorTarget = endpoint.Target
)

// WithExecutor selects the process that copies the data of this rank's requests. The ranks of a job
// may have different executors. The environment variable is [EnvExec].
func WithExecutor(e Executor) Option {
	return func(s *settings) error {
		if e != ExecutorAuto && e != ExecutorTarget {
			return fmt.Errorf("executor %d: want ExecutorAuto or ExecutorTarget", e)
		}
		s.provider.Executor = e
		return nil
	}
}

// WithSpinBudget sets how many times a blocking call checks for its event before it yields its core and
// then sleeps. The default is at most 500 checks or about 20 microseconds, whichever ends first. It adapts:
// calls spin for less, or not at all, while earlier ones have spun in vain, for example on a core that
// several ranks share. The number of this option does not adapt. More than 500 checks have no limit of
// time: the call need not sleep if the event comes a little later, but keeps its core busy for longer. With
// 0, the call yields its core at once. The environment variable is [EnvSpinBudget].
//
// Init and Join fail if checks is negative.
func WithSpinBudget(checks int) Option {
	return func(s *settings) error {
		if checks < 0 {
			return fmt.Errorf("spin budget of %d checks: want 0 or more", checks)
		}
		s.setSpinBudget(checks)
		return nil
	}
}

func (s *settings) setSpinBudget(checks int) {
	if s.provider.SpinBudget = checks; checks == 0 {
		s.provider.SpinBudget = endpoint.NoSpin
	}
}

// WithExchangeLimit limits the number of bytes that all ranks together pass to one [Job.Exchange].
// The default is 256 MiB. If the ranks pass more bytes, Exchange fails without copying
// them. All ranks must set the same limit.
//
// Init and Join fail if bytes is 0.
func WithExchangeLimit(bytes uint64) Option {
	return func(s *settings) error {
		if bytes == 0 {
			return errors.New("exchange limit of 0 bytes: want 1 or more")
		}
		s.exchange = bytes
		return nil
	}
}

// WithExit makes the process end when another rank has ended the job and no launcher ends this process: instead of
// closing the channel of [Job.Done], softnd prints a line to the standard error output, and exits with the code of [Abort], or
// with 1. Deferred functions do not run. [Main] implies it.
func WithExit() Option {
	return func(s *settings) error {
		s.exits = true
		return nil
	}
}

// WithLogger logs the events of this rank's connections and queues to logger. Without this option,
// softnd logs nothing. These are the events, with their levels and attributes:
//
//	connected                 Info   active: true if this side called nd.Connector.Connect
//	disconnected              Info   by: self or peer, the side that disconnected first
//	connection failed         Error  by=self, status, cause
//	connection failed         Warn   by=peer, status, cause
//	peer died                 Warn   (once for each peer)
//	request waits             Warn   request, context, for, waited
//	completion queue overran  Error  queue, depth
//	events dropped            Warn   count
//
// Each event also has the attribute rank. Events of a connection have the attributes endpoint, the
// number of the endpoint in this process, and peer, the peer's endpoint and process.
//
// A process that closes an endpoint logs "disconnected". So does its peer, with by=peer, if neither side
// has a request outstanding; otherwise the peer logs "connection failed". The event "request waits" means
// that the oldest request of an endpoint has waited for longer than the receive timeout. If that timeout
// is 0 or NoLimit, the event is logged after 2 s. If Connect or Accept fails, there is no event, because
// the call returns the error.
//
// One goroutine calls the logger's handler, for one event after the other, and holds no lock meanwhile.
// The handler may block, and may call any function of softnd. While it blocks, softnd keeps up to 1024
// events, and drops and counts further events. [Job.Close] waits until the handler has handled all
// events, for at most one second. If the handler itself calls Close, Close takes that second.
//
// Init and Join fail if logger is nil.
func WithLogger(logger *slog.Logger) Option {
	return func(s *settings) error {
		if logger == nil {
			return errors.New("logger is nil: pass a logger, such as slog.Default(), or omit the option")
		}
		s.logger = logger
		return nil
	}
}

// WithStats makes this rank count results and bytes by request type: see the field Operations of
// [nd.EndpointStats] and [nd.CompletionQueueStats]. The other counters of [Job.Stats] do not need this
// option. With the option, each small request or message takes about ten nanoseconds longer, because
// its result passes through the completion queue, under a lock.
func WithStats() Option {
	return func(s *settings) error {
		s.provider.CountOperations = true
		return nil
	}
}

// WithChecker watches how the program uses this rank's adapter, and reports its mistakes: see package
// ndcheck. The number of the rank replaces o.Rank. The environment variable is [EnvCheck]. A program
// that is watched runs much slower.
func WithChecker(o ndcheck.Options) Option {
	return func(s *settings) error {
		own := o // several ranks may have the same option
		s.check = &own
		return nil
	}
}

// WithWeakOrder makes this rank's adapter as weak as the model allows. Requests run late. Later requests overtake Reads that
// have no fence. The bytes of a transfer are stored in any order. Results and notifications are late, and the limits are
// those of a small card. Programs that rely on more than the model promises fail, as they could on RDMA hardware. The
// seed selects the delays. A deterministic program fails in the same way each time with the same seed. The page
// docs/weak-order.md lists the delays, and the orders that remain.
//
// The environment variable is [EnvWeakOrder].
func WithWeakOrder(seed uint64) Option {
	return func(s *settings) error {
		s.provider.WeakOrder = &seed
		return nil
	}
}

// WithIntegrity makes all endpoints of this rank check the payloads of their requests: see the field CheckPayloads of
// [nd.EndpointConfig]. The page docs/integrity.md says which changes are found. The environment variable is [EnvIntegrity].
func WithIntegrity() Option {
	return func(s *settings) error {
		s.provider.CheckPayloads = true
		return nil
	}
}

// readSwitch reads an environment variable that is 0 or 1.
func readSwitch(name string) (bool, error) {
	switch v := os.Getenv(name); v {
	case "", "0":
		return false, nil
	case "1":
		return true, nil
	default:
		return false, fmt.Errorf("%s: invalid value %q: want 0 or 1", name, v)
	}
}

// readSettings applies the environment, and then the options.
func readSettings(options []Option) (s settings, err error) {
	s.exchange = defaultExchangeLimit
	if s.provider.Executor, err = endpoint.ParseExecutor(os.Getenv(EnvExec)); err != nil {
		return s, fmt.Errorf("%s: %w", EnvExec, err)
	}
	if text := os.Getenv(EnvReceiveTimeout); text != "" {
		if s.provider.ReceiveTimeout, err = endpoint.ParseReceiveTimeout(text); err != nil {
			return s, fmt.Errorf("%s: %w", EnvReceiveTimeout, err)
		}
	}
	if s.check, err = checkerFromEnvironment(); err != nil {
		return s, err
	}
	if s.provider.CheckPayloads, err = readSwitch(EnvIntegrity); err != nil {
		return s, err
	}
	if text := os.Getenv(EnvWeakOrder); text != "" {
		seed, err := strconv.ParseUint(text, 0, 64)
		if err != nil {
			return s, fmt.Errorf("%s: seed %q: want a number from 0 to 2^64-1", EnvWeakOrder, text)
		}
		s.provider.WeakOrder = &seed
	}
	if text := os.Getenv(EnvSpinBudget); text != "" {
		checks, err := strconv.ParseUint(text, 0, 31)
		if err != nil {
			return s, fmt.Errorf("%s: checks %q: want a number from 0 to 2^31-1", EnvSpinBudget, text)
		}
		s.setSpinBudget(int(checks))
	}
	for _, set := range options {
		if err := set(&s); err != nil {
			return s, err
		}
	}
	return s, nil
}

// WithFaults makes this rank follow a fault plan: see package faults. Ranks of one process may share the
// plan. ndrun --faults does the same for all ranks of a job.
//
// Init and Join fail if plan is nil, or if the job was started with ndrun --faults.
func WithFaults(plan *faults.Plan) Option {
	return func(s *settings) error {
		if plan == nil {
			return errors.New("fault plan is nil: pass a plan of faults.New, or omit the option")
		}
		s.provider.Faults = (*faultplan.Plan)(plan).For
		return nil
	}
}

// loadFaults sets the plan that the launcher has written into the arena, if there is one. The digest in
// the environment tells this process which rules to expect: a peer can write into the arena, but not there.
func (s *settings) loadFaults(arena *shm.Arena) error {
	n, digest := arena.Info().FaultRuleCount, os.Getenv(EnvFaults)
	switch {
	case n == 0:
		return nil
	case s.provider.Faults != nil:
		return fmt.Errorf("both WithFaults and ndrun --faults give a fault plan: remove one of them")
	case digest == "":
		return fmt.Errorf("the job has a fault plan, but %s is not set: let the wrapper of the rank keep the environment", EnvFaults)
	}
	records, err := shm.Slice[faultplan.Record](arena, arena.Info().FaultRules, uint64(n))
	if err != nil {
		return err
	}
	plan, err := faultplan.Load(records, digest)
	if err != nil {
		return fmt.Errorf("fault plan: %w", err)
	}
	s.provider.Faults = plan.For
	return nil
}
