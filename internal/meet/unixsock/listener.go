package unixsock

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/linux"
)

// Listener is a listening socket of type SOCK_SEQPACKET. Safe for concurrent use.
type Listener struct{ *os.File }

// Listen binds a socket to the name and listens.
func Listen(name string) (*Listener, error) {
	fd, err := newSocket()
	if err != nil {
		return nil, err
	}
	if err = unix.Bind(fd, &unix.SockaddrUnix{Name: name}); err == nil {
		err = unix.Listen(fd, unix.SOMAXCONN)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("listen as %s: %w", name, err)
	}
	return &Listener{os.NewFile(uintptr(fd), name)}, nil
}

// ListenerOf returns a listener with a copy of file. It fails if file is not a SOCK_SEQPACKET socket
// that listens under that name.
func ListenerOf(file *os.File, name string) (*Listener, error) {
	var fd int
	err := control(file, func(own int) error {
		listens, err := unix.GetsockoptInt(own, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
		if err != nil || listens == 0 {
			return errors.New("not a listening socket")
		}
		kind, err := unix.GetsockoptInt(own, unix.SOL_SOCKET, unix.SO_TYPE)
		if err != nil {
			return os.NewSyscallError("getsockopt", err)
		}
		at, err := unix.Getsockname(own)
		if err != nil {
			return os.NewSyscallError("getsockname", err)
		}
		if a, ok := at.(*unix.SockaddrUnix); !ok || kind != unix.SOCK_SEQPACKET {
			return errors.New("a listening socket of another type or address family")
		} else if a.Name != name {
			return fmt.Errorf("listens at %s, want %s", a.Name, name)
		}
		if err := unix.SetNonblock(own, true); err != nil {
			return os.NewSyscallError("fcntl", err)
		}
		fd, err = linux.DuplicateAboveStandard(own)
		return os.NewSyscallError("fcntl", err)
	})
	if err != nil {
		return nil, err
	}
	return &Listener{os.NewFile(uintptr(fd), name)}, nil
}

// Accept blocks until a process connects, and returns the connection. It fails with [os.ErrClosed]
// when the listener is closed.
func (l *Listener) Accept() (*Conn, error) {
	raw, err := l.SyscallConn()
	if err != nil {
		return nil, err
	}
	var fd int
	waitErr := raw.Read(func(own uintptr) bool {
		for {
			fd, err = accept(int(own))
			if err != unix.EINTR && err != unix.ECONNABORTED {
				return err != unix.EAGAIN
			}
		}
	})
	if waitErr != nil {
		return nil, waited(waitErr)
	}
	if err != nil {
		return nil, os.NewSyscallError("accept", err)
	}
	return Adopt(fd)
}

func accept(listener int) (int, error) {
	fd, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK) // then linux.AboveStandard
	return linux.AboveStandard(fd, err)
}
