package nd

import (
	"context"
	"net/netip"
)

// CheckAddress returns nil if addr is one of p's local addresses. An IPv4-mapped IPv6 address is
// equal to the IPv4 address.
//
// Errors: [InvalidAddress] if addr is not a local address of p. Source: NdCheckAddress.
func CheckAddress(p Provider, addr netip.Addr) error {
	_, err := localAddress(p, "check address", addr)
	return err
}

// OpenAddress opens the adapter that has addr, one of p's local addresses.
//
// Errors: [InvalidAddress], and those of [Provider.OpenAdapter]. Source: NdOpenAdapter.
func OpenAddress(ctx context.Context, p Provider, addr netip.Addr) (Adapter, error) {
	local, err := localAddress(p, "open adapter", addr)
	if err != nil {
		return nil, err
	}
	id, err := p.ResolveAddress(local)
	if err != nil {
		return nil, err
	}
	return p.OpenAdapter(ctx, id)
}

// ResolveRoute returns the local address of p to bind for a connection to remote. If p is a
// [RouteResolver], ResolveRoute calls its method. Otherwise remote must be a local address of p, and
// ResolveRoute returns that address.
//
// Errors: those of the method; [InvalidAddress]. Source: NdResolveAddress.
func ResolveRoute(p Provider, remote netip.Addr) (netip.Addr, error) {
	if r, ok := p.(RouteResolver); ok {
		return r.ResolveRoute(remote.Unmap())
	}
	return localAddress(p, "resolve route", remote)
}

// localAddress returns addr as p lists it.
func localAddress(p Provider, op string, addr netip.Addr) (netip.Addr, error) {
	if !addr.IsValid() {
		return netip.Addr{}, &OpError{
			Op: op, Status: InvalidAddress,
			Detail: "the zero address is neither IPv4 nor IPv6",
		}
	}
	list, err := p.QueryAddressList()
	if err != nil {
		return netip.Addr{}, err
	}
	for _, a := range list {
		if a.Unmap() == addr.Unmap() {
			return a, nil
		}
	}
	return netip.Addr{}, &OpError{
		Op: op, Object: addr.String(), Status: InvalidAddress,
		Detail: "not a local address of this provider",
		Next:   "use an address from QueryAddressList",
	}
}
