package endpoint

import (
	"context"
	"net/netip"
	"sync"

	"github.com/softnd/softnd/nd"
)

var (
	_ nd.NDKAdapter             = (*Adapter)(nil)
	_ nd.SharedAddressConnector = (*Connector)(nil)
	_ nd.RouteResolver          = (*Provider)(nil)
)

// QueryNDK returns the limits that only the kernel flavour of the model names.
func (a *Adapter) QueryNDK() (nd.NDKInfo, error) {
	return nd.NDKInfo{FastRegisterPageCount: fastRegisterPages, Technology: nd.TechnologyUndefined}, nil
}

// ResolveRoute returns this member's address for each member that is there,
// itself included.
func (p *Provider) ResolveRoute(remote netip.Addr) (netip.Addr, error) {
	fail := func(s nd.Status, detail, next string) (netip.Addr, error) {
		return netip.Addr{}, &nd.OpError{Op: "resolve route", Object: remote.String(), Status: s, Detail: detail, Next: next}
	}
	slot, ok := slotOf(remote.Unmap())
	if !ok {
		return fail(nd.InvalidAddress, "no address of this arena", "ask for an address that a peer got from QueryAddressList")
	}
	if p.sleep.shut.Load() {
		return fail(nd.InvalidHandle, "the provider is closed", "")
	}
	if _, err := p.arena.PeerInSlot(slot); err != nil {
		return fail(nd.NetworkUnreachable, "no process has this address", "retry when the peer has started")
	}
	return Address(p.member.ID()), nil
}

// SharedAddress is a local address for many active connectors. Its port is
// taken until it is closed and the last connector that left from it has been
// closed, too.
type SharedAddress struct {
	adapter *Adapter
	addr    netip.AddrPort

	mu      sync.Mutex
	remotes map[netip.AddrPort]struct{} // connected, or being connected
	closed  bool
}

// CreateSharedAddress makes addr, or a free port of it, a local address for
// many connectors.
func (a *Adapter) CreateSharedAddress(ctx context.Context, addr netip.AddrPort) (nd.SharedAddress, error) {
	const op = "create shared address"
	if err := a.usable(ctx, op); err != nil {
		return nil, err
	}
	local, err := a.bindLocal(op, "adapter", addr)
	if err != nil {
		return nil, err
	}
	return &SharedAddress{adapter: a, addr: local, remotes: make(map[netip.AddrPort]struct{})}, nil
}

// LocalAddress returns the address with its port.
func (s *SharedAddress) LocalAddress() (netip.AddrPort, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return netip.AddrPort{}, s.isClosed("get local address")
	}
	return s.addr, nil
}

// Close gives the address up. Connections that left from it live on.
func (s *SharedAddress) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		s.giveBack()
	}
	return nil
}

// ConnectFrom is Connect from a shared address.
func (c *Connector) ConnectFrom(ctx context.Context, endpoint nd.Endpoint, from nd.SharedAddress, addr netip.AddrPort, params nd.ConnectParams) error {
	shared, ok := from.(*SharedAddress)
	if !ok || shared == nil || shared.adapter != c.adapter {
		return c.fail("connect", nd.InvalidAddress, "the shared address is not of this adapter", "create it with the connector's adapter")
	}
	return c.connect(ctx, endpoint, shared, addr, params)
}

// use notes a connection to remote.
func (s *SharedAddress) use(remote netip.AddrPort) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.isClosed("connect")
	}
	if _, ok := s.remotes[remote]; ok {
		return s.fail("connect", nd.AddressAlreadyExists, s.addr.String()+" and "+remote.String()+" are connected, or being connected",
			"close that connector first, or connect from another address")
	}
	s.remotes[remote] = struct{}{}
	return nil
}

// release is called when the connector to remote is closed or has failed.
func (s *SharedAddress) release(remote netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.remotes, remote)
	s.giveBack()
}

// giveBack frees the port if nobody needs it. The caller holds s.mu.
func (s *SharedAddress) giveBack() {
	if s.closed && len(s.remotes) == 0 {
		s.adapter.provider.ports.giveBack(s.addr.Port())
	}
}

func (s *SharedAddress) isClosed(op string) error {
	return s.fail(op, nd.InvalidHandle, "it is closed", "create another")
}

func (s *SharedAddress) fail(op string, status nd.Status, detail, next string) error {
	return &nd.OpError{Op: op, Object: "shared address", Status: status, Detail: detail, Next: next}
}
