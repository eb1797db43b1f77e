package launcher

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/linux"
)

// The output of the ranks, as the front end reads it.

// createOutputs creates the sinks and files for the ranks' output.
func (f *frontEnd) createOutputs() error {
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

// streamFailed stops the job because its output or input failed.
func (f *frontEnd) streamFailed(err error) {
	select {
	case f.outErr <- err:
	default: // an earlier error stops the job
	}
}

// takePipes receives the pipes of ranks that are about to start. If that fails, the job is
// stopped and the exits of those ranks are not evaluated.
func (f *frontEnd) takePipes(e event) {
	for rank := e.Rank; rank < e.Rank+e.Ranks && !f.pipesLost; rank++ {
		fds, err := f.from.take(f.job.pipesPerRank())
		if err != nil {
			f.pipesLost = true
			f.fail(fmt.Errorf("receive output pipes of rank %d of %d: %w%s", rank, f.ranks, err, hint(err)))
			return
		}
		f.pipes[rank] = fds
	}
}

// startReading reads the output of a rank from now on, and passes its socket to
// Config.RankSocket. It is called when the rank has been started: before that there is nothing to
// read, and waiting for data costs more than reading it.
func (f *frontEnd) startReading(rank int) error {
	fds, ok := f.pipes[rank]
	if !ok {
		return nil
	}
	delete(f.pipes, rank)
	silent := closedEmpty(fds[:len(f.sinks)])
	for which, to := range f.sinks {
		i := 2*rank + which
		if silent[which] {
			unix.Close(fds[which])
			continue
		}
		f.streams[i] = newStream(rank, which, os.NewFile(uintptr(fds[which]), "rank output"), f.files[i], to, f.streamFailed)
		f.files[i] = nil // the stream closes it
		f.copying.Go(f.streams[i].copy)
	}
	if !f.job.Socket {
		return nil
	}
	if err := f.cfg.RankSocket(rank, os.NewFile(uintptr(fds[2]), "rank socket")); err != nil {
		return fmt.Errorf("serve rank %d of %d: %w%s", rank, f.ranks, err, hint(err))
	}
	return nil
}

// closedEmpty reports which pipes are at end of file and empty. The ranks of a short job have
// often exited by now. Creating a stream costs more than this check.
func closedEmpty(pipes []int) [2]bool {
	var ask [2]unix.PollFd
	for i, fd := range pipes {
		ask[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	}
	var empty [2]bool
	if _, err := unix.Poll(ask[:], 0); err != nil {
		return empty
	}
	for i := range ask {
		empty[i] = ask[i].Revents&(unix.POLLHUP|unix.POLLIN) == unix.POLLHUP // no writer and no data
	}
	return empty
}

// growDescriptors enlarges the descriptor table by n, as far as the limit allows. The kernel also
// grows the table on demand, but then waits for all cores each time, often for more than 10 ms.
func growDescriptors(n int) {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || limit.Cur == 0 {
		return
	}
	if fd, err := unix.FcntlInt(2, unix.F_DUPFD_CLOEXEC, int(min(uint64(n)+64, limit.Cur-1))); err == nil {
		unix.Close(fd)
	}
}

// finishOutput waits until all output of the ranks is written and reports whether it is. A signal
// ends the wait, because a terminal can be stopped forever. So does an output that accepts no
// data for outputTimeout, if a signal or the time limit stopped the job. The copier of the input
// does not hold the job for longer than inputTimeout.
func (f *frontEnd) finishOutput() bool {
	for _, s := range f.streams {
		if s != nil {
			s.finish()
		}
	}
	if f.input != nil {
		f.stopInput.Close()
	}
	finished := make(chan struct{})
	go func() {
		f.copying.Wait()
		if f.input != nil {
			select {
			case <-f.inputEnded:
			case <-time.After(inputTimeout):
			}
		}
		close(finished)
	}()
	var idle <-chan time.Time
	if f.report.Signal != 0 || f.report.TimedOut {
		ticker := time.NewTicker(outputTimeout)
		defer ticker.Stop()
		idle = ticker.C
	}
	for written := f.written(); ; {
		select {
		case err := <-f.outErr:
			f.addError(err)
		case <-finished:
			select {
			case err := <-f.outErr:
				f.addError(err)
			default:
			}
			return true
		case <-idle:
			now := f.written()
			if now == written {
				f.addError(fmt.Errorf("write ranks' output: no process read it for %v after the job was stopped: the rest is lost", outputTimeout))
				return false
			}
			written = now
		case sig := <-f.cfg.Signals:
			if linux.IsTerminating(sig.(syscall.Signal)) {
				f.addError(fmt.Errorf("write ranks' output: stopped by signal %s: the rest is lost", signalName(sig.(syscall.Signal))))
				return false
			}
		}
	}
}

// written returns the number of completed writes to the output and to its files.
func (f *frontEnd) written() (n int64) {
	for _, s := range f.sinks {
		if s != nil {
			n += s.writes.Load()
		}
	}
	for _, s := range f.streams {
		if s != nil {
			n += s.stored.Load()
		}
	}
	return n
}
