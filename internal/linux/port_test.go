package linux

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// Only a server that names a reserved port, and sets SO_REUSEADDR, gets it.
func TestReservePort(t *testing.T) {
	for _, at := range []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv4Unspecified(), netip.IPv6Loopback()} {
		reservation, free, err := ReservePort(at)
		if errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAFNOSUPPORT) {
			t.Logf("%v: this machine has no such address", at)
			continue
		}
		if err != nil {
			t.Fatalf("%v: %v", at, err)
		}
		defer reservation.Close()
		if err := bindWithout(free); !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("another socket gets %v: %v", free, err)
		}
		if c, err := net.Dial("tcp", free.String()); !errors.Is(err, unix.ECONNREFUSED) {
			t.Fatalf("a connection to %v: %v, %v", free, c, err)
		}
		l, err := net.Listen("tcp", free.String())
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c, err := net.Dial("tcp", free.String())
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
}

// bindWithout binds a socket without SO_REUSEADDR, and closes it.
func bindWithout(at netip.AddrPort) error {
	family, sa := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()})
	if at.Addr().Is4() {
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Bind(fd, sa)
}
