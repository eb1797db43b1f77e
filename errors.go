package softnd

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/softnd/softnd/internal/meet/bootstrap"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// ErrVersion is the error of [Init] and [Join] if the job's memory was made by another release of
// softnd. [errors.Is] finds it. Build all programs of a job with one release.
var ErrVersion = shm.ErrVersion

// NoMemoryError is the error of [Init], [Join] and [Job.Exchange] if there is too little memory. Its
// fields are Requested and Available, both in bytes; Limit, the name of the limit; and Hint, what the
// user can do. [errors.AsType] finds *NoMemoryError. The calls of package nd return [nd.NoMemory]
// instead.
type NoMemoryError = shm.NoMemoryError

// Must returns v if err is nil. Otherwise it ends the job as [Check] does. It is for short programs in
// which any error is fatal:
//
//	job := softnd.Must(softnd.Init(ctx))
func Must[T any](v T, err error) T {
	Check(err)
	return v
}

// Check does nothing if err is nil. Otherwise it calls [Abort] with exit code 1 and the text of err.
// Deferred functions do not run then.
func Check(err error) {
	if err != nil {
		Abort(1, err.Error())
	}
}

// current is the job that this process joined last, nil when that is closed.
var current atomic.Pointer[Job]

// maxReason is the longest reason that Abort has the launcher print, in bytes.
const maxReason = 512

// Abort ends this process with an exit code, and makes the launcher end the other ranks. The exit code
// is 1 to 255; any other value counts as 1. reason is one line for the user, and is printed together
// with the number of this rank. Abort never returns and runs no deferred functions. Any goroutine may
// call it at any time.
//
// ndrun and Hydra's mpiexec exit with the code of the first rank that aborts or fails. If a
// wrapper runs the rank, the exit code of the wrapper does not change this. Other launchers end the job
// because a rank has failed. A job of [Join] has no launcher: its other ranks detect that this process
// has died. A job at SOFTND_ROOT has none either: see [Job.Done] for its other ranks.
func Abort(code int, reason string) {
	if code < 1 || code > 255 {
		code = 1
	}
	name, place := "this process", (*bootstrap.Place)(nil)
	if j := current.Load(); j != nil {
		name, place = fmt.Sprintf("rank %d of %d", j.Rank(), j.Size()), j.place
	}
	report := func() {
		fmt.Fprintf(os.Stderr, "softnd: %s aborts the job with code %d: %s\n", name, code, reason)
	}
	told, printed := reason, place != nil && place.LauncherHidesReason
	if len(reason) > maxReason || strings.ContainsAny(reason, "\r\n") {
		told, printed = "the rank has printed the reason", place != nil
	}
	if printed {
		report() // first: the launcher may kill this process as soon as it is told
		bootstrap.WaitUntilRead(os.Stderr)
		place.Abort(code, told)
	} else if !place.Abort(code, reason) {
		report()
	}
	os.Exit(code)
}

// Main makes the process a rank as [Init] does, calls rank, closes the job, and ends the process. The exit code is 0 if rank
// returns nil. If Init, rank or [Job.Close] fails, Main calls [Abort] with code 1 and the error. The context of rank ends at
// SIGINT and SIGTERM, and a further signal ends the process. Main implies [WithExit]. A program calls it last in its function
// main:
//
//	func main() { softnd.Main(run) }
func Main(rank func(ctx context.Context, job *Job) error, options ...Option) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	job, err := Init(ctx, append(slices.Clip(options), WithExit())...)
	Check(err)
	Check(rank(ctx, job))
	Check(job.Close())
	os.Exit(0)
}

// end is called when another rank has ended the job, and no launcher ends this rank.
func (j *Job) end(code int, why string) {
	if current.Load() != j {
		return // it has left the job
	}
	if j.exits {
		fmt.Fprintf(os.Stderr, "softnd: rank %d of %d ends with the job: %s\n", j.Rank(), j.Size(), why)
		os.Exit(code)
	}
	cause := &nd.OpError{Object: "job", Status: nd.ConnectionAborted, Detail: why, Next: "close the job and end the process"}
	if j.cause.CompareAndSwap(nil, cause) {
		close(j.done)
	}
}

// Done returns a channel that is closed when another rank has ended the job, and no launcher ends this process: at
// SOFTND_ROOT, when a rank has called [Abort] or died. [Job.Err] has the cause then. With [Main] or [WithExit], the process
// ends instead. Every call returns the same channel. Close does not close it.
func (j *Job) Done() <-chan struct{} { return j.done }

// Err returns an error with [nd.ConnectionAborted] that names the rank which has ended the job, and nil if no rank has. After
// the channel of [Job.Done] is closed, Err is not nil.
func (j *Job) Err() error {
	if cause := j.cause.Load(); cause != nil {
		return cause
	}
	return nil
}
