package rendezvous

// TWIN c/src/meet/tcp.c.

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/meet/unixsock"
)

// TCP without package net, which would link the C library: see package unixsock.

// defaultKeepalive is Config.Keepalive if that is 0.
const defaultKeepalive = 5 * time.Second

// minUserTimeout, in milliseconds, leaves time for a probe and for repeating a lost segment.
const minUserTimeout = 2000

// Limits of the kernel.
const (
	maxKeepIdle    = 32767         // seconds
	maxUserTimeout = math.MaxInt32 // milliseconds
)

type socketOption struct{ option, value int }

// keepaliveOptions returns the options with which the kernel ends a connection when the other host has been silent for a time.
// The kernel counts in seconds, and sends a probe before it ends a connection. So the time is at least two seconds.
func keepaliveOptions(silence time.Duration) []socketOption {
	if silence == 0 {
		silence = defaultKeepalive
	}
	seconds := func(d time.Duration) int { return int(min(max(d/time.Second, 1), maxKeepIdle)) }
	return []socketOption{
		{unix.TCP_KEEPIDLE, seconds(silence / 2)}, {unix.TCP_KEEPINTVL, seconds(silence / 8)},
		{unix.TCP_USER_TIMEOUT, int(min(max(silence/time.Millisecond, minUserTimeout), maxUserTimeout))}, // it ends the connection, whatever TCP_KEEPCNT is
	}
}

func newSocket(at netip.AddrPort) (fd int, sa unix.Sockaddr, err error) {
	family := unix.AF_INET
	if at.Addr().Is4() {
		sa = &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	} else {
		family, sa = unix.AF_INET6, &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
	}
	fd, err = linux.AboveStandard(unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0))
	return fd, sa, fileError(os.NewSyscallError("socket", err))
}

// listen listens at an address.
func listen(at netip.AddrPort) (*unixsock.Listener, error) {
	fd, sa, err := newSocket(at)
	if err != nil {
		return nil, err
	}
	// An earlier job may have used the port a moment ago.
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err == nil {
		err = unix.Bind(fd, sa)
	}
	if err == nil {
		err = unix.Listen(fd, unix.SOMAXCONN)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &unixsock.Listener{File: os.NewFile(uintptr(fd), at.String())}, nil
}

// hasDescriptors reports whether the process can have two more descriptors, for both ends of the connection of rank 0. The connection
// itself would wait: its end is made before the service accepts it.
func hasDescriptors(l *unixsock.Listener) (err error) {
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	var made []int
	controlErr := raw.Control(func(fd uintptr) {
		for range 2 {
			var n int
			if n, err = linux.DuplicateAboveStandard(int(fd)); err != nil {
				return
			}
			made = append(made, n)
		}
	})
	for _, n := range made {
		unix.Close(n)
	}
	return errors.Join(controlErr, fileError(err))
}

// isOutOfFiles reports whether an error says that there are no descriptors left.
func isOutOfFiles(err error) bool { return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) }

// fileError adds the remedy to the error of a call that opens a descriptor.
func fileError(err error) error {
	if isOutOfFiles(err) {
		return fmt.Errorf("%w: raise the limit of open files (ulimit -n)", err)
	}
	return err
}

// dial connects to an address, or fails when ctx ends. silence is Config.Keepalive.
func dial(ctx context.Context, to netip.AddrPort, silence time.Duration) (*unixsock.Conn, error) {
	fd, sa, err := newSocket(to)
	if err != nil {
		return nil, err
	}
	return connect(ctx, fd, sa, silence)
}

// errSelf is the error of a connection of a socket with itself. The kernel makes one if nothing listens at a port from which
// it takes the ports of sockets that connect, and has given the socket just that port.
var errSelf = errors.New("no process listens: the socket has connected to itself")

// connect connects a socket, which belongs to it.
func connect(ctx context.Context, fd int, sa unix.Sockaddr, silence time.Duration) (*unixsock.Conn, error) {
	connectErr := unix.Connect(fd, sa)
	conn, err := unixsock.Adopt(fd)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := conn.SyscallConn()
	if err == nil {
		err = raw.Write(func(fd uintptr) bool {
			if connectErr != unix.EINPROGRESS && connectErr != unix.EALREADY && connectErr != unix.EINTR {
				return true
			}
			connectErr = unix.Connect(int(fd), sa)
			return connectErr != unix.EALREADY && connectErr != unix.EINPROGRESS
		})
	}
	switch {
	case err == nil && (connectErr == nil || connectErr == unix.EISCONN):
		if err = tune(conn, silence); err == nil && ownAddress(conn) == peerAddress(conn) {
			// Reset it: otherwise rank 0 could not listen at the port for a minute.
			err = errors.Join(errSelf, control(conn, func(fd int) error {
				return unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
			}))
		}
		if err == nil {
			return conn, nil
		}
	case err == nil:
		err = connectErr
	case errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil:
		err = ctx.Err()
	}
	conn.Close()
	return nil, fmt.Errorf("connect: %w", err)
}

// tune lets the kernel notice that the other host has stopped.
func tune(conn *unixsock.Conn, silence time.Duration) error {
	return control(conn, func(fd int) error {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
		for _, o := range append(keepaliveOptions(silence), socketOption{unix.TCP_NODELAY, 1}) {
			if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, o.option, o.value); err != nil {
				return os.NewSyscallError("setsockopt", err)
			}
		}
		return nil
	})
}

func control(conn *unixsock.Conn, f func(fd int) error) error {
	raw, err := conn.SyscallConn()
	if err == nil {
		if closed := raw.Control(func(fd uintptr) { err = f(int(fd)) }); closed != nil {
			err = closed
		}
	}
	return err
}

// ownAddress returns the address of this end of a connection.
func ownAddress(conn *unixsock.Conn) (at netip.AddrPort) {
	_ = control(conn, func(fd int) error {
		sa, err := unix.Getsockname(fd)
		at = addressOf(sa)
		return err
	})
	return at
}

// peerAddress returns the address of the other end, for people.
func peerAddress(conn *unixsock.Conn) (at netip.AddrPort) {
	_ = control(conn, func(fd int) error {
		sa, err := unix.Getpeername(fd)
		at = addressOf(sa)
		return err
	})
	return at
}

func addressOf(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port))
	}
	return netip.AddrPort{}
}
