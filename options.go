package softnd

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/softnd/softnd/endpoint"
)

// Option is a setting of [Init] or [Join]. An option takes precedence over the variable of the
// environment with the same meaning.
type Option func(*settings) error

// NoLimit is a timeout that never expires.
const NoLimit = endpoint.NoLimit

// settings are the values that options and environment set.
type settings struct {
	provider endpoint.Options
	logger   *slog.Logger // nil = none
	exchange uint64       // limit of an Exchange, in bytes
}

// defaultExchangeLimit is the limit of an Exchange without WithExchangeLimit.
const defaultExchangeLimit = 256 << 20

// WithReceiveTimeout sets how long a Send of this rank waits for the peer to post a Receive
// before its result is [nd.IOTimeout]. The default is 2 s. With 0 a Send fails at once if no
// Receive is posted. With [NoLimit] it waits until the connection ends. The Sends of an endpoint
// whose peer uses a shared receive queue always wait without limit.
//
// Init and Join fail if d is negative. The variable is [EnvReceiveTimeout].
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

// Executor selects which process moves the bytes of one-sided requests and of messages that are
// longer than a ring entry.
type Executor = endpoint.Executor

const (
	// ExecutorAuto is the default. The process that posts the request moves the bytes if it can
	// reach the peer's memory: memory of [nd.Adapter.Allocate]. Otherwise the peer moves them.
	ExecutorAuto = endpoint.Auto
	// ExecutorTarget: the peer of the process that posts the request moves the bytes. It is slower. Use it in tests: it runs different code, with different timing.
	ExecutorTarget = endpoint.Target
)

// WithExecutor selects which process moves the bytes of this rank's requests. The ranks of a job
// may use different executors. The variable is [EnvExec].
func WithExecutor(e Executor) Option {
	return func(s *settings) error {
		if e != ExecutorAuto && e != ExecutorTarget {
			return fmt.Errorf("executor %d: want ExecutorAuto or ExecutorTarget", e)
		}
		s.provider.Executor = e
		return nil
	}
}

// WithSpinBudget sets how many times a blocking call checks for its event before it yields its core
// and then sleeps. The default is 500 checks, which take some 10 microseconds. A larger budget
// avoids a sleep when the event comes a little later, and keeps the core busy. With 0 a call yields
// its core at once. A rank never spins while its job has more ranks than there are processors.
//
// Init and Join fail if checks is negative.
func WithSpinBudget(checks int) Option {
	return func(s *settings) error {
		if checks < 0 {
			return fmt.Errorf("spin budget of %d checks: want 0 or more", checks)
		}
		if s.provider.SpinBudget = checks; checks == 0 {
			s.provider.SpinBudget = endpoint.NoSpin
		}
		return nil
	}
}

// WithExchangeLimit sets how many bytes the blobs of all ranks of a [Job.Exchange] may have
// together. The default is 256 MiB. If the ranks pass more, Exchange fails, and this process does
// not copy them. All ranks must set the same limit.
//
// Init and Join fail if the limit is 0.
func WithExchangeLimit(bytes uint64) Option {
	return func(s *settings) error {
		if bytes == 0 {
			return errors.New("exchange limit of 0 bytes: want 1 or more")
		}
		s.exchange = bytes
		return nil
	}
}

// WithLogger passes the events of this rank's connections and queues to the handler of a logger. Without
// this option, softnd logs nothing. Each event has the attribute rank. Events of a connection also have
// endpoint, the number of the endpoint in this process, and peer, the peer's endpoint and process.
//
//	connected                 Info   active: whether this side called Connect
//	disconnected              Info   by: self or peer, the side that disconnected first
//	connection failed         Error  by=self, with status and cause
//	                          Warn   by=peer, with status and cause
//	peer died                 Warn   once for each peer
//	request waits             Warn   request, context, for, waited: the oldest request of an endpoint
//	                                 has waited longer than the receive time-out, or 2 s if that is
//	                                 0 or NoLimit
//	completion queue overran  Error  queue, depth
//	events dropped            Warn   count
//
// The process that closes an endpoint reports "disconnected", the other one "connection failed" by the
// peer. A Connect or Accept that fails makes no event, because the call returns the error.
//
// One goroutine calls the handler, for one event after the other, and holds no lock. So the handler may
// block, and may call any function of softnd. While it blocks, up to 1024 events are kept; further ones
// are dropped and counted. [Job.Close] waits at most one second until the handler has got all events. A
// handler that calls Close itself waits for that second too.
//
// Init and Join fail if the logger is nil.
func WithLogger(logger *slog.Logger) Option {
	return func(s *settings) error {
		if logger == nil {
			return errors.New("logger is nil: pass a logger, such as slog.Default(), or omit the option")
		}
		s.logger = logger
		return nil
	}
}

// WithStats makes this rank count results and bytes by type: see Operations in [nd.EndpointStats] and
// [nd.CompletionQueueStats]. All other counters of [Job.Stats] are kept without this option, too. With
// it, each small request or message takes some ten nanoseconds longer, because its result passes through
// the completion queue, under a lock.
func WithStats() Option {
	return func(s *settings) error {
		s.provider.CountOperations = true
		return nil
	}
}

// readSettings applies the environment, and then the options.
func readSettings(options []Option) (s settings, err error) {
	s.exchange = defaultExchangeLimit
	if s.provider.Executor, err = endpoint.ParseExecutor(os.Getenv(EnvExec)); err != nil {
		return s, fmt.Errorf("%s: %w", EnvExec, err)
	}
	if text := os.Getenv(EnvReceiveTimeout); text != "" {
		d, err := parseTimeout(text)
		if err == nil {
			err = WithReceiveTimeout(d)(&s)
		}
		if err != nil {
			return s, fmt.Errorf("%s: %w", EnvReceiveTimeout, err)
		}
	}
	for _, set := range options {
		if err := set(&s); err != nil {
			return s, err
		}
	}
	return s, nil
}

// parseTimeout reads a duration such as "500ms", or "unlimited".
func parseTimeout(text string) (time.Duration, error) {
	if text == "unlimited" {
		return NoLimit, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("time-out %q: want a duration such as 500ms or 10s, 0, or unlimited", text)
	}
	return d, nil
}
