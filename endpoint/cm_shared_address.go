package endpoint

import (
	"net/netip"
	"sync"

	"github.com/softnd/softnd/nd"
)

// sharedAddress is a local address for many active connectors. Its port stays in use until the
// address and the last connector that uses it are closed.
type sharedAddress struct {
	adapter *adapter
	addr    netip.AddrPort

	mu      sync.Mutex
	remotes map[netip.AddrPort]struct{} // connected or being connected
	closed  bool
}

// LocalAddress returns the address with its port.
func (s *sharedAddress) LocalAddress() (netip.AddrPort, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return netip.AddrPort{}, s.closedError("get local address")
	}
	return s.addr, nil
}

// Close gives up the address. Its connections stay connected.
func (s *sharedAddress) Close() error {
	s.adapter.disown(kindSharedAddress, s)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		s.releaseIfUnused()
	}
	return nil
}

// addRemote notes a connection to remote.
func (s *sharedAddress) addRemote(remote netip.AddrPort) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.closedError("connect")
	}
	if _, ok := s.remotes[remote]; ok {
		return s.opError("connect", nd.AddressAlreadyExists, s.addr.String()+" and "+remote.String()+" are connected, or being connected",
			"close that connector first, or connect from another address")
	}
	s.remotes[remote] = struct{}{}
	return nil
}

// removeRemote is called when the connector to remote is closed or has failed.
func (s *sharedAddress) removeRemote(remote netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.remotes, remote)
	s.releaseIfUnused()
}

// releaseIfUnused frees the port if the address is closed and no connector uses it. The caller
// holds s.mu.
func (s *sharedAddress) releaseIfUnused() {
	if s.closed && len(s.remotes) == 0 {
		s.adapter.provider.ports.Release(s.addr.Port())
	}
}

func (s *sharedAddress) closedError(op string) error {
	return s.opError(op, nd.InvalidHandle, "it is closed", "create another")
}

func (s *sharedAddress) opError(op string, status nd.Status, detail, next string) error {
	return &nd.OpError{Op: op, Object: "shared address", Status: status, Detail: detail, Next: next}
}
