package endpoint

import (
	"context"
	"net/netip"

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
	return adopt[nd.SharedAddress](a, op, kindSharedAddress, &sharedAddress{adapter: a, addr: local, remotes: make(map[netip.AddrPort]struct{})})
}
