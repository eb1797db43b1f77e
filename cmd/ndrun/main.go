// Ndrun runs a program as the ranks of a job on this host:
//
//	ndrun [option]... program [argument]... [: [option]... program [argument]...]...
//
// Options are mpiexec's, with one dash or two, and end at the program's name: the
// program's own are never touched. ndrun -help lists them, and docs/ndrun.md explains
// them. The program is looked up as a shell does. If it is a directory that holds a Go
// package, the package is built first, and leaves no file behind. A lone colon puts
// another program behind it, whose ranks continue the numbers.
//
// A rank finds its number in SOFTND_RANK, the number of ranks in SOFTND_SIZE, the number
// of its program, from 0, in SOFTND_APPNUM, and in SOFTND_ARENA_FD the descriptor of the
// memory that the ranks share; SOFTND_FABRIC leads to it where a wrapper has closed the
// descriptor. Programs of MPICH find PMI, the interface of its own launchers, in PMI_FD.
// Rank 0 has ndrun's standard input, unless --stdin says otherwise. Each line of output
// carries the rank that wrote it, as "[2] text", unless --no-label or --json-lines is
// given; a terminal shows a line that ends with a carriage return as well.
//
// The exit status is 0 if every rank exited with 0, otherwise the code of the rank
// that failed first, where a rank killed by signal n counts as 128 + n; 128 + n too if
// signal n to ndrun ended the job before any rank failed, and 124 if --timeout did; 1 if
// ndrun itself failed, and 2 if it was called in a wrong way. A rank that aborts the job
// (softnd.Abort, MPI_Abort) counts as failed with the code that it gives, and one that
// has begun to use PMI and exits with 0 without finalizing as failed with 1.
//
// When a rank fails, the others get SIGTERM and shortly afterwards SIGKILL, together
// with whatever they have started. SIGINT, SIGTERM, SIGHUP and SIGQUIT to ndrun are
// passed on and leave the ranks 5 seconds (--grace); a second one kills at once. Before
// SIGQUIT is passed on, ndrun reports what each rank waits for, and why; before the
// others, it does so if no rank has made progress for a second. SIGUSR1,
// SIGUSR2, SIGTSTP and SIGCONT are passed on. Should ndrun itself be killed, the job
// goes with it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/softnd/softnd/launcher"
)

// lastWordsTime is how long ndrun may take to report the outcome of a job that a signal
// or its time limit has ended.
const lastWordsTime = 5 * time.Second

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
	signals := launcher.CatchSignals()
	heedNone := launcher.DieOfSignals(signals)
	cmd, err := parse(args)
	var asked text
	if errors.As(err, &asked) {
		io.WriteString(stdout, string(asked))
		return 0
	}
	if err != nil {
		complain(err)
		return exitUsage
	}
	p, err := makePlan(cmd)
	if err != nil {
		complain(err)
		return exitUsage
	}
	if cmd.dryRun {
		p.show(stdout)
		return 0
	}
	reportFile, err := cmd.output.openReport()
	if err != nil {
		complain(err)
		return exitUsage
	}
	defer p.close()
	heedNone()
	err = p.build(stderr, signals)
	heedNone = launcher.DieOfSignals(signals)
	if err != nil {
		complain(err)
		var sig interrupted
		if errors.As(err, &sig) {
			return 128 + int(sig)
		}
		return exitFailure
	}
	job := launcher.Prepare(len(p.ranks))
	defer job.Close()
	arena, err := createArena(len(p.ranks), cmd.arenaSize)
	if err != nil {
		complain(err)
		return exitFailure
	}
	if cmd.reportBindings {
		p.reportBindings(complain)
	}
	explainer := &explainer{plan: p, to: stderr, ask: make(chan struct{}), arena: arena}
	defer explainer.close()
	cfg := launcher.Config{
		Parts:       p.parts(),
		Files:       []*os.File{arena.File()},
		StopAtStart: cmd.stopped.has,
		Stopped:     func(rank, pid int) { attach(rank, pid, complain) },
		Notice:      func(text string) { complain(errors.New(text)) },
		Timeout:     cmd.timeout,
		Explain:     explainer.explain,
		Ask:         explainer.ask,
		Causes:      func(victim int) []int { return causes(arena, victim) },
		Grace:       cmd.grace,
		SignalGrace: cmd.grace,
		Stdin:       stdin,
		Stdout:      stdout,
		Stderr:      stderr,
		Signals:     signals,
	}
	cmd.output.apply(&cfg, len(p.ranks))
	services, err := serve(p, &cfg, arena, explainer.ended)
	if err != nil {
		complain(err)
		return exitFailure
	}
	cfg.RankEnv = func(rank int) []string { return append(services.env(rank, len(cfg.Files)), p.rankEnv(rank)...) }
	if cmd.binding.to != "" {
		cfg.CPUs = func(rank int) []int { return p.ranks[rank].place.cpus }
	}
	watching, done := context.WithCancel(context.Background())
	var watcher sync.WaitGroup
	if cmd.hangAfter > 0 {
		watcher.Go(func() { explainer.watch(watching) })
	}
	heedNone()
	report, err := job.Run(context.Background(), cfg)
	done()
	watcher.Wait()
	launcher.DieOfSignals(signals) // from here on only messages are left, and writing them may block
	status := 0
	if report != nil {
		status = report.ExitStatus()
	}
	if err != nil && status == 0 {
		status = exitFailure
	}
	if report != nil && (report.Signal != 0 || report.TimedOut) {
		// If no process reads the last words, they do not delay the end of a stopped job.
		late := time.AfterFunc(lastWordsTime, func() { os.Exit(status) })
		defer late.Stop()
	}
	more := services.end(report)
	if report != nil && report.Signal == syscall.SIGQUIT {
		more = append(more, report.Hang...) // again, below what the ranks had to say to the signal
	}
	if err := cmd.output.tell(report, more, status, err, reportFile, complain); err != nil {
		complain(err)
		if status == 0 {
			status = exitFailure
		}
	}
	return status
}
