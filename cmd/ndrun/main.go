// Ndrun runs a program as the ranks of a job on this host:
//
//	ndrun [-n N] [-wdir DIR] [-env K=V]... program [argument]...
//
// Options end at the program's name: the program's own are never touched. The program
// is looked up as a shell does. If it is a directory that holds a Go package, the
// package is built first, and leaves no file behind.
//
// A rank finds its number in SOFTND_RANK, the number of ranks in SOFTND_SIZE, and in
// SOFTND_ARENA_FD the descriptor of the memory that the ranks share. Rank 0 has
// ndrun's standard input. Each line of output carries the rank that wrote it, as
// "[2] text"; a terminal shows a line that ends with a carriage return as well.
//
// The exit status is 0 if every rank exited with 0, otherwise the code of the rank
// that failed first, where a rank killed by signal n counts as 128 + n; 128 + n too if
// signal n to ndrun ended the job before any rank failed; 1 if ndrun itself failed,
// and 2 if it was called in a wrong way.
//
// When a rank fails, the others get SIGTERM and shortly afterwards SIGKILL, together
// with whatever they have started. SIGINT, SIGTERM, SIGHUP and SIGQUIT to ndrun are
// passed on and leave the ranks 5 seconds; a second one kills at once. SIGUSR1,
// SIGUSR2, SIGTSTP and SIGCONT are passed on. Should ndrun itself be killed, the job
// goes with it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/launcher"
)

// Exit statuses that are not the ranks'.
const (
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	launcher.Serve()
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is main with everything it works on; it returns the exit status.
func run(args []string, stdin *os.File, stdout, stderr io.Writer) int {
	complain := func(err error) { fmt.Fprintf(stderr, "ndrun: %v\n", err) }
	opts, err := parse(args)
	if errors.Is(err, errHelp) {
		io.WriteString(stdout, usage)
		return 0
	}
	if err != nil {
		complain(err)
		return exitUsage
	}
	prog, err := find(opts.args[0])
	if err != nil {
		complain(err)
		return exitUsage
	}
	cfg := launcher.Config{
		Ranks:  opts.ranks,
		Path:   prog.path,
		Args:   append([]string{prog.name}, opts.args[1:]...),
		Dir:    opts.dir,
		Env:    append(os.Environ(), opts.env...),
		Stdin:  stdin,
		Stdout: stdout,
		Stderr: stderr,
	}
	if prog.isPackage {
		cfg.Program, err = build(prog.path, prog.name, stderr)
		var sig interrupted
		if errors.As(err, &sig) {
			complain(err)
			return 128 + int(sig)
		}
		if err != nil {
			complain(err)
			return exitFailure
		}
		defer cfg.Program.Close()
	}
	arena, err := createArena(opts.ranks)
	if err != nil {
		complain(err)
		return exitFailure
	}
	defer arena.Close()
	cfg.Files = []*os.File{arena.File()}
	var shown []string
	if launcher.IsTerminal(os.Stdout) {
		shown = []string{softnd.EnvTerminal + "=1"}
	}
	cfg.RankEnv = func(rank int) []string {
		return append(shown,
			softnd.EnvRank+"="+strconv.Itoa(rank),
			softnd.EnvSize+"="+strconv.Itoa(opts.ranks),
			softnd.EnvArenaFD+"="+strconv.Itoa(launcher.FirstFile))
	}
	cfg.Signals = launcher.CatchSignals()
	report, err := launcher.Run(context.Background(), cfg)
	status := 0
	if report != nil {
		for _, line := range report.Messages() {
			complain(errors.New(line))
		}
		status = report.ExitStatus()
	}
	if err != nil {
		complain(err)
		if status == 0 {
			status = exitFailure
		}
	}
	return status
}
