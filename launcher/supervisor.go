package launcher

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/unixsock"
)

// phase of a job; a job only moves down this list.
type phase int

const (
	running  phase = iota // ranks are being started or run
	failing               // a rank has failed; the front says when the others are to end, or the deadline does
	stopping              // what is there has until the deadline to end
	killing               // what is there is being killed, until the deadline at the longest
)

// keeper is the state of the keeper process. One goroutine both reaps and signals,
// so the number of a rank that has been reaped is never signalled.
type keeper struct {
	job    job
	orders <-chan order
	told   sender         // what the front is to be told when there is nothing to do at once
	ended  chan os.Signal // a child has ended
	deaths *deaths
	cgroup group
	inside int // descriptor of cgroup's directory while ranks are started in it, or -1

	starters []chan<- func()
	started  int         // ranks 0 to started-1 have been started, or were to be
	rankOf   map[int]int // by process number: the ranks that have not been reaped
	since    []time.Time // by rank: when it was started
	phase    phase
	deadline time.Time // of all phases but running
	nextWalk time.Time // over the process table, while killing
	released bool      // the descriptors for the ranks are closed
	rankless bool      // there is no rank any more, and there will be none
	alone    bool      // there is no child, neither rank nor orphan
	byItself bool      // the ranks came to their end without being stopped
	asked    bool      // what had outlived them has been asked to end
	leftover []Process // what that was
}

// keep is the life of the keeper process.
func keep() error {
	far, err := farFD()
	if err != nil {
		return err
	}
	unix.Close(far)
	conn, err := unixsock.Adopt(socketFD)
	if err != nil {
		return fmt.Errorf("open the socket to the launcher: %w", err)
	}
	in, orders := receiver{conn: conn}, make(chan order)
	go receive(&in, orders)
	ready := make(chan error, 1)
	go func() {
		heedTerminal()
		ready <- dropInherited()
		withdraw()
	}()
	first, ok := <-orders
	if !ok {
		return nil // the front died before there was anything to keep
	}
	k := &keeper{
		job:    first.Job,
		orders: orders,
		told:   sender{conn: conn},
		ended:  make(chan os.Signal, 1),
		rankOf: make(map[int]int),
		cgroup: first.Job.Cgroup,
	}
	if err := k.job.unpack(&in); err != nil {
		return err
	}
	k.since = make([]time.Time, k.job.Ranks)
	k.cgroup.make()
	defer k.cgroup.remove() // as long as anybody is in it, that fails
	k.inside = k.cgroup.open()
	if k.deaths, err = newDeaths(k.job.Ranks); err != nil {
		return fmt.Errorf("watch the ranks: %w", err)
	}
	if err := <-ready; err != nil {
		return fmt.Errorf("close what is not for the job: %w", err)
	}
	if err := k.run(); err != nil {
		return err
	}
	if err := k.told.failed(); err != nil {
		return fmt.Errorf("talk to the launcher: %w", err)
	}
	return nil
}

// tell has something sent to the front, with the next flush. That the front has gone
// shows as the end of the orders.
func (k *keeper) tell(e event) { k.told.put(&e) }

func (k *keeper) flush() { closeFDs(k.told.flush()) }

// run starts the ranks and returns when nothing of the job is left, or nothing that
// goes when it is killed.
func (k *keeper) run() error {
	defer k.flush()
	for {
		if k.starting() {
			k.startSome()
		}
		if !k.starting() && !k.released {
			k.released = true
			k.release()
			// Only now: to be told takes turns of two threads, and so far it did not wait.
			signal.Notify(k.ended, syscall.SIGCHLD)
		}
		k.reap()
		if !k.rankless && !k.starting() && len(k.rankOf) == 0 {
			k.rankless, k.byItself = true, k.phase == running
			if k.phase == failing {
				k.stop(syscall.SIGTERM, k.job.Grace)
			}
			// What outlived the ranks has a moment to end by itself, such as a filter
			// that has yet to write what a rank told it last.
			k.limit(k.job.Grace)
		}
		if k.rankless && k.alone {
			k.tell(event{Kind: eventDone, Leftover: k.leftover})
			return nil
		}
		if k.phase != running && !time.Now().Before(k.deadline) {
			switch {
			case k.phase == killing:
				k.tell(k.stuck())
				return nil
			case k.phase == failing:
				k.stop(syscall.SIGTERM, k.job.Grace)
			case k.byItself && !k.asked:
				k.asked, k.leftover = true, k.askStrays()
				k.deadline = time.Now().Add(k.job.Grace)
			default:
				k.kill()
			}
		}
		k.wait()
	}
}

// always is a timer that has run out.
var always = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

// wait returns when there may be something to do, after obeying an order if there is one.
func (k *keeper) wait() {
	var timer <-chan time.Time
	if k.starting() {
		timer = always
	} else {
		k.flush()
	}
	if k.told.failed() != nil && k.phase != killing {
		k.kill() // nobody would ever hear how the job goes
	}
	switch {
	case k.phase == failing || k.phase == stopping:
		timer = time.After(time.Until(k.deadline))
	case k.phase == killing:
		timer = time.After(time.Until(k.nextWalk))
	}
	select {
	case o, ok := <-k.orders:
		// Whoever died before the order came did not die of it.
		k.reap()
		if ok {
			k.obey(o)
			return
		}
		k.orders = nil
		if k.phase != killing {
			k.kill()
		}
	case <-k.ended:
	case <-timer:
		if k.phase == killing {
			k.walk()
		}
	}
}

func (k *keeper) starting() bool { return k.phase == running && k.started < k.job.Ranks }

// refuse ends the job because a rank could not be started.
func (k *keeper) refuse(rank int, err error) {
	e := event{Kind: eventRefused, Rank: rank}
	errors.As(err, &e.Errno)
	if step, ok := err.(*stepError); ok {
		e.Problem = step.step + ": "
	}
	k.tell(e)
	k.kill()
}

// release closes what only the start of ranks needed.
func (k *keeper) release() {
	k.leaveCgroup()
	closeFDs(k.job.programs)
	closeFDs(k.job.files)
	closeFDs(k.job.inputs)
}

// leaveCgroup ends the use of the cgroup's directory. What was started in it stays there.
func (k *keeper) leaveCgroup() {
	if k.inside >= 0 {
		unix.Close(k.inside)
		k.inside = -1
	}
}

// reap takes note of the ranks that have ended and removes dead orphans.
func (k *keeper) reap() {
	for {
		var ws syscall.WaitStatus
		var ru syscall.Rusage
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, &ru)
		if err == syscall.EINTR {
			continue
		}
		k.alone = err == syscall.ECHILD
		if pid <= 0 {
			break
		}
		if rank, ok := k.rankOf[pid]; ok {
			delete(k.rankOf, pid)
			k.deaths.reaped(rank, ending{ws, usage(time.Since(k.since[rank]), &ru)})
		}
	}
	k.deaths.take(func(rank int, e ending) {
		k.tell(event{Kind: eventEnded, Rank: rank, Status: e.status, Usage: e.usage, Stopping: k.phase > failing})
		if exitCode(e.status) != 0 && k.phase == running {
			k.phase, k.deadline = failing, time.Now().Add(2*lastWords)
		}
	})
}

func (k *keeper) obey(o order) {
	switch {
	case o.Kind == orderSignal && !endsJob(o.Signal):
		k.signal(o.Signal)
	case k.phase <= failing:
		k.tell(event{Kind: eventStopping, Signal: o.Signal})
		if o.Kind == orderSignal {
			k.stop(o.Signal, k.job.SignalGrace)
		} else {
			k.stop(syscall.SIGTERM, k.job.Grace)
		}
	case k.phase == stopping && o.Kind == orderSignal:
		k.kill() // asked twice
	}
}

// stop asks the ranks and all that they have started to end, and wakes those that are
// suspended so that they can.
func (k *keeper) stop(sig syscall.Signal, grace time.Duration) {
	k.signal(sig)
	k.signal(syscall.SIGCONT)
	k.askStrays()
	k.limit(grace)
}

// askStrays asks the processes of the job that are in no rank's process group to end,
// and returns them.
func (k *keeper) askStrays() (strays []Process) {
	found, _ := descendants(os.Getpid())
	for _, p := range found {
		if _, grouped := k.rankOf[p.Group]; grouped || p.Dead() {
			continue
		}
		strays = append(strays, Process{p.PID, p.Name})
		_ = send(p, syscall.SIGTERM, syscall.SIGCONT) // who refuses will be killed
	}
	return strays
}

// limit sets the deadline of stopping, unless it is nearer already.
func (k *keeper) limit(grace time.Duration) {
	deadline := time.Now().Add(grace)
	if k.phase <= failing {
		k.phase, k.deadline = stopping, deadline
	}
	if k.phase == stopping && deadline.Before(k.deadline) {
		k.deadline = deadline
	}
}

// signal signals the process group of each rank that has not been reaped: until
// then the group's number belongs to the rank, even if it is dead.
func (k *keeper) signal(sig syscall.Signal) {
	for pid := range k.rankOf {
		_ = syscall.Kill(-pid, sig) // fails only if the rank has left its group
	}
}

// kill begins to kill everything; wait repeats it.
func (k *keeper) kill() {
	k.phase, k.deadline = killing, time.Now().Add(patience)
	k.signal(syscall.SIGKILL)
	found := k.walk()
	if k.byItself && !k.asked {
		k.leftover = found
	}
}

// walk kills what is there and returns what was alive. What fails is tried again by
// the next walk, and named by stuck if it fails to the end.
func (k *keeper) walk() []Process {
	found, _ := killDescendants(os.Getpid())
	k.cgroup.kill() // after it: the walk names what it finds alive
	k.nextWalk = time.Now().Add(killPeriod)
	return found
}

// stuck reports what would not go.
func (k *keeper) stuck() event {
	e := event{Kind: eventDone, Leftover: k.leftover}
	found, err := descendants(os.Getpid())
	for _, p := range found {
		e.Stuck = append(e.Stuck, Process{p.PID, p.Name})
	}
	if err != nil {
		e.Problem = err.Error()
	}
	return e
}
