package launcher

import (
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// phase of a job; a job only moves down this list.
type phase int

const (
	running  phase = iota // ranks are being started or run
	stopping              // what is there has until the deadline to end
	killing               // what is there is being killed, until the deadline at the longest
)

// keeper is the state of the keeper process. One goroutine both reaps and signals,
// so the number of a rank that has been reaped is never signalled.
type keeper struct {
	job    job
	orders <-chan order
	front  *gob.Encoder
	ended  chan os.Signal // a child has ended
	deaths *deaths
	null   *os.File // standard input of the ranks other than 0

	started  int         // ranks 0 to started-1 have been started
	rankOf   map[int]int // by process number: the ranks that have not been reaped
	phase    phase
	deadline time.Time // of stopping and of killing
	nextWalk time.Time // over the process table, while killing
	released bool      // the descriptors for the ranks are closed
	rankless bool      // there is no rank any more, and there will be none
	alone    bool      // there is no child, neither rank nor orphan
	byItself bool      // the ranks came to their end without being stopped
	leftover []Process // what had to be killed then
}

// keep is the life of the keeper process.
func keep() error {
	file := os.NewFile(socketFD, "launcher socket")
	conn, err := net.FileConn(file)
	if err != nil {
		return fmt.Errorf("open the socket to the launcher: %w", err)
	}
	file.Close()
	orders := make(chan order)
	go receive(conn, orders)
	first, ok := <-orders
	if !ok {
		return nil // the front died before there was anything to keep
	}
	k := &keeper{
		job:    first.Job,
		orders: orders,
		front:  gob.NewEncoder(conn),
		ended:  make(chan os.Signal, 1),
		rankOf: make(map[int]int),
	}
	signal.Notify(k.ended, syscall.SIGCHLD)
	if k.deaths, err = newDeaths(k.job.Ranks); err != nil {
		return fmt.Errorf("watch the ranks: %w", err)
	}
	if k.null, err = os.Open(os.DevNull); err != nil {
		return err
	}
	return k.run()
}

// receive passes on what comes from the stream until it ends.
func receive[T any](conn net.Conn, to chan<- T) {
	defer close(to)
	from := gob.NewDecoder(conn)
	for {
		var v T
		if from.Decode(&v) != nil {
			return
		}
		to <- v
	}
}

// tell sends to the front. That the front has gone shows as the end of the orders.
func (k *keeper) tell(e event) { _ = k.front.Encode(e) }

// run starts the ranks and returns when nothing of the job is left, or nothing that
// goes when it is killed.
func (k *keeper) run() error {
	for {
		if k.starting() {
			k.startNext()
		}
		if !k.starting() && !k.released {
			k.released = true
			k.null.Close()
			if err := letGo(socketFD+1, k.job.outputFD(k.job.Ranks)); err != nil {
				return err
			}
		}
		k.reap()
		if !k.rankless && !k.starting() && len(k.rankOf) == 0 {
			k.rankless, k.byItself = true, k.phase == running
			// What outlived the ranks has a moment to end by itself, such as a filter
			// that has yet to write what a rank told it last.
			k.limit(k.job.Grace)
		}
		if k.rankless && k.alone {
			k.tell(event{Kind: eventDone, Leftover: k.leftover})
			return nil
		}
		if k.phase != running && !time.Now().Before(k.deadline) {
			if k.phase == killing {
				k.tell(k.stuck())
				return nil
			}
			k.kill()
		}
		k.wait()
	}
}

// wait returns when there may be something to do, after obeying an order if there is one.
func (k *keeper) wait() {
	var timer <-chan time.Time
	switch {
	case k.starting():
		timer = time.After(0)
	case k.phase == stopping:
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

func (k *keeper) startNext() {
	rank := k.started
	pid, pidfd, err := k.job.start(rank, int(k.null.Fd()))
	if err != nil {
		e := event{Kind: eventRefused, Rank: rank}
		errors.As(err, &e.Errno)
		k.tell(e)
		k.kill()
		return
	}
	k.started++
	k.rankOf[pid] = rank
	k.deaths.watch(rank, pidfd)
	k.tell(event{Kind: eventStarted, Rank: rank, PID: pid})
}

// reap takes note of the ranks that have ended and removes dead orphans.
func (k *keeper) reap() {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		k.alone = err == syscall.ECHILD
		if pid <= 0 {
			break
		}
		if rank, ok := k.rankOf[pid]; ok {
			delete(k.rankOf, pid)
			k.deaths.reaped(rank, ws)
		}
	}
	k.deaths.take(func(rank int, ws syscall.WaitStatus) {
		k.tell(event{Kind: eventEnded, Rank: rank, Status: ws, Stopping: k.phase != running})
		if exitCode(ws) != 0 && k.phase == running {
			k.stop(syscall.SIGTERM, k.job.Grace)
		}
	})
}

func (k *keeper) obey(o order) {
	switch {
	case o.Kind == orderSignal && !endsJob(o.Signal):
		k.signal(o.Signal)
	case k.phase == running:
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

// stop asks the ranks to end, and wakes those that are suspended so that they can.
func (k *keeper) stop(sig syscall.Signal, grace time.Duration) {
	k.signal(sig)
	k.signal(syscall.SIGCONT)
	k.limit(grace)
}

// limit sets the deadline of stopping, unless it is nearer already.
func (k *keeper) limit(grace time.Duration) {
	deadline := time.Now().Add(grace)
	if k.phase == running {
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
	if k.byItself {
		k.leftover = found
	}
}

// walk kills what is there and returns what was alive. What fails is tried again by
// the next walk, and named by stuck if it fails to the end.
func (k *keeper) walk() []Process {
	found, _ := killDescendants()
	k.nextWalk = time.Now().Add(killPeriod)
	return found
}

// stuck reports what would not go.
func (k *keeper) stuck() event {
	e := event{Kind: eventDone, Leftover: k.leftover}
	found, err := descendants(os.Getpid())
	for _, p := range found {
		e.Stuck = append(e.Stuck, Process{p.pid, p.name})
	}
	if err != nil {
		e.Problem = err.Error()
	}
	return e
}
