package launcher

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// inBackground tells whether f is the terminal of this process's session, and another
// process group has it: what a rank read there would be what somebody types for the
// shell. The kernel's way is to stop such a reader; a rank has a session of its own
// and is not stopped.
func inBackground(f *os.File) bool {
	foreground, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil && foreground != unix.Getpgrp()
}

// copier copies the standard input to several ranks. It reads on when every rank that
// still listens has been given what was read before, so that the slowest of them sets
// the pace, and what nobody can take stays where it is.
type copier struct {
	from   *os.File
	stop   *os.File   // readable when the job is over
	to     []listener // one for each rank that still listens
	ended  bool       // from has nothing more
	broken bool       // from cannot be read
	onErr  func(error)
	buf    []byte
}

// listener is the pipe to one rank.
type listener struct {
	pipe int
	left []byte // what of the copier's buffer it has not been given
}

// newCopier makes a pipe for each of the ranks and returns their reading ends too.
//
// An error of reading is told to onErr, once. The ranks then see no end of the input until
// the job is over, because they would take it for the true one.
func newCopier(from *os.File, ranks []int, onErr func(error)) (c *copier, readers []*os.File, err error) {
	c = &copier{from: from, onErr: onErr}
	for _, rank := range ranks {
		var fds [2]int
		err := unix.Pipe2(fds[:], unix.O_CLOEXEC)
		if err != nil {
			c.close()
			return nil, readers, fmt.Errorf("make the pipe for the standard input of rank %d: %w%s", rank, err, remedy(err))
		}
		readers = append(readers, os.NewFile(uintptr(fds[0]), "standard input"))
		c.to = append(c.to, listener{pipe: fds[1]})
		_ = unix.SetNonblock(fds[1], true) // of this end only: a rank expects reads that block
	}
	return c, readers, nil
}

func (c *copier) close() {
	for _, l := range c.to {
		unix.Close(l.pipe)
	}
	c.to = nil
}

// copy copies until the input ends, no rank listens any more, or stop can be read.
func (c *copier) copy() {
	defer c.close()
	defer c.stop.Close()
	c.buf = make([]byte, 64<<10)
	for len(c.to) > 0 {
		idle := !slices.ContainsFunc(c.to, func(l listener) bool { return len(l.left) > 0 })
		if idle && c.ended {
			return
		}
		fds := []unix.PollFd{{Fd: int32(c.stop.Fd()), Events: unix.POLLIN}, {Fd: -1, Events: unix.POLLIN}}
		if idle && !c.broken {
			fds[1].Fd = int32(c.from.Fd())
		}
		for _, l := range c.to {
			p := unix.PollFd{Fd: int32(l.pipe)} // without events: only whether it is still read
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
		if !c.give(fds[2:]) {
			continue // somebody has gone; perhaps nobody wants the input now
		}
		if fds[1].Revents != 0 {
			c.read()
		}
	}
}

// give writes to the ranks that can take something, and leaves those out that listen
// no more. It tells whether none was left out.
func (c *copier) give(polled []unix.PollFd) bool {
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
	all := len(kept) == len(c.to)
	c.to = kept
	return all
}

// read takes what there is of the input, for everybody.
func (c *copier) read() {
	n, err := unix.Read(int(c.from.Fd()), c.buf)
	switch {
	case errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN):
		return
	case errors.Is(err, unix.EIO) && inBackground(c.from):
		// Suspended and gone on in the background. It is nobody's event when the job
		// comes to the foreground again.
		time.Sleep(100 * time.Millisecond)
		return
	case err != nil:
		c.broken = true
		c.onErr(fmt.Errorf("read the standard input: %w; the job was stopped", err))
		return
	case n == 0:
		c.ended = true
		return
	}
	for i := range c.to {
		c.to[i].left = c.buf[:n]
	}
}
