// Ndbench measures softnd, and the limits of the machine next to it:
//
//	ndbench TEST [option]...             alone: starts the other ranks itself
//	ndrun -n 2 ndbench TEST [option]...  as the ranks of a job
//	ndbench TEST --server NAME           in one terminal, and in another
//	ndbench TEST --client NAME
//
// "ndbench list" names the tests, "ndbench help TEST" the options. Rank 0
// reports; of a server and its client both do.
//
// "ndbench peers" sets other transports beside softnd.
//
// The exit status is 0 if all went well; 1 if not; 2 if ndbench was called in a
// wrong way; 3 if --compare found a change beyond the noise; 4 if figures of
// peers are missing, or of softnd among theirs. Should it be killed, or one of
// its ranks, the others go with it.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
)

// Exit statuses.
const (
	exitFailure = 1
	exitUsage   = 2
	exitChanged = 3
	exitPeers   = 4
)

func main() {
	// The other ranks are to die with this process. The kernel goes by the thread
	// that started them, so that has to be one that never ends: the main one.
	runtime.LockOSThread()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// usageError is a mistake of the caller's.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errChanged says that a comparison found a change.
var errChanged = errors.New("figures have changed beyond the noise")

// errIncomplete says that a comparison with peers lacks figures.
var errIncomplete = errors.New("figures are missing")

// run is main with everything it works on; it returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	root := newRoot(stdout, stderr)
	root.SetArgs(args)
	err := root.Execute()
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "ndbench: %v\n", err)
	var usage usageError
	switch {
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, errIncomplete):
		return exitPeers
	case errors.Is(err, errChanged):
		return exitChanged
	}
	return exitFailure
}
