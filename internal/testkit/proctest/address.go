package proctest

import (
	"net/netip"
	"testing"

	"github.com/softnd/softnd/internal/linux"
)

// FreeAddress returns an address of this host at which no process listens. Until the test ends, the kernel gives its port to no other
// socket, unless that names the port, as the server of the test does. The server has to set SO_REUSEADDR.
func FreeAddress(t testing.TB) netip.AddrPort {
	t.Helper()
	return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), FreePort(t))
}

// FreePort is FreeAddress for a server that listens at all addresses of this host.
func FreePort(t testing.TB) uint16 {
	t.Helper()
	reservation, free, err := linux.ReservePort(netip.IPv4Unspecified())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reservation.Close() })
	return free.Port()
}
