// Ndbench measures softnd, and next to it the limits of the machine:
//
//	ndbench TEST [option]...             alone: starts the other ranks itself
//	ndrun -n 2 ndbench TEST [option]...  as the ranks of a job
//	ndbench TEST --server NAME           in one terminal, and in another
//	ndbench TEST --client NAME
//	mpiexec.hydra -hosts A,B -ppn 1 -n 2 ndbench TEST [option]...
//
// The last line measures between two hosts, as ranks at SOFTND_ROOT do.
//
// With --lang, ranks of tests of transfers are C programs.
//
// "ndbench list" names the tests, "ndbench help TEST" the options. Rank 0 reports; both a server and its client do.
//
// "ndbench peers" compares other transports with softnd.
//
// The exit status is 0 after success; 1 after a failure; 2 if the command line is wrong; 3 if --compare found a change beyond
// the noise; 4 if "ndbench peers" or --beside lacks figures. If ndbench or one of its ranks is killed, the others
// are killed, too.
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
	// The kernel kills the other ranks when the thread that started them exits. This has to be the main thread, which never
	// exits before the process.
	runtime.LockOSThread()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// usageError is an error in the command line.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errChanged reports that a comparison found a change.
var errChanged = errors.New("figures have changed beyond the noise")

// errIncomplete reports that a comparison with peers lacks figures.
var errIncomplete = errors.New("figures are missing")

// run is main with its arguments and outputs as parameters. It returns the exit status.
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
