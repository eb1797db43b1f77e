package linux

import (
	"errors"
	"io"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// ReservePort reserves a free TCP port at an address of this host, and returns both. Until the reservation is closed, the kernel
// gives the port to no socket that may have any. A connection to it is refused. A server that sets SO_REUSEADDR, as most do, can
// listen there, also when the reservation has been closed since.
func ReservePort(at netip.Addr) (reservation io.Closer, free netip.AddrPort, err error) {
	family, sa := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Addr: at.As16()})
	if at.Is4() {
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Addr: at.As4()}
	}
	fd, err := AboveStandard(unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))
	if err != nil {
		return nil, free, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), "reserved port")
	if err := errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.Bind(fd, sa)); err != nil {
		f.Close()
		return nil, free, os.NewSyscallError("bind", err)
	}
	port := 0
	switch sa, err := unix.Getsockname(fd); sa := sa.(type) {
	case *unix.SockaddrInet4:
		port = sa.Port
	case *unix.SockaddrInet6:
		port = sa.Port
	default:
		f.Close()
		return nil, free, os.NewSyscallError("getsockname", err)
	}
	return f, netip.AddrPortFrom(at, uint16(port)), nil
}
