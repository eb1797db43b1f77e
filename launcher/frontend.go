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
)

// front is a running job as seen by the process that called Run.
type front struct {
	*Prepared
	cfg     Config
	job     *job
	orders  sender
	from    receiver      // of the keeper
	ports   map[int][]int // by rank, until attend
	files   []*os.File    // for the output: two by rank, nil where there is none
	sinks   [2]*sink
	streams []*stream  // as files; nil until the rank has been started, and where it had nothing to say
	readers []int      // the ranks that get the standard input
	inputs  []*os.File // what they read
	input   *copier    // to several of them; else nil
	stop    *os.File   // closed to end the copying of the input
	copying sync.WaitGroup
	outErr  chan error // errors of a sink or the input
	report  *Report
	aborts  []Abort // in the order in which they came
	failure error   // of the launcher, not of a rank
	noTasks bool    // a rank could not be started for want of a process or thread
	deaf    bool    // the ports of some ranks could not be taken over
	ending  bool    // an order to end the job has been sent
	expired bool    // its reason was that the job's time is over
	asked   bool    // SIGQUIT has come

	signal syscall.Signal // the first that is to end the job; 0 if another reason came first

	explanation explanation
	helpers     helpers
	inquiry     inquiry
}

// begin makes everything that the job needs before it is started.
func begin(p *Prepared, cfg Config) (_ *front, err error) {
	f := &front{
		Prepared: p,
		cfg:      cfg,
		orders:   sender{conn: p.conn},
		from:     receiver{conn: p.conn},
		ports:    make(map[int][]int),
		outErr:   make(chan error, 1),
		report:   &Report{Ranks: make([]Result, cfg.ranks()), First: -1, Began: time.Now()},
	}
	for rank, name := range cfg.names() {
		f.report.Ranks[rank].Program = name
	}
	defer func() {
		if err != nil {
			f.abandon()
		}
	}()
	if err := f.outputs(); err != nil {
		return nil, err
	}
	if err := f.standardInput(); err != nil {
		return nil, err
	}
	if err := f.roomForPorts(); err != nil {
		return nil, err
	}
	<-f.grouped
	if err := f.limits.roomForTasks(&cfg); err != nil {
		return nil, err
	}
	f.job = f.send()
	return f, nil
}

// roomForPorts returns an error if this process may not hold the ports of all ranks. It
// would find that out when some of them run.
func (f *front) roomForPorts() error {
	const plenty = 1024
	const passing = 8 // of those that are open now may be closed soon, this look's own among them
	var limit unix.Rlimit
	need := uint64((&job{Socket: f.cfg.Socket != nil}).ports() * f.ranks)
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || need+plenty <= limit.Cur {
		return nil
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil || uint64(len(open))+need <= limit.Cur+passing {
		return nil
	}
	return fmt.Errorf("make the output pipes of %d ranks: %w%s", f.ranks, unix.EMFILE, remedy(unix.EMFILE))
}

// outputs makes what the ranks' output goes to.
func (f *front) outputs() error {
	f.sinks = newSinks(&f.cfg, f.streamFailed)
	f.files = make([]*os.File, 2*f.cfg.ranks())
	f.streams = make([]*stream, len(f.files))
	err := f.cfg.Output.makeDir()
	if err != nil {
		return err
	}
	for i := range f.files {
		if f.files[i], err = f.cfg.Output.create(i/2, i%2); err != nil {
			return err
		}
	}
	return nil
}

// streamFailed has the job stopped.
func (f *front) streamFailed(err error) {
	select {
	case f.outErr <- err:
	default: // one is enough
	}
}

// connect takes over the ports of some ranks that are about to start. Without them the job
// is stopped, and how those ranks end means nothing.
func (f *front) connect(e event) {
	for rank := e.Rank; rank < e.Rank+e.Ranks && !f.deaf; rank++ {
		fds, err := f.from.take(f.job.ports())
		if err != nil {
			f.deaf = true
			f.stopFor(fmt.Errorf("take over the output pipes of rank %d of %d: %w%s", rank, f.ranks, err, remedy(err)))
			return
		}
		f.ports[rank] = fds
	}
}

// attend begins to read what a rank writes, and hands its socket over, once it has been
// started: before, there would be nothing, and to wait for that costs more than to read.
func (f *front) attend(rank int) error {
	fds, ok := f.ports[rank]
	if !ok {
		return nil
	}
	delete(f.ports, rank)
	silent := overInSilence(fds[:len(f.sinks)])
	for which, to := range f.sinks {
		i := 2*rank + which
		if silent[which] {
			unix.Close(fds[which])
			continue
		}
		f.streams[i] = newStream(rank, which, os.NewFile(uintptr(fds[which]), "output of a rank"), f.files[i], to, f.streamFailed)
		f.files[i] = nil // it closes with the stream
		f.copying.Go(f.streams[i].copy)
	}
	if !f.job.Socket {
		return nil
	}
	if err := f.cfg.Socket(rank, os.NewFile(uintptr(fds[2]), "socket of a rank")); err != nil {
		return fmt.Errorf("serve rank %d of %d: %w%s", rank, f.ranks, err, remedy(err))
	}
	return nil
}

// overInSilence tells of which pipes nothing will ever be read: the ranks of a short job
// may have ended by the time they are attended, and to set a stream up costs more than to
// ask for all of its rank.
func overInSilence(pipes []int) [2]bool {
	var ask [2]unix.PollFd
	for i, fd := range pipes {
		ask[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	}
	var over [2]bool
	if _, err := unix.Poll(ask[:], 0); err != nil {
		return over
	}
	for i := range ask {
		over[i] = ask[i].Revents&(unix.POLLHUP|unix.POLLIN) == unix.POLLHUP // no writer, and nothing written
	}
	return over
}

// growDescriptors makes room for n more descriptors, where there is a limit below that
// as far as it goes. The kernel grows the table by itself, but each time it waits for all
// cores, often for more than 10 ms.
func growDescriptors(n int) {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || limit.Cur == 0 {
		return
	}
	if fd, err := unix.FcntlInt(2, unix.F_DUPFD_CLOEXEC, int(min(uint64(n)+64, limit.Cur-1))); err == nil {
		unix.Close(fd)
	}
}

// standardInput makes what the ranks read: the standard input itself, or the reading ends
// of pipes for several ranks.
func (f *front) standardInput() (err error) {
	f.readers = f.cfg.readers()
	switch len(f.readers) {
	case 0:
		return nil
	case 1:
		f.inputs = []*os.File{f.cfg.Stdin}
		return nil
	}
	if f.input, f.inputs, err = newCopier(f.cfg.Stdin, f.readers, f.streamFailed); err == nil {
		f.input.stop, f.stop, err = os.Pipe()
	}
	return err
}

// send sends the order to start the job.
func (f *front) send() *job {
	programs := f.cfg.programs()
	j := f.cfg.job(programs)
	j.Readers, j.Cgroup = f.readers, f.cgroup
	for _, file := range slices.Concat(programs, f.cfg.Files, f.inputs) {
		f.orders.enclose([]int{int(file.Fd())})
	}
	f.order(order{Kind: orderStart, Job: j})
	f.closeInputs()
	return &j
}

// closeInputs lets go of the ranks' ends of the pipes for standard input.
func (f *front) closeInputs() {
	if len(f.readers) > 1 { // else it is the standard input itself
		closeAll(f.inputs)
	}
	f.inputs = nil
}

// abandon takes back what begin has made.
func (f *front) abandon() {
	closeAll(f.files)
	f.closeInputs()
	if f.input != nil {
		f.input.close()
		f.input.stop.Close() // nil refuses
		f.stop.Close()
	}
}

func closeAll(files []*os.File) {
	for _, file := range files {
		file.Close() // nil refuses
	}
}

// order tells the keeper. That the keeper has gone shows as the end of its events. A keeper
// that cannot be told kills the job: it takes the end of the stream for this process's death.
func (f *front) order(o order) {
	deaf := f.orders.failed() != nil
	f.orders.put(&o)
	f.orders.flush()
	if err := f.orders.failed(); err != nil && !deaf {
		f.failed(fmt.Errorf("send the job to its keeper: %w; allow the system call sendmsg (seccomp profile?)", err))
		_ = f.from.conn.CloseWrite()
	}
}

// end is order for an order that ends the job. A signal after another such order kills
// at once.
func (f *front) end(o order) {
	f.order(o)
	now := time.Now()
	switch {
	case !f.ending:
		f.ending, f.signal = true, o.Signal
		f.helpers.bound(now.Add(f.job.SignalGrace + patience))
	case o.Kind == orderSignal:
		f.helpers.bound(now)
	}
	f.checkHelpers()
}

// run follows the job to its end.
func (f *front) run(ctx context.Context) (*Report, error) {
	conn := f.from.conn
	defer conn.Close()
	defer f.from.close()
	if f.input != nil {
		f.copying.Go(f.input.copy)
	}
	defer closeAll(f.files) // those without a stream
	events := make(chan event)
	go receive(&f.from, events)
	canceled, limit := ctx.Done(), f.limit()
	check := time.NewTicker(helperPeriod)
	defer check.Stop()
	done, guarded := false, true
	var guard syscall.WaitStatus
	for events != nil || guarded {
		select {
		case e, ok := <-events:
			if !ok {
				events = nil
				// Or the keeper lives on, if its words could not be taken in.
				_ = conn.CloseRead()
				_ = conn.CloseWrite()
				f.helpers.bound(time.Now().Add(patience)) // the guard has little to do, or nothing
				f.checkHelpers()
				continue
			}
			done = done || e.Kind == eventDone
			switch e.Kind {
			case eventPorts:
				f.connect(e)
			case eventStarted:
				if err := f.attend(e.Rank); err != nil {
					f.stopFor(err)
				}
			}
			f.note(e)
		case guard = <-f.ended:
			// Normally the last to go. If it was killed, so is the job: the keeper takes
			// the end of the stream for our death.
			guarded = false
			_ = conn.CloseWrite()
		case sig := <-f.cfg.Signals:
			f.passOn(sig.(syscall.Signal))
		case <-limit:
			f.expire()
		case <-canceled:
			canceled = nil
			f.stopFor(context.Cause(ctx))
		case err := <-f.outErr:
			f.stopFor(err)
		case hang := <-f.explanation.done:
			f.explained(hang)
		case <-f.explanation.limit:
			f.goOn()
		case <-f.cfg.Ask:
			f.answer()
		case a := <-f.cfg.Aborts:
			f.abort(a)
		case <-check.C:
			f.checkHelpers()
		case <-f.inquiry.limit:
			f.decide(true)
		}
	}
	for rank := range f.ports { // the keeper was killed before it could say that they run
		if err := f.attend(rank); err != nil {
			f.failed(err)
		}
	}
	f.settle()
	switch {
	case !done && f.helpers.killed:
		f.conclude()
	case !done || guard != 0 && !f.helpers.killed:
		f.failed(lost(guard))
	}
	f.cgroup.end() // what is in there still, because guard and keeper were killed, is killed
	f.report.Wall = time.Since(f.report.Began)
	if f.flush() {
		f.sumUp(readCorePattern())
	}
	f.tellTrouble()
	f.enterShortages()
	return f.report, f.failure
}

func (f *front) failed(err error) { f.failure = errors.Join(f.failure, err) }

// stopFor is failed where the job cannot go on.
func (f *front) stopFor(err error) {
	f.failed(err)
	f.end(order{Kind: orderStop})
}

// note enters what the keeper saw into the report.
func (f *front) note(e event) {
	switch e.Kind {
	case eventStarted:
		f.report.Ranks[e.Rank].PID = e.PID
		if f.job.Held[e.Rank] && f.cfg.Stopped != nil {
			f.cfg.Stopped(e.Rank, e.PID)
		}
	case eventRefused:
		f.noTasks = f.noTasks || e.Errno == syscall.EAGAIN
		f.failed(fmt.Errorf("start rank %d of %d (%s): %s%w%s", e.Rank, len(f.report.Ranks), f.report.Ranks[e.Rank].Program, e.Problem, e.Errno, f.cfg.part(e.Rank).remedy(e.Errno)))
	case eventStopping:
		if f.report.First < 0 { // else the job comes down for that
			f.report.Signal, f.report.TimedOut = e.Signal, f.expired && e.Signal == 0
		}
	case eventEnded:
		r := &f.report.Ranks[e.Rank]
		r.Ended, r.Status, r.Stopped, r.Usage = true, e.Status, e.Stopping, e.Usage
		if !e.Stopping && exitCode(e.Status) != 0 {
			f.failedFirst(e.Rank)
			f.inquire(e.Rank)
		}
		f.judge(e)
		f.decide(false)
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
	if endsJob(sig) {
		f.endBy(sig)
		return
	}
	f.order(order{Kind: orderSignal, Signal: sig})
	if sig == syscall.SIGTSTP {
		suspend() // the SIGCONT that ends it is passed on like any other
	}
}

// lost says what happened to the guard or, as the guard tells, to the keeper.
func lost(ws syscall.WaitStatus) error {
	who, how := guardName, describe(ws)
	if code := ws.ExitStatus(); code >= 0 {
		who = keeperName
		if code > 128 {
			how = describe(syscall.WaitStatus(code - 128))
		}
	}
	return fmt.Errorf("keep the job together: %w: %s %s; the ranks were killed; start the job again", ErrKeeperLost, who, how)
}

// outputPatience is how long the output may accept no data before the rest is discarded. It
// applies after a job that a signal or its time limit has stopped.
const outputPatience = 5 * time.Second

// flush waits until all that the ranks wrote has been passed on, and tells whether it
// has. A signal ends the wait, since a terminal can be stopped for ever; so does an
// output that accepts no data, if the user wanted the job to end.
func (f *front) flush() bool {
	for _, s := range f.streams {
		if s != nil {
			s.finish()
		}
	}
	if f.input != nil {
		f.stop.Close()
	}
	go func() {
		f.copying.Wait()
		close(f.outErr)
	}()
	var idle <-chan time.Time
	if f.report.Signal != 0 || f.report.TimedOut {
		ticker := time.NewTicker(outputPatience)
		defer ticker.Stop()
		idle = ticker.C
	}
	for written := f.written(); ; {
		select {
		case err, ok := <-f.outErr:
			if !ok {
				return true
			}
			f.failed(err)
		case <-idle:
			now := f.written()
			if now == written {
				f.failed(fmt.Errorf("pass on the ranks' last words: no process read the output for %v after the job was stopped; the rest is lost", outputPatience))
				return false
			}
			written = now
		case sig := <-f.cfg.Signals:
			if endsJob(sig.(syscall.Signal)) {
				f.failed(fmt.Errorf("pass on the ranks' last words: stopped by signal %s before the output took them", signalName(sig.(syscall.Signal))))
				return false
			}
		}
	}
}

// written counts the writes to the output that have returned.
func (f *front) written() (n int64) {
	for _, s := range f.sinks {
		if s != nil {
			n += s.writes.Load()
		}
	}
	return n
}
