package endpoint

import (
	"context"
	"net/netip"
	"sync"

	"github.com/softnd/softnd/nd"
)

var (
	_ nd.NDKAdapter             = (*adapter)(nil)
	_ nd.SharedAddressConnector = (*connector)(nil)
	_ nd.RouteResolver          = (*Provider)(nil)
)

// QueryNDK returns the limits that only the kernel version of the model has.
func (a *adapter) QueryNDK() (nd.NDKInfo, error) {
	return nd.NDKInfo{FastRegisterPageCount: fastRegisterPages, Technology: nd.TechnologyUndefined}, nil
}

// ResolveRoute returns this member's address if remote is the address of a present member, which
// can be itself, or an address of another host, and there is a relay.
func (p *Provider) ResolveRoute(remote netip.Addr) (netip.Addr, error) {
	fail := func(s nd.Status, detail, next string) (netip.Addr, error) {
		return netip.Addr{}, &nd.OpError{Op: "resolve route", Object: remote.String(), Status: s, Detail: detail, Next: next}
	}
	_, isKnown, err := p.peerAt(remote.Unmap())
	if !isKnown {
		return fail(nd.InvalidAddress, "not an address of this job", "use an address that a peer got from QueryAddressList")
	}
	if p.waiters.IsClosed() {
		return fail(nd.InvalidHandle, "the provider is closed", "")
	}
	if err != nil {
		return fail(nd.NetworkUnreachable, err.Error(), "retry when the peer has started")
	}
	return p.address(), nil
}

// sharedAddress is a local address for many active connectors. Its port stays in use until the
// address and the last connector that uses it are closed.
type sharedAddress struct {
	adapter *adapter
	addr    netip.AddrPort

	mu      sync.Mutex
	remotes map[netip.AddrPort]struct{} // connected or being connected
	closed  bool
}

// CreateSharedAddress makes addr, or a free port of it, a local address for many connectors.
func (a *adapter) CreateSharedAddress(ctx context.Context, addr netip.AddrPort) (nd.SharedAddress, error) {
	const op = "create shared address"
	if err := a.checkUsable(ctx, op); err != nil {
		return nil, err
	}
	local, err := a.bindLocal(op, "adapter", addr)
	if err != nil {
		return nil, err
	}
	return &sharedAddress{adapter: a, addr: local, remotes: make(map[netip.AddrPort]struct{})}, nil
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
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		s.releaseIfUnused()
	}
	return nil
}

// ConnectFrom is Connect from a shared address.
func (c *connector) ConnectFrom(ctx context.Context, endpoint nd.Endpoint, from nd.SharedAddress, addr netip.AddrPort, params nd.ConnectParams) error {
	shared, ok := from.(*sharedAddress)
	if !ok || shared == nil || shared.adapter != c.adapter {
		return c.opError("connect", nd.InvalidAddress, "the shared address is not of this adapter", "create it with the connector's adapter")
	}
	return c.connect(ctx, endpoint, shared, addr, params)
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
		s.adapter.provider.ports.release(s.addr.Port())
	}
}

func (s *sharedAddress) closedError(op string) error {
	return s.opError(op, nd.InvalidHandle, "it is closed", "create another")
}

func (s *sharedAddress) opError(op string, status nd.Status, detail, next string) error {
	return &nd.OpError{Op: op, Object: "shared address", Status: status, Detail: detail, Next: next}
}
