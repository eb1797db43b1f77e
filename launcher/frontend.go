package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/linux"
)

// frontEnd is a running job in the process that called [Job.Run].
type frontEnd struct {
	*Job
	cfg          Config
	job          *jobSpec
	orders       sender        // to the supervisor
	from         receiver      // of the supervisor's events
	pipes        map[int][]int // by rank, until startReading
	files        []*os.File    // output files, two for each rank; nil if there is none
	sinks        [2]*sink
	streams      []*stream      // indexed like files; nil before the start of a rank and if it wrote nothing
	readers      []int          // ranks that get the standard input
	inputs       []*os.File     // standard input of each of readers
	input        *stdinCopier   // nil unless several ranks get the standard input
	stopInput    *os.File       // closed to stop input
	inputEnded   chan struct{}  // closed when input has stopped
	copying      sync.WaitGroup // of the output
	outErr       chan error     // errors of a sink or of the input
	report       *Report
	aborts       []Abort // in order of arrival
	lateAborts   []Abort // aborts that arrived when the end of the job had been ordered
	failure      error   // errors of the launcher, not of ranks
	taskLimitHit bool    // a process or thread could not be created
	pipesLost    bool    // the pipes of some ranks could not be received
	ending       bool    // an order to end the job has been sent
	expired      bool    // because of Config.Timeout
	signaled     bool    // a signal that ends the job has arrived

	signal syscall.Signal // that was sent first to end the job; 0 if another order came first

	diagnosis   diagnosis
	helpers     helpers
	causeSearch causeSearch
}

// begin creates everything that the job needs before the supervisor starts it.
func begin(p *Job, cfg Config) (_ *frontEnd, err error) {
	f := &frontEnd{
		Job:    p,
		cfg:    cfg,
		orders: sender{conn: p.conn},
		from:   receiver{conn: p.conn},
		pipes:  make(map[int][]int),
		outErr: make(chan error, 1),
		report: newReport(&cfg),
	}
	defer func() {
		if err != nil {
			f.abandon()
		}
	}()
	if err := f.createOutputs(); err != nil {
		return nil, err
	}
	if err := f.openInputs(); err != nil {
		return nil, err
	}
	if err := f.checkDescriptorLimit(); err != nil {
		return nil, err
	}
	<-f.limitsRead
	if err := f.limits.checkTaskLimit(&cfg); err != nil {
		return nil, err
	}
	f.job = f.sendJob()
	return f, nil
}

// checkDescriptorLimit returns an error if this process may not open the pipes of all ranks.
// Without this check, the limit would be reached when some ranks already run.
func (f *frontEnd) checkDescriptorLimit() error {
	const reserve = 1024 // with so many to spare, the open descriptors need not be counted
	const transient = 8  // open now but closed soon, such as that of /proc/self/fd
	var limit unix.Rlimit
	need := uint64((&jobSpec{Socket: f.cfg.RankSocket != nil}).pipesPerRank() * f.ranks)
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || need+reserve <= limit.Cur {
		return nil
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil || uint64(len(open))+need <= limit.Cur+transient {
		return nil
	}
	return fmt.Errorf("create output pipes for %d ranks: %w%s", f.ranks, unix.EMFILE, hint(unix.EMFILE))
}

// openInputs creates what the ranks read: the standard input itself, or a pipe for each of
// several ranks.
func (f *frontEnd) openInputs() (err error) {
	f.readers = f.cfg.stdinRanks()
	switch len(f.readers) {
	case 0:
		return nil
	case 1:
		f.inputs = []*os.File{f.cfg.Stdin}
		return nil
	}
	if f.input, f.inputs, err = newStdinCopier(f.cfg.Stdin, f.readers, f.streamFailed); err == nil {
		f.input.stop, f.stopInput, err = os.Pipe()
	}
	return err
}

// sendJob orders the supervisor to start the job.
func (f *frontEnd) sendJob() *jobSpec {
	programs := f.cfg.programs()
	j := f.cfg.spec(programs)
	j.Readers, j.Cgroup = f.readers, f.cgroup
	for _, file := range slices.Concat(programs, f.cfg.Files, f.inputs) {
		f.orders.enclose([]int{int(file.Fd())})
	}
	f.order(order{Kind: orderStart, Job: j})
	f.closeInputs()
	return &j
}

// closeInputs closes the ranks' ends of the pipes for standard input.
func (f *frontEnd) closeInputs() {
	if len(f.readers) > 1 { // one reader has the standard input itself
		closeAll(f.inputs)
	}
	f.inputs = nil
}

// abandon releases what begin has created.
func (f *frontEnd) abandon() {
	closeAll(f.files)
	f.closeInputs()
	if f.input != nil {
		f.input.close()
		f.input.stop.Close() // on nil it only returns an error
		f.stopInput.Close()
	}
}

func closeAll(files []*os.File) {
	for _, file := range files {
		file.Close() // on nil it only returns an error
	}
}

// order sends an order to the supervisor. The death of the supervisor shows as the end of its
// events. If an order cannot be sent, order closes the sending direction: the supervisor reads
// end of file and kills the job, as after the death of the front end.
func (f *frontEnd) order(o order) {
	failedBefore := f.orders.failed() != nil
	f.orders.put(&o)
	f.orders.flush()
	if err := f.orders.failed(); err != nil && !failedBefore {
		f.addError(fmt.Errorf("send order to supervisor process: %w: allow the system call sendmsg (seccomp profile?)", err))
		_ = f.from.conn.CloseWrite()
	}
}

// end sends an order that ends the job. A signal after another such order kills the job at once.
func (f *frontEnd) end(o order) {
	f.order(o)
	now := time.Now()
	switch {
	case !f.ending:
		f.ending, f.signal = true, o.Signal
		f.helpers.setKillDeadline(now.Add(f.job.SignalGrace + killTimeout))
	case o.Kind == orderSignal:
		f.helpers.setKillDeadline(now)
	}
	f.checkHelpers()
}

// run handles the events of the job until it has ended.
func (f *frontEnd) run(ctx context.Context) (*Report, error) {
	conn := f.from.conn
	defer conn.Close()
	defer f.from.close()
	if f.input != nil {
		f.inputEnded = make(chan struct{})
		go func() {
			defer close(f.inputEnded)
			f.input.copy()
		}()
	}
	defer closeAll(f.files) // those that no stream closes
	events := make(chan event)
	go receive(&f.from, events)
	canceled, limit := ctx.Done(), f.startTimeout()
	check := time.NewTicker(helperPeriod)
	defer check.Stop()
	done, watchdogRuns := false, true
	var watchdog syscall.WaitStatus
	for events != nil || watchdogRuns {
		select {
		case e, ok := <-events:
			if !ok {
				events = nil
				// The supervisor may still run if its messages could not be received.
				_ = conn.CloseRead()
				_ = conn.CloseWrite()
				f.helpers.setKillDeadline(time.Now().Add(killTimeout)) // the watchdog needs little time
				f.checkHelpers()
				continue
			}
			done = done || e.Kind == eventDone
			switch e.Kind {
			case eventPipes:
				f.takePipes(e)
			case eventStarted:
				if err := f.startReading(e.Rank); err != nil {
					f.fail(err)
				}
			}
			f.handleEvent(e)
		case watchdog = <-f.ended:
			// Normally the watchdog exits last. If it was killed, the job must end: the
			// supervisor takes end of file for the death of the front end.
			watchdogRuns = false
			_ = conn.CloseWrite()
		case sig := <-f.cfg.Signals:
			f.forwardSignal(sig.(syscall.Signal))
		case <-limit:
			f.expire()
		case <-canceled:
			canceled = nil
			f.fail(context.Cause(ctx))
		case err := <-f.outErr:
			f.fail(err)
		case hang := <-f.diagnosis.done:
			f.diagnosed(hang)
		case <-f.diagnosis.limit:
			f.resumeEnd()
		case <-f.cfg.DiagnoseNow:
			f.diagnoseNow()
		case a := <-f.cfg.Aborts:
			f.abort(a)
		case <-check.C:
			f.checkHelpers()
		case <-f.causeSearch.limit:
			f.decideCause(true)
		}
	}
	for rank := range f.pipes { // the supervisor was killed before it reported that they run
		if err := f.startReading(rank); err != nil {
			f.addError(err)
		}
	}
	f.recordAbort()
	switch {
	case !done && f.helpers.killed:
		f.recordUnknownEnd()
	case !done || watchdog != 0 && !f.helpers.killed:
		f.addError(helperLost(watchdog))
	}
	f.cgroup.destroy() // kills processes that remain if watchdog and supervisor were killed
	f.report.wall = time.Since(f.report.began)
	if f.finishOutput() {
		f.recordFailureDetails(readCorePattern())
	}
	f.reportHelperOutput()
	f.recordLimitsReached()
	return f.report, f.failure
}

func (f *frontEnd) addError(err error) { f.failure = errors.Join(f.failure, err) }

// fail adds an error and stops the job.
func (f *frontEnd) fail(err error) {
	f.addError(err)
	f.end(order{Kind: orderStop})
}

// handleEvent enters an event of the supervisor into the report.
func (f *frontEnd) handleEvent(e event) {
	switch e.Kind {
	case eventStarted:
		f.report.Ranks[e.Rank].PID = e.PID
		if f.job.StopAtStart[e.Rank] && f.cfg.OnStopped != nil {
			f.cfg.OnStopped(e.Rank, e.PID)
		}
	case eventRefused:
		f.taskLimitHit = f.taskLimitHit || e.Errno == syscall.EAGAIN
		f.addError(fmt.Errorf("start rank %d of %d (%s): %s%w%s", e.Rank, len(f.report.Ranks), f.report.Ranks[e.Rank].Program, e.Problem, e.Errno, f.cfg.app(e.Rank).hint(e.Errno)))
	case eventStopping:
		if f.report.First < 0 || f.report.GoesOn { // otherwise that failure stops the job
			f.report.Signal, f.report.TimedOut = e.Signal, f.expired && e.Signal == 0
		}
	case eventEnded:
		r := &f.report.Ranks[e.Rank]
		r.Ended, r.Status, r.Stopped, r.usage = true, e.Status, e.Stopping, e.Usage
		if !e.Stopping && exitCode(e.Status) != 0 {
			f.recordFirstFailure(e.Rank)
			if f.report.GoesOn {
				f.cfg.OnDeath(e.Rank, f.report.describe(e.Rank))
			} else {
				f.searchCause(e.Rank)
			}
		}
		f.checkExit(e)
		f.decideCause(false)
	case eventDone:
		f.report.leftover, f.report.stuck = e.Leftover, e.Stuck
		if e.Problem != "" {
			f.addError(fmt.Errorf("find remaining processes of the job: %s: list them with ps and kill them", e.Problem))
		}
	}
}

// forwardSignal forwards a signal to the ranks.
func (f *frontEnd) forwardSignal(sig syscall.Signal) {
	if sig == syscall.SIGTSTP && !linux.HasShell() {
		return
	}
	if linux.IsTerminating(sig) {
		f.endBySignal(sig)
		return
	}
	f.order(order{Kind: orderSignal, Signal: sig})
	if sig == syscall.SIGTSTP {
		linux.Suspend() // SIGCONT, which resumes this process, is forwarded like any other signal
	}
}

// helperLost returns the error for a helper process that was killed. ws is the status of the
// watchdog, which exits with 128 + n if signal n killed the supervisor.
func helperLost(ws syscall.WaitStatus) error {
	name, how := watchdogName, describe(ws)
	if code := ws.ExitStatus(); code >= 0 {
		name = supervisorName
		if code > 128 {
			how = describe(syscall.WaitStatus(code - 128))
		}
	}
	return fmt.Errorf("supervise job: %w: %s %s, and the ranks were killed: start the job again", errSupervisorLost, name, how)
}

// outputTimeout limits how long the output may accept no data after a signal or the time limit
// has stopped the job. Then the rest is discarded.
const outputTimeout = 5 * time.Second

// inputTimeout limits how long the end of a job waits for the copier of the standard input. The copier
// blocks in a read if another process has taken the data that poll has announced.
const inputTimeout = 100 * time.Millisecond
