package launcher

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// inBackground reports whether f is the terminal of this process's session and its foreground
// process group is another one. A rank that read it would take input that the user types for the
// shell. The kernel stops such a reader, but not a rank, because it has a session of its own.
func inBackground(f *os.File) bool {
	foreground, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil && foreground != unix.Getpgrp()
}

// stdinCopier copies the standard input to several ranks. It reads on when every rank that still
// reads has received all earlier data. So the slowest rank sets the pace, and data that no rank
// can take stays in the input.
type stdinCopier struct {
	from   *os.File
	stop   *os.File    // readable when the job has ended
	to     []stdinPipe // one for each rank that still reads
	ended  bool        // from is at end of file
	broken bool        // from cannot be read
	onErr  func(error)
	buf    []byte
}

// stdinPipe is the pipe to one rank.
type stdinPipe struct {
	pipe int
	left []byte // data of the copier's buffer that is not written yet
}

// newStdinCopier creates a pipe for each of the ranks and returns their reading ends too.
//
// A read error is reported to onErr, once. The pipes then stay open until the job has ended:
// ranks would take end of file for the end of the input.
func newStdinCopier(from *os.File, ranks []int, onErr func(error)) (c *stdinCopier, readers []*os.File, err error) {
	c = &stdinCopier{from: from, onErr: onErr}
	for _, rank := range ranks {
		var fds [2]int
		err := unix.Pipe2(fds[:], unix.O_CLOEXEC)
		if err != nil {
			c.close()
			return nil, readers, fmt.Errorf("create standard input pipe of rank %d: %w%s", rank, err, hint(err))
		}
		readers = append(readers, os.NewFile(uintptr(fds[0]), "standard input"))
		c.to = append(c.to, stdinPipe{pipe: fds[1]})
		_ = unix.SetNonblock(fds[1], true) // of this end only: a rank expects blocking reads
	}
	return c, readers, nil
}

func (c *stdinCopier) close() {
	for _, l := range c.to {
		unix.Close(l.pipe)
	}
	c.to = nil
}

// copy copies until the input ends, no rank is left that reads, or stop is readable.
func (c *stdinCopier) copy() {
	defer c.close()
	defer c.stop.Close()
	c.buf = make([]byte, 64<<10)
	for len(c.to) > 0 {
		idle := !slices.ContainsFunc(c.to, func(l stdinPipe) bool { return len(l.left) > 0 })
		if idle && c.ended {
			return
		}
		fds := []unix.PollFd{{Fd: int32(c.stop.Fd()), Events: unix.POLLIN}, {Fd: -1, Events: unix.POLLIN}}
		if idle && !c.broken {
			fds[1].Fd = int32(c.from.Fd())
		}
		for _, l := range c.to {
			p := unix.PollFd{Fd: int32(l.pipe)} // without events: poll for POLLERR only
			if len(l.left) > 0 {
				p.Events = unix.POLLOUT
			}
			fds = append(fds, p)
		}
		if _, err := unix.Poll(fds, -1); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			return
		}
		if fds[0].Revents != 0 {
			return
		}
		if !c.writePending(fds[2:]) {
			continue // a rank has closed its pipe; perhaps no rank is left
		}
		if fds[1].Revents != 0 {
			c.read()
		}
	}
}

// writePending writes to the ranks whose pipes have room, and drops those that have closed their
// pipe. It reports whether no rank was dropped.
func (c *stdinCopier) writePending(polled []unix.PollFd) bool {
	kept := c.to[:0]
	for i, l := range c.to {
		err := error(nil)
		if polled[i].Revents&unix.POLLERR != 0 {
			err = unix.EPIPE
		} else if polled[i].Revents&unix.POLLOUT != 0 {
			var n int
			n, err = unix.Write(l.pipe, l.left)
			l.left = l.left[max(n, 0):]
		}
		if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			unix.Close(l.pipe)
			continue
		}
		kept = append(kept, l)
	}
	dropped := len(kept) < len(c.to)
	c.to = kept
	return !dropped
}

// read reads the available input for all ranks.
func (c *stdinCopier) read() {
	n, err := unix.Read(int(c.from.Fd()), c.buf)
	switch {
	case errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN):
		return
	case errors.Is(err, unix.EIO) && inBackground(c.from):
		// The job was suspended and then continued in the background. There is no event for its
		// return to the foreground.
		time.Sleep(100 * time.Millisecond)
		return
	case err != nil:
		c.broken = true
		c.onErr(fmt.Errorf("read standard input: %w: the job was stopped", err))
		return
	case n == 0:
		c.ended = true
		return
	}
	for i := range c.to {
		c.to[i].left = c.buf[:n]
	}
}
