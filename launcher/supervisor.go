package launcher

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/meet/unixsock"
)

// phase is the phase of a job. It only increases.
type phase int

const (
	running  phase = iota // ranks are being started or are running
	failing               // a rank has failed; the others are stopped by an order or at the deadline
	stopping              // remaining processes have been asked to end, and are killed at the deadline
	killing               // remaining processes are being killed, until the deadline
)

// supervisor is the state of the supervisor process. One goroutine both reaps and signals, so it
// never signals the PID of a rank that has been reaped.
type supervisor struct {
	job        jobSpec
	orders     <-chan order
	toFrontEnd sender         // events, sent by flush
	ended      chan os.Signal // receives SIGCHLD
	exits      *exitOrder
	cgroup     cgroupDir
	cgroupFD   int // descriptor of cgroup while ranks are started in it, or -1

	starters       []chan<- func()
	started        int         // the start of ranks 0 to started-1 has been tried
	rankOf         map[int]int // by PID: ranks that have not been reaped
	since          []time.Time // start time of each rank
	phase          phase
	deadline       time.Time // of all phases but running
	nextWalk       time.Time // of killWalk, while killing
	watching       bool      // SIGCHLD is delivered to ended
	released       bool      // closeStartFiles has been called
	noRanks        bool      // all ranks have ended and none will be started
	noChildren     bool      // there is neither a rank nor an orphan
	endedUnstopped bool      // the ranks ended without being stopped
	straysAsked    bool      // processes that outlived the ranks have been asked to end
	leftover       []process // those processes
}

// runSupervisor is the main function of the supervisor.
func runSupervisor() error {
	far, err := reservedFD()
	if err != nil {
		return err
	}
	unix.Close(far)
	conn, err := unixsock.Adopt(socketFD)
	if err != nil {
		return fmt.Errorf("open socket to the front end: %w", err)
	}
	in, orders := receiver{conn: conn}, make(chan order)
	go receive(&in, orders)
	ready, caught := make(chan error, 1), make(chan struct{})
	go func() {
		resetTerminalSignals()
		dropSignals()
		close(caught)
		ready <- dropInherited()
	}()
	first, ok := <-orders
	if !ok {
		return nil // the front end died before it sent the job
	}
	reserved := make(chan struct{})
	go func() { // not before the front end has found that the limit allows the job
		<-caught // otherwise these are two of the threads that the Go runtime keeps for signals

		reserveThreads(supervisorThreads + min(starterThreads, first.Job.Ranks) - 1) // starters keep theirs
		close(reserved)
	}()
	k := &supervisor{
		job:        first.Job,
		orders:     orders,
		toFrontEnd: sender{conn: conn},
		ended:      make(chan os.Signal, 1),
		rankOf:     make(map[int]int),
		cgroup:     first.Job.Cgroup,
	}
	if err := k.job.unpack(&in); err != nil {
		return err
	}
	k.since = make([]time.Time, k.job.Ranks)
	k.cgroup.make()
	defer k.cgroup.remove() // fails while there are processes in it
	k.cgroupFD = k.cgroup.open()
	if k.exits, err = newExitOrder(k.job.Ranks); err != nil {
		return fmt.Errorf("watch ranks: %w", err)
	}
	if err := <-ready; err != nil {
		return fmt.Errorf("close inherited descriptors: %w", err)
	}
	<-reserved
	if err := k.run(); err != nil {
		return err
	}
	if err := k.toFrontEnd.failed(); err != nil {
		return fmt.Errorf("send events to the front end: %w", err)
	}
	return nil
}

// send queues an event for the next flush. The death of the front end shows as the end of its
// orders.
func (k *supervisor) send(e event) { k.toFrontEnd.put(&e) }

func (k *supervisor) flush() { closeFDs(k.toFrontEnd.flush()) }

// run starts the ranks and returns when no process of the job is left, or when the remaining ones
// cannot be killed.
func (k *supervisor) run() error {
	defer k.flush()
	for {
		pause := k.untilStart()
		if k.starting() && pause == 0 {
			k.startNextBatch()
		}
		if !k.watching && (!k.starting() || pause > 0) {
			k.watching = true
			// Not earlier: signal.Notify has to wait for another thread.
			signal.Notify(k.ended, syscall.SIGCHLD)
		}
		if !k.starting() && !k.released {
			k.released = true
			k.closeStartFiles()
		}
		k.reap()
		if !k.noRanks && !k.starting() && len(k.rankOf) == 0 {
			k.noRanks, k.endedUnstopped = true, k.phase == running
			if k.phase == failing {
				k.stop(syscall.SIGTERM, k.job.Grace)
			}
			// Processes that outlive the ranks get some time to end by themselves, such as a
			// filter that still has to write the last output of a rank.
			k.setDeadline(k.job.Grace)
		}
		if k.noRanks && k.noChildren {
			k.send(event{Kind: eventDone, Leftover: k.leftover})
			return nil
		}
		if k.phase != running && !time.Now().Before(k.deadline) {
			switch {
			case k.phase == killing:
				k.send(k.stuck())
				return nil
			case k.phase == failing:
				k.stop(syscall.SIGTERM, k.job.Grace)
			case k.endedUnstopped && !k.straysAsked:
				k.straysAsked, k.leftover = true, k.terminateStrays()
				k.deadline = time.Now().Add(k.job.Grace)
			default:
				k.kill()
			}
		}
		k.wait(pause)
	}
}

// expired is a timer that has expired.
var expired = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

// wait handles an order, if there is one, and returns when there may be something to do. While ranks
// are being started, it waits for pause at most.
func (k *supervisor) wait(pause time.Duration) {
	var timer <-chan time.Time
	if k.starting() && pause == 0 {
		timer = expired
	} else {
		k.flush()
	}
	if k.toFrontEnd.failed() != nil && k.phase != killing {
		k.kill() // no event reaches the front end now
	}
	switch {
	case k.starting() && pause > 0:
		timer = time.After(pause)
	case k.phase == failing || k.phase == stopping:
		timer = time.After(time.Until(k.deadline))
	case k.phase == killing:
		timer = time.After(time.Until(k.nextWalk))
	}
	select {
	case o, ok := <-k.orders:
		// Ranks that died before the order arrived did not die because of it.
		k.reap()
		if ok {
			k.handleOrder(o)
			return
		}
		k.orders = nil
		if k.phase != killing {
			k.kill()
		}
	case <-k.ended:
	case <-timer:
		if k.phase == killing {
			k.killWalk()
		}
	}
}

func (k *supervisor) starting() bool { return k.phase == running && k.started < k.job.Ranks }

// startFailed ends the job because a rank could not be started.
func (k *supervisor) startFailed(rank int, err error) {
	e := event{Kind: eventRefused, Rank: rank}
	errors.As(err, &e.Errno)
	if step, ok := err.(*stepError); ok {
		e.Problem = step.step + ": "
	}
	k.send(e)
	k.kill()
}

// closeStartFiles closes the files that only the start of ranks needed.
func (k *supervisor) closeStartFiles() {
	k.leaveCgroup()
	closeFDs(k.job.programs)
	closeFDs(k.job.files)
	closeFDs(k.job.inputs)
}

// leaveCgroup closes the cgroup directory. Processes that were started in it stay in it.
func (k *supervisor) leaveCgroup() {
	if k.cgroupFD >= 0 {
		unix.Close(k.cgroupFD)
		k.cgroupFD = -1
	}
}

// reap records the ranks that have ended and reaps orphans.
func (k *supervisor) reap() {
	for {
		var ws syscall.WaitStatus
		var ru syscall.Rusage
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, &ru)
		if err == syscall.EINTR {
			continue
		}
		k.noChildren = err == syscall.ECHILD
		if pid <= 0 {
			break
		}
		if rank, ok := k.rankOf[pid]; ok {
			delete(k.rankOf, pid)
			k.exits.reaped(rank, exitInfo{ws, usageOf(time.Since(k.since[rank]), &ru)})
		}
	}
	k.exits.deliver(func(rank int, e exitInfo) {
		k.send(event{Kind: eventEnded, Rank: rank, Status: e.status, Usage: e.usage, Stopping: k.phase > failing})
		if exitCode(e.status) != 0 && k.phase == running && !k.job.GoOn {
			k.phase, k.deadline = failing, time.Now().Add(2*causeTimeout)
		}
	})
}

func (k *supervisor) handleOrder(o order) {
	switch {
	case o.Kind == orderSignal && !linux.IsTerminating(o.Signal):
		k.signal(o.Signal)
	case k.phase <= failing:
		k.send(event{Kind: eventStopping, Signal: o.Signal})
		if o.Kind == orderSignal {
			k.stop(o.Signal, k.job.SignalGrace)
		} else {
			k.stop(syscall.SIGTERM, k.job.Grace)
		}
	case k.phase == stopping && o.Kind == orderSignal:
		k.kill() // asked twice
	}
}

// stop asks the ranks and all their descendants to end. It resumes those that are stopped so that
// they can.
func (k *supervisor) stop(sig syscall.Signal, grace time.Duration) {
	k.signal(sig)
	k.signal(syscall.SIGCONT)
	k.terminateStrays()
	k.setDeadline(grace)
}

// terminateStrays sends SIGTERM to the descendants that are in no rank's process group, and
// returns them.
func (k *supervisor) terminateStrays() (strays []process) {
	found, _ := descendants(os.Getpid())
	for _, p := range found {
		if _, grouped := k.rankOf[p.Group]; grouped || p.Dead() {
			continue
		}
		strays = append(strays, process{p.PID, p.Name})
		_ = send(p, syscall.SIGTERM, syscall.SIGCONT) // kill follows if they do not end
	}
	return strays
}

// setDeadline sets the deadline of phase stopping, unless an earlier one is set.
func (k *supervisor) setDeadline(grace time.Duration) {
	deadline := time.Now().Add(grace)
	if k.phase <= failing {
		k.phase, k.deadline = stopping, deadline
	}
	if k.phase == stopping && deadline.Before(k.deadline) {
		k.deadline = deadline
	}
}

// signal signals the process group of each rank that has not been reaped. Until then, the group's
// number cannot be reused, even if the rank is dead.
func (k *supervisor) signal(sig syscall.Signal) {
	for pid := range k.rankOf {
		_ = syscall.Kill(-pid, sig) // fails only if the rank has left its group
	}
}

// kill starts to kill all processes of the job; wait repeats it.
func (k *supervisor) kill() {
	k.phase, k.deadline = killing, time.Now().Add(killTimeout)
	k.signal(syscall.SIGKILL)
	found := k.killWalk()
	if k.endedUnstopped && !k.straysAsked {
		k.leftover = found
	}
}

// killWalk kills the descendants that it finds and returns those that were alive. The next walk
// repeats what failed; stuck reports what fails until the end.
func (k *supervisor) killWalk() []process {
	found, _ := killDescendants(os.Getpid())
	k.cgroup.kill() // after the walk, which returns what is alive
	k.nextWalk = time.Now().Add(killPeriod)
	return found
}

// stuck returns the event for processes that could not be killed.
func (k *supervisor) stuck() event {
	e := event{Kind: eventDone, Leftover: k.leftover}
	found, err := descendants(os.Getpid())
	for _, p := range found {
		e.Stuck = append(e.Stuck, process{p.PID, p.Name})
	}
	if err != nil {
		e.Problem = err.Error()
	}
	return e
}
