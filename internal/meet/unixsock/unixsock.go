// Package unixsock implements the Unix sockets that softnd uses. Package net would link programs to
// the C library where cgo works, to resolve names. Such a program takes several times as long to
// start, and a job starts many.
//
// Names are abstract, written with a leading @: they exist in no file system. A call whose deadline
// passes fails with [os.ErrDeadlineExceeded], a call on a closed socket with [os.ErrClosed]. A read
// at the end, or of an empty record, returns [io.EOF].
package unixsock

// TWIN c/src/linux/unix_socket.c.

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/linux"
)

// Conn is one end of a connection. Reads, writes and deadlines are those of [os.File]. Safe for
// concurrent use.
type Conn struct{ *os.File }

// Pair returns two connected sockets of type SOCK_STREAM or SOCK_SEQPACKET. theirs, in blocking mode,
// is for a child process.
func Pair(kind int) (ours *Conn, theirs *os.File, err error) {
	var fds [2]int
	linux.ReserveStandard(func() { fds, err = unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0) })
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "socket")
	ours, err = Adopt(fds[0])
	if err != nil {
		theirs.Close()
	}
	return ours, theirs, err
}

// Adopt returns a connection that owns fd. If fd is not a socket, Adopt closes it and fails.
func Adopt(fd int) (*Conn, error) {
	_, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err == nil {
		err = unix.SetNonblock(fd, true) // before os.NewFile, which checks the mode
	}
	if err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("getsockopt", err)
	}
	return &Conn{os.NewFile(uintptr(fd), "socket")}, nil
}

// Dial connects to a socket of type SOCK_SEQPACKET. It does not block: if the listener's queue is
// full, it fails with EAGAIN.
func Dial(name string) (*Conn, error) {
	fd, err := newSocket()
	if err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: name}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("connect to %s: %w", name, err)
	}
	return Adopt(fd)
}

func newSocket() (int, error) {
	fd, err := linux.AboveStandard(unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0))
	return fd, os.NewSyscallError("socket", err)
}

// Receive reads bytes, or one record, into b, and the control messages with them into oob. flags are
// those of recvmsg.
func (c *Conn) Receive(b, oob []byte) (n, oobn, flags int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, 0, err
	}
	waitErr := raw.Read(func(fd uintptr) bool {
		n, oobn, flags, err = receive(int(fd), b, oob)
		return err != unix.EAGAIN
	})
	if waitErr != nil {
		return 0, 0, 0, waited(waitErr)
	}
	if err == nil && n == 0 && len(b) > 0 {
		return 0, oobn, flags, io.EOF
	}
	return n, oobn, flags, os.NewSyscallError("recvmsg", err)
}

// PassedFiles returns the files that came with a message, from the out-of-band bytes of [Conn.Receive]. The caller closes them.
func PassedFiles(oob []byte) (files []*os.File) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "passed"))
		}
	}
	return files
}

func receive(fd int, b, oob []byte) (n, oobn, flags int, err error) {
	for {
		linux.ReserveStandard(func() { n, oobn, flags, _, err = unix.Recvmsg(fd, b, oob, unix.MSG_CMSG_CLOEXEC) })
		if err != unix.EINTR {
			return max(n, 0), max(oobn, 0), flags, err
		}
	}
}

// Send writes bytes of b, perhaps not all of them, or one record, with the control message oob, which
// may be nil.
func (c *Conn) Send(b, oob []byte) (n int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	waitErr := raw.Write(func(fd uintptr) bool {
		for {
			n, err = unix.SendmsgN(int(fd), b, oob, nil, unix.MSG_NOSIGNAL)
			if err != unix.EINTR {
				return err != unix.EAGAIN
			}
		}
	})
	if waitErr != nil {
		return 0, waited(waitErr)
	}
	return max(n, 0), os.NewSyscallError("sendmsg", err)
}

// AtEnd reports whether the other side has closed the connection and everything that it sent has been
// read.
func (c *Conn) AtEnd() bool {
	err := control(c.File, func(fd int) error {
		n, _, err := unix.Recvfrom(fd, make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if err == nil && n == 0 {
			return io.EOF
		}
		return err
	})
	return err == io.EOF
}

// waited returns the documented error for one from SyscallConn, whose methods wrap poll errors
// differently from [os.File.Read].
func waited(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return os.ErrDeadlineExceeded
	}
	return os.ErrClosed
}

// CloseRead shuts down the reading side: reads return io.EOF, and the other side's writes fail.
func (c *Conn) CloseRead() error { return c.shutdown(unix.SHUT_RD) }

// CloseWrite shuts down the writing side: the other side's reads return io.EOF.
func (c *Conn) CloseWrite() error { return c.shutdown(unix.SHUT_WR) }

func (c *Conn) shutdown(how int) error {
	return control(c.File, func(fd int) error { return os.NewSyscallError("shutdown", unix.Shutdown(fd, how)) })
}

func control(c syscall.Conn, f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	ctlErr := raw.Control(func(fd uintptr) { err = f(int(fd)) })
	if ctlErr != nil {
		return ctlErr
	}
	return err
}
