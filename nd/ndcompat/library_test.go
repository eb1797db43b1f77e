package ndcompat

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/softnd/softnd/nd"
)

// oneAddress is a provider with one address, which knows the route to one other.
type oneAddress struct {
	nd.UnsupportedProvider
	addr, reaches netip.Addr
	listErr       error
}

func (p *oneAddress) QueryAddressList() ([]netip.Addr, error) {
	return []netip.Addr{p.addr}, p.listErr
}
func (p *oneAddress) ResolveAddress(netip.Addr) (nd.AdapterID, error) {
	return nd.AdapterID(p.addr.As4()[3]), nil
}
func (p *oneAddress) OpenAdapter(_ context.Context, id nd.AdapterID) (nd.Adapter, error) {
	return openedAdapter{id: id}, nil
}
func (p *oneAddress) ResolveRoute(remote netip.Addr) (netip.Addr, error) {
	if remote != p.reaches {
		return netip.Addr{}, &nd.OpError{Op: "resolve route", Status: nd.NetworkUnreachable}
	}
	return p.addr, nil
}
func (p *oneAddress) Close() error { return nil }

// openedAdapter has the id of the adapter that was opened.
type openedAdapter struct {
	nd.Adapter
	id nd.AdapterID
}

var (
	atV2, atV1, atEmulator = netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.9")
	beyondV2, beyondV1     = netip.MustParseAddr("10.0.2.1"), netip.MustParseAddr("10.0.1.1")
	nowhere                = netip.MustParseAddr("10.0.3.1")
)

func newLibrary() *Library {
	return &Library{
		V2:        []nd.Provider{&oneAddress{addr: atV2, reaches: beyondV2}},
		V1:        []nd.Provider{&oneAddress{addr: atV1, reaches: beyondV1}},
		Emulators: []nd.Provider{&oneAddress{addr: atEmulator}},
	}
}

// refusals calls everything that needs a library in use.
func refusals(l *Library) []error {
	_, list := l.QueryAddressList(0)
	_, resolve := l.ResolveAddress(beyondV2)
	_, open := l.OpenAdapter(context.Background(), atV2)
	return []error{list, resolve, l.CheckAddress(atV2), open, l.Cleanup()}
}

func TestLibraryCountsItsUsers(t *testing.T) {
	l := newLibrary()
	for range 2 {
		for i, err := range refusals(l) {
			if !errors.Is(err, nd.DeviceNotReady) {
				t.Errorf("call %d before Startup: %v, want DeviceNotReady", i, err)
			}
		}
		if err := errors.Join(l.Startup(), l.Startup(), l.Cleanup()); err != nil {
			t.Fatal(err)
		}
		for i, err := range refusals(l) { // ends with the last Cleanup
			if err != nil {
				t.Errorf("call %d with one user left: %v", i, err)
			}
		}
	}
}

func TestLibraryExcludes(t *testing.T) {
	l := newLibrary()
	l.Startup()
	for flags, want := range map[QueryFlags][]netip.Addr{
		0:                         {atV2, atV1, atEmulator},
		ExcludeEmulators:          {atV2, atV1},
		ExcludeV1:                 {atV2, atEmulator},
		ExcludeV2:                 {atV1, atEmulator},
		ExcludeV1 | ExcludeV2:     {atEmulator},
		ExcludeEmulators | 6:      nil,
		ExcludeV2 | QueryFlags(1): {atV1},
	} {
		if got, err := l.QueryAddressList(flags); err != nil || !slices.Equal(got, want) {
			t.Errorf("QueryAddressList(%v) = %v, %v, want %v", flags, got, err, want)
		}
	}
	if _, err := l.QueryAddressList(8); StatusOf(err) != InvalidParameter1 {
		t.Errorf("QueryAddressList(8): %v, want InvalidParameter1", err)
	}
	l.V1 = []nd.Provider{&oneAddress{listErr: nd.DeviceRemoved}}
	if _, err := l.QueryAddressList(0); !errors.Is(err, nd.DeviceRemoved) {
		t.Errorf("the error of a provider is hidden: %v", err)
	}
}

func TestLibraryFindsTheProvider(t *testing.T) {
	l := newLibrary()
	l.Startup()
	for _, addr := range []netip.Addr{atV2, atV1, atEmulator} {
		ad, err := l.OpenAdapter(t.Context(), addr)
		if err != nil || ad.(openedAdapter).id != nd.AdapterID(addr.As4()[3]) {
			t.Errorf("OpenAdapter(%v) = %v, %v", addr, ad, err)
		}
		if err := l.CheckAddress(addr); err != nil {
			t.Error(err)
		}
	}
	for remote, want := range map[netip.Addr]netip.Addr{beyondV2: atV2, beyondV1: atV1} {
		if got, err := l.ResolveAddress(remote); err != nil || got != want {
			t.Errorf("ResolveAddress(%v) = %v, %v, want %v", remote, got, err, want)
		}
	}
	if _, err := l.ResolveAddress(nowhere); !errors.Is(err, nd.NetworkUnreachable) {
		t.Errorf("ResolveAddress(%v): %v, want NetworkUnreachable", nowhere, err)
	}
	var empty Library
	empty.Startup()
	for _, lib := range []*Library{l, &empty} {
		_, open := lib.OpenAdapter(t.Context(), nowhere)
		if err := lib.CheckAddress(nowhere); !errors.Is(err, nd.InvalidAddress) || !errors.Is(open, nd.InvalidAddress) {
			t.Errorf("foreign address: %v and %v, want InvalidAddress", err, open)
		}
	}
	if list, err := empty.QueryAddressList(0); err != nil || len(list) != 0 {
		t.Errorf("a library without providers lists %v, %v", list, err)
	}
}

func TestLibraryIsSafeForConcurrentUse(t *testing.T) {
	l := newLibrary()
	var users sync.WaitGroup
	for range 8 {
		users.Go(func() {
			for range 100 {
				l.Startup()
				if err := errors.Join(l.CheckAddress(atV2), l.Cleanup()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	users.Wait()
	if err := l.Cleanup(); !errors.Is(err, nd.DeviceNotReady) {
		t.Errorf("after as many Cleanups as Startups: %v", err)
	}
}
