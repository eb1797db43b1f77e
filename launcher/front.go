package launcher

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// front is a running job as seen by the process that called Run.
type front struct {
	cfg     Config
	guard   *exec.Cmd
	conn    *net.UnixConn
	keeper  *gob.Encoder
	streams []*stream
	copying sync.WaitGroup
	outErr  chan error // what went wrong with each sink
	report  *Report
	failure error // of the launcher, not of a rank
}

// begin starts the guard and, through it, the job.
func begin(cfg Config) (_ *front, err error) {
	f := &front{
		cfg:    cfg,
		outErr: make(chan error, 2), // one per sink: never blocks
		report: &Report{Program: filepath.Base(cfg.Args[0]), Ranks: make([]Result, cfg.Ranks), First: -1},
	}
	defer func() {
		if err != nil {
			f.abandon()
		}
	}()
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, fmt.Errorf("make a socket: %w%s", err, remedy(err))
	}
	f.conn = ours
	writers, err := f.pipes()
	// The guard has its own copies when this returns, and our end of the socket must
	// not seem alive because of a copy in here.
	defer closeAll(append(writers, theirs))
	if err != nil {
		return nil, err
	}

	// In the order of the descriptor numbers that the keeper expects.
	inherited := []*os.File{theirs}
	if cfg.Program != nil {
		inherited = append(inherited, cfg.Program)
	}
	inherited = append(inherited, cfg.Files...)
	inherited = append(inherited, writers...)
	f.guard = &exec.Cmd{
		Path:        "/proc/self/exe",
		Args:        []string{guardName, strconv.Itoa(len(inherited))},
		Stdin:       cfg.Stdin,
		Stderr:      os.Stderr, // for a guard or keeper in trouble; ranks have their pipes
		ExtraFiles:  inherited,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := f.guard.Start(); err != nil {
		return nil, fmt.Errorf("start the job's guard: %w%s", err, remedy(err))
	}
	return f, nil
}

// pipes makes the pipes for the ranks' output and returns their writing ends.
func (f *front) pipes() (writers []*os.File, err error) {
	sinks := newSinks(f.cfg.Stdout, f.cfg.Stderr, func(err error) { f.outErr <- err })
	for rank := range f.cfg.Ranks {
		for _, to := range sinks {
			r, w, err := os.Pipe()
			if err != nil {
				return writers, fmt.Errorf("make the output pipes of rank %d of %d: %w%s", rank, f.cfg.Ranks, err, remedy(err))
			}
			f.streams = append(f.streams, newStream(rank, r, to))
			writers = append(writers, w)
		}
	}
	return writers, nil
}

// abandon takes back what begin has made.
func (f *front) abandon() {
	if f.conn != nil {
		f.conn.Close()
	}
	for _, s := range f.streams {
		s.from.Close()
	}
}

func closeAll(files []*os.File) {
	for _, file := range files {
		file.Close()
	}
}

func socketPair() (ours *net.UnixConn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	file := os.NewFile(uintptr(fds[0]), "front's end")
	defer file.Close()
	theirs = os.NewFile(uintptr(fds[1]), "keeper's end")
	conn, err := net.FileConn(file)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return conn.(*net.UnixConn), theirs, nil
}

// order tells the keeper. That the keeper has gone shows as the end of its events.
func (f *front) order(o order) { _ = f.keeper.Encode(o) }

// run follows the job to its end.
func (f *front) run(ctx context.Context) (*Report, error) {
	defer f.conn.Close()
	for _, s := range f.streams {
		f.copying.Go(s.copy)
	}
	f.keeper = gob.NewEncoder(f.conn)
	f.order(order{Kind: orderStart, Job: f.cfg.job()})

	events := make(chan event)
	go receive(f.conn, events)
	guardEnded := make(chan error, 1)
	go func() { guardEnded <- f.guard.Wait() }()

	canceled := ctx.Done()
	done, guarded := false, true
	for events != nil || guarded {
		select {
		case e, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			done = done || e.Kind == eventDone
			f.note(e)
		case <-guardEnded:
			// Normally the last to go. If it was killed, so is the job: the keeper takes
			// the end of the stream for our death.
			guarded = false
			_ = f.conn.CloseWrite()
		case sig := <-f.cfg.Signals:
			f.passOn(sig.(syscall.Signal))
		case <-canceled:
			canceled = nil
			f.failed(context.Cause(ctx))
			f.order(order{Kind: orderStop})
		case err := <-f.outErr:
			f.failed(err)
			f.order(order{Kind: orderStop})
		}
	}
	if !done || !f.guard.ProcessState.Success() {
		f.failed(f.lost())
	}
	f.flush()
	return f.report, f.failure
}

func (f *front) failed(err error) { f.failure = errors.Join(f.failure, err) }

// note enters what the keeper saw into the report.
func (f *front) note(e event) {
	switch e.Kind {
	case eventStarted:
		f.report.Ranks[e.Rank].PID = e.PID
	case eventRefused:
		f.failed(fmt.Errorf("start rank %d of %d (%s): %w%s", e.Rank, f.cfg.Ranks, f.report.Program, e.Errno, remedy(e.Errno)))
	case eventStopping:
		f.report.Signal = e.Signal
	case eventEnded:
		r := &f.report.Ranks[e.Rank]
		r.Ended, r.Status, r.Stopped = true, e.Status, e.Stopping
		if f.report.First < 0 && !e.Stopping && exitCode(e.Status) != 0 {
			f.report.First = e.Rank
		}
	case eventDone:
		f.report.Leftover, f.report.Stuck = e.Leftover, e.Stuck
		if e.Problem != "" {
			f.failed(fmt.Errorf("look for what the job left behind: %s; look with ps and end it by hand", e.Problem))
		}
	}
}

// passOn passes a signal on to the ranks.
func (f *front) passOn(sig syscall.Signal) {
	if sig == syscall.SIGTSTP && !canBeResumed() {
		return
	}
	f.order(order{Kind: orderSignal, Signal: sig})
	if sig == syscall.SIGTSTP {
		suspend() // the SIGCONT that ends it is passed on like any other
	}
}

// lost says what happened to the guard or, as the guard tells, to the keeper.
func (f *front) lost() error {
	ws := f.guard.ProcessState.Sys().(syscall.WaitStatus)
	who, how := guardName, describe(ws)
	if code := ws.ExitStatus(); code >= 0 {
		who = keeperName
		if code > 128 {
			how = describe(syscall.WaitStatus(code - 128))
		}
	}
	return fmt.Errorf("keep the job together: %w: %s %s; the ranks were killed; start the job again", ErrKeeperLost, who, how)
}

// flush waits until all that the ranks wrote has been passed on. The user may end
// the wait: a terminal can stand still for ever.
func (f *front) flush() {
	for _, s := range f.streams {
		s.finish()
	}
	go func() {
		f.copying.Wait()
		close(f.outErr)
	}()
	for {
		select {
		case err, ok := <-f.outErr:
			if !ok {
				return
			}
			f.failed(err)
		case sig := <-f.cfg.Signals:
			if endsJob(sig.(syscall.Signal)) {
				f.failed(fmt.Errorf("pass on the ranks' last words: stopped by signal %s before the output took them", signalName(sig.(syscall.Signal))))
				return
			}
		}
	}
}

// remedy is the next step for some errors of the system, to be put behind them.
func remedy(err error) string {
	for errno, step := range map[syscall.Errno]string{
		syscall.EMFILE:  "raise the limit of open files (ulimit -Hn) or start fewer ranks",
		syscall.ENFILE:  "the whole system has too many files open: start fewer ranks",
		syscall.EAGAIN:  "raise the limit of processes (ulimit -u, or the container's) or start fewer ranks",
		syscall.ENOMEM:  "free memory or start fewer ranks",
		syscall.ENOEXEC: "it is not a program for this machine, or a script without a #! line",
		syscall.ENOENT:  "check the program, the interpreter in its first line if it is a script, and the working directory",
		syscall.EACCES:  "check the permissions of the program and the working directory, and that their file system allows programs (noexec)",
		syscall.ETXTBSY: "the program is being written: wait for its build to end",
		syscall.E2BIG:   "shorten the arguments or the environment",
	} {
		if errors.Is(err, errno) {
			return "; " + step
		}
	}
	return ""
}
