package nd

import (
	"context"
	"errors"
	"net/netip"
	"testing"
)

// fixedProvider owns one IPv4 and one IPv6 address, in front of one adapter.
type fixedProvider struct {
	UnsupportedProvider
	listErr error
	opened  []AdapterID
}

var (
	ip4 = netip.MustParseAddr("10.1.2.3")
	ip6 = netip.MustParseAddr("fd00::1")
)

func (p *fixedProvider) QueryAddressList() ([]netip.Addr, error) {
	return []netip.Addr{ip4, ip6}, p.listErr
}

func (p *fixedProvider) ResolveAddress(a netip.Addr) (AdapterID, error) {
	if a != ip4 && a != ip6 {
		return 0, &OpError{Op: "resolve", Status: InvalidAddress}
	}
	return 77, nil
}

func (p *fixedProvider) OpenAdapter(_ context.Context, id AdapterID) (Adapter, error) {
	p.opened = append(p.opened, id)
	return nil, nil
}

func (p *fixedProvider) Close() error { return nil }

// routingProvider leads everywhere from its IPv4 address.
type routingProvider struct{ fixedProvider }

func (p *routingProvider) ResolveRoute(netip.Addr) (netip.Addr, error) { return ip4, nil }

func TestAddressHelpers(t *testing.T) {
	mapped := netip.AddrFrom16(ip4.As16())
	foreign := netip.MustParseAddr("10.1.2.4")
	for _, a := range []netip.Addr{ip4, ip6, mapped} {
		p := &fixedProvider{}
		if err := CheckAddress(p, a); err != nil {
			t.Errorf("CheckAddress(%v): %v", a, err)
		}
		if _, err := OpenAddress(t.Context(), p, a); err != nil || len(p.opened) != 1 || p.opened[0] != 77 {
			t.Errorf("OpenAddress(%v): opened %v, %v", a, p.opened, err)
		}
		if got, err := ResolveRoute(p, a); err != nil || got != a.Unmap() {
			t.Errorf("ResolveRoute(%v) = %v, %v", a, got, err)
		}
	}
	for _, a := range []netip.Addr{foreign, {}} {
		p := &fixedProvider{}
		if err := CheckAddress(p, a); !errors.Is(err, InvalidAddress) {
			t.Errorf("CheckAddress(%v): %v, want InvalidAddress", a, err)
		}
		if _, err := OpenAddress(t.Context(), p, a); !errors.Is(err, InvalidAddress) || len(p.opened) != 0 {
			t.Errorf("OpenAddress(%v): opened %v, %v, want InvalidAddress", a, p.opened, err)
		}
		if _, err := ResolveRoute(p, a); !errors.Is(err, InvalidAddress) {
			t.Errorf("ResolveRoute(%v): %v, want InvalidAddress", a, err)
		}
	}
	if got, err := ResolveRoute(&routingProvider{}, foreign); err != nil || got != ip4 {
		t.Errorf("a provider that knows routes was not asked: %v, %v", got, err)
	}
	if err := CheckAddress(&fixedProvider{listErr: DeviceRemoved}, ip4); !errors.Is(err, DeviceRemoved) {
		t.Errorf("CheckAddress hides the provider's error: %v", err)
	}
}
