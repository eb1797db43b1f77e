package softnd

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// current is the job that this process has joined last and not closed yet, if any.
var current atomic.Pointer[Job]

// longestReason is the longest reason that launchers are given to print, in bytes.
const longestReason = 512

// Abort ends the job: this process at once, with an exit code of 1 to 255 (any other
// counts as 1), and the other ranks by the launcher's hand. The reason, one line for
// the user, appears with the rank that gave it. It never returns, runs no deferred
// function, and may be called by any goroutine at any time.
//
// ndrun ends with the code of the first rank that aborts or fails, also where a
// wrapper hides it; so does Hydra's mpiexec. Other launchers end the job
// because a rank has failed. Ranks that met by [Join] see the death of this one.
func Abort(code int, reason string) {
	if code < 1 || code > 255 {
		code = 1
	}
	who, p := "this process", (*place)(nil)
	if j := current.Load(); j != nil {
		who = fmt.Sprintf("rank %d of %d", j.Rank(), j.Size())
		p = j.place
	}
	say := func() { fmt.Fprintf(os.Stderr, "softnd: %s aborts the job with code %d: %s\n", who, code, reason) }
	brief := len(reason) <= longestReason && !strings.ContainsAny(reason, "\r\n")
	switch {
	case p == nil || p.abort == nil:
		say()
	case p.mute || !brief:
		say() // first: the launcher may kill this process as soon as it hears of it
		letRead(os.Stderr)
		_ = p.abort(code, "see what it said")
	case p.abort(code, reason) != nil:
		say()
	}
	os.Exit(code)
}

// letRead gives whoever reads a pipe a moment to take what is in it. Hydra does not
// look at the output of ranks any more once it has heard of an abort.
func letRead(pipe *os.File) {
	if info, err := pipe.Stat(); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return
	}
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		unread, err := unix.IoctlGetInt(int(pipe.Fd()), unix.TIOCINQ)
		if err != nil || unread == 0 {
			return
		}
	}
}
