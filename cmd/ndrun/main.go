// Ndrun runs a program as the ranks of a job on this host:
//
//	ndrun [option]... program [argument]... [: [option]... program [argument]...]...
//
// Options are those of mpiexec, with one dash or two. They end at the name of the program; the
// following words are its arguments. ndrun -help lists the options, and docs/ndrun.md explains
// them. The program is looked up as by a shell. If it is a directory that holds a Go package, the
// package is built in memory first. A lone colon separates programs; ranks are numbered through
// all of them.
//
// A rank finds its number in SOFTND_RANK, the number of ranks in SOFTND_SIZE, and the number of
// its program, from 0, in SOFTND_APPNUM. SOFTND_ARENA_FD is the descriptor of the memory that the
// ranks share. If a wrapper has closed that descriptor, the rank gets it from ndrun by means of
// SOFTND_CONTROL. Programs of MPICH find PMI, the protocol of MPICH's launchers, in PMI_FD. Rank 0
// has ndrun's standard input, unless --stdin says otherwise. Each line of output is prefixed with
// the rank that wrote it, as "[2] text", unless --no-label or --json-lines is given. On a
// terminal, a carriage return ends a line too.
//
// The exit status is 0 if every rank exited with 0. Otherwise it is the code of the rank that
// failed first; a rank killed by signal n counts as 128 + n. If signal n to ndrun ended the job
// before any rank failed, it is 128 + n. It is 124 if --timeout ended the job, 1 if ndrun itself
// failed, and 2 if the command line is invalid. If all else has succeeded, it is 3 if a rule of
// --faults never acted, and 4 if --check has found an error. It is then 5 if --check has found none,
// but has not watched all ranks. A rank that aborts the job
// (softnd.Abort, MPI_Abort) has failed with the given code. A rank that exits with 0 after PMI init
// without PMI finalize has failed with 1.
//
// When a rank fails, unless --on-death continue is given, the others and all processes that they have started get SIGTERM and shortly
// afterwards SIGKILL. SIGINT, SIGTERM, SIGHUP and SIGQUIT to ndrun are forwarded; the ranks are
// killed 5 seconds later (--grace), or at once after a second signal. Before ndrun forwards SIGQUIT,
// it reports what each rank waits for, and why. Before it forwards the other signals, it does so if
// no rank has made progress for a second. SIGUSR1, SIGUSR2, SIGTSTP and SIGCONT are forwarded. If
// ndrun itself is killed, the job is killed too.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/launcher"
)

// reportTimeout limits how long ndrun may take to report the outcome of a job that a signal or
// its time limit has ended.
const reportTimeout = 5 * time.Second

// Exit statuses of ndrun itself.
const (
	exitFailure = 1
	exitUsage   = 2

	exitUnusedFault = 3 // a rule of the fault plan never acted
)

func main() {
	launcher.Serve()
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is main with its inputs and outputs as parameters. It returns the exit status.
func run(args []string, stdin *os.File, stdout, stderr io.Writer) int {
	printError := func(err error) { fmt.Fprintf(stderr, "ndrun: %v\n", err) }
	signals := linux.CatchSignals()
	stopDefaultActions := linux.TakeDefaultActions(signals)
	cmd, err := parse(args)
	var asked text
	if errors.As(err, &asked) {
		io.WriteString(stdout, string(asked))
		return 0
	}
	if err != nil {
		printError(err)
		return exitUsage
	}
	p, err := makePlan(cmd)
	if err != nil {
		printError(err)
		return exitUsage
	}
	injected, err := cmd.faults.load(len(p.ranks))
	if err != nil {
		printError(err)
		return exitUsage
	}
	if cmd.dryRun {
		p.print(stdout)
		return 0
	}
	reportFile, err := cmd.output.openReport()
	if err != nil {
		printError(err)
		return exitUsage
	}
	var check *checker
	// fail reports an error because of which the job is not started, also in the files of the options.
	fail := func(status int, err error) int {
		if err := errors.Join(p.reportOutcome(nil, nil, status, err, reportFile, printError), check.abandon()); err != nil {
			printError(err)
		}
		return status
	}
	if check, err = newChecker(cmd, len(p.ranks), stdout); err != nil {
		return fail(exitUsage, err)
	}
	defer p.close()
	stopDefaultActions()
	err = p.build(stderr, signals)
	stopDefaultActions = linux.TakeDefaultActions(signals)
	if err != nil {
		var sig interrupted
		if errors.As(err, &sig) {
			return fail(128+int(sig), err)
		}
		return fail(exitFailure, err)
	}
	for _, warning := range p.openMPI() {
		printError(errors.New(warning))
	}
	job := launcher.Prepare(len(p.ranks))
	defer job.Close()
	arena, err := createArena(len(p.ranks), cmd.arenaSize, injected)
	if err != nil {
		return fail(exitFailure, err)
	}
	if cmd.weakOrder != "" {
		printError(fmt.Errorf("weak order with seed %s: --weak-order %[1]s repeats it", cmd.weakOrder))
	}
	if injected.isRandom() { // before the ranks start: the job may hang, or be killed
		printError(fmt.Errorf("random faults with seed %d: --faults-seed %[1]d repeats them", injected.seed))
	}
	if cmd.reportBindings {
		p.reportBindings(printError)
	}
	reporter := &hangReporter{plan: p, to: stderr, diagnoseNow: make(chan struct{}), arena: arena}
	defer reporter.close()
	cfg := launcher.Config{
		Apps:        p.apps(),
		Files:       []*os.File{arena.File()},
		StopAtStart: cmd.stopped.has,
		OnStopped:   func(rank, pid int) { reportStopped(rank, pid, printError) },
		Warn:        func(text string) { printError(errors.New(text)) },
		Timeout:     cmd.timeout,
		Diagnose:    reporter.diagnose,
		DiagnoseNow: reporter.diagnoseNow,
		Causes:      func(victim int) []int { return causes(arena, victim) },
		Grace:       cmd.grace,
		SignalGrace: cmd.grace,
		Stdin:       stdin,
		Stdout:      stdout,
		Stderr:      stderr,
		Signals:     signals,
	}
	if cmd.goOn {
		cfg.OnDeath = func(rank int, text string) {
			reporter.ended(rank)
			if !cmd.output.quiet {
				printError(fmt.Errorf("%s; the other ranks go on", text))
			}
		}
	}
	cmd.output.apply(&cfg, len(p.ranks))
	if err := check.start(&cfg); err != nil {
		return fail(exitFailure, err)
	}
	services, err := startRankServices(p, &cfg, arena, check.journalFile(), reporter.ended)
	if err != nil {
		return fail(exitFailure, err)
	}
	cfg.RankEnv = func(rank int) []string {
		return slices.Concat(services.env(rank, len(cfg.Files)), p.rankEnv(rank), injected.env(), check.env(len(cfg.Files)))
	}
	if cmd.binding.to != "" {
		cfg.CPUs = func(rank int) []int { return p.ranks[rank].place.cpus }
	}
	watching, done := context.WithCancel(context.Background())
	var watcher sync.WaitGroup
	if cmd.hangAfter > 0 {
		watcher.Go(func() { reporter.watch(watching) })
	}
	stopDefaultActions()
	report, err := job.Run(context.Background(), cfg)
	done()
	watcher.Wait()
	linux.TakeDefaultActions(signals) // only messages are left to write, and writing may block
	status := 0
	if report != nil {
		status = report.ExitStatus()
	}
	if err != nil && status == 0 {
		status = exitFailure
	}
	if unused := injected.report(report); unused != nil {
		err = errors.Join(err, unused)
		if status == 0 {
			status = exitUnusedFault
		}
	}
	if report != nil && (report.Signal != 0 || report.TimedOut) {
		// If no process reads the messages, they do not delay the end of a stopped job.
		code := status
		late := time.AfterFunc(reportTimeout, func() { os.Exit(code) })
		defer late.Stop()
	}
	more := slices.Concat(services.end(report), injected.lines())
	if cmd.weakOrder != "" && status != 0 {
		more = append(more, fmt.Sprintf("the job failed with a weak order; --weak-order %s repeats it; docs/weak-order.md lists the mistakes that it shows", cmd.weakOrder))
	}
	if report != nil && report.Signal == syscall.SIGQUIT {
		more = append(more, report.Hang...) // again, below the output of the ranks about the signal
	}
	checked, checkErr := check.end(status == 0)
	more = append(more, checked.lines...)
	if checkErr != nil {
		printError(checkErr)
	}
	if status == 0 {
		switch {
		case checkErr != nil:
			status = exitFailure
		default:
			status = checked.status
		}
	}
	if err := p.reportOutcome(report, more, status, err, reportFile, printError); err != nil {
		printError(err)
		if status == 0 || status == checked.status {
			status = exitFailure
		}
	}
	return status
}
