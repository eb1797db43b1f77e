package ndcompat

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/internal/flagnames"
)

// Library is NetworkDirect's helper library. It gives access to the addresses and adapters of several
// providers. The library counts its users: Startup adds a user, and Cleanup removes a user. While there
// is no user, all methods except Startup fail with [nd.DeviceNotReady].
//
// Set the providers before the first call, and do not change them afterwards. The Library does not
// close the providers. Adapters that it has opened stay usable after Cleanup.
// Source: NetworkDirect ndutil.
type Library struct {
	// V2, V1 and Emulators are the providers, by kind. The kind matters only to QueryAddressList, which
	// can exclude kinds.
	V2, V1, Emulators []nd.Provider

	mu    sync.Mutex
	users int
}

// QueryFlags select kinds of providers that [Library.QueryAddressList] leaves out.
// Source: the flags of NdQueryAddressList.
type QueryFlags uint32

const (
	ExcludeEmulators QueryFlags = 1
	ExcludeV1        QueryFlags = 2
	ExcludeV2        QueryFlags = 4
)

var queryFlagNames = []flagnames.Name{
	{Bits: uint32(ExcludeEmulators), Name: "ExcludeEmulators"},
	{Bits: uint32(ExcludeV1), Name: "ExcludeV1"},
	{Bits: uint32(ExcludeV2), Name: "ExcludeV2"},
}

// String lists the flags by name, joined by "|".
func (f QueryFlags) String() string { return flagnames.Join(uint32(f), queryFlagNames) }

// Startup adds a user of the library. It never fails. Source: NdStartup.
func (l *Library) Startup() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users++
	return nil
}

// Cleanup removes a user of the library.
//
// Errors: [nd.DeviceNotReady] if the library has no user. Source: NdCleanup.
func (l *Library) Cleanup() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users == 0 {
		return notStarted("clean up")
	}
	l.users--
	return nil
}

func (l *Library) ready(op string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users == 0 {
		return notStarted(op)
	}
	return nil
}

func notStarted(op string) error {
	return &nd.OpError{Op: op, Object: "library", Status: nd.DeviceNotReady, Detail: "the library is not started", Next: "call Startup first"}
}

// QueryAddressList returns the local addresses of all providers, except the kinds that flags exclude.
// There may be none. The caller may keep and change the list.
//
// Errors: [nd.DeviceNotReady]; [nd.InvalidParameter] if flags has an unknown bit.
// Source: NdQueryAddressList.
func (l *Library) QueryAddressList(flags QueryFlags) ([]netip.Addr, error) {
	const op = "query address list"
	if err := l.ready(op); err != nil {
		return nil, err
	}
	if flags&^(ExcludeEmulators|ExcludeV1|ExcludeV2) != 0 {
		return nil, &nd.OpError{Op: op, Object: "library", Status: nd.InvalidParameter, Field: "flags", Detail: flags.String()}
	}
	var all []netip.Addr
	for _, p := range l.providers(flags) {
		list, err := p.QueryAddressList()
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

// ResolveAddress returns the local address to bind for a connection to remote.
//
// Errors: [nd.DeviceNotReady]; [nd.InvalidAddress] if the route does not start at an address of a
// provider; [nd.NetworkUnreachable] if there is no route. Source: NdResolveAddress.
func (l *Library) ResolveAddress(remote netip.Addr) (local netip.Addr, err error) {
	err = l.firstOf("resolve address", remote, func(p nd.Provider) (err error) {
		local, err = nd.ResolveRoute(p, remote)
		return err
	})
	return local, err
}

// CheckAddress returns nil if addr is a local address of one of the providers.
//
// Errors: [nd.DeviceNotReady]; [nd.InvalidAddress] if no provider has addr. Source: NdCheckAddress.
func (l *Library) CheckAddress(addr netip.Addr) error {
	return l.firstOf("check address", addr, func(p nd.Provider) error { return nd.CheckAddress(p, addr) })
}

// OpenAdapter opens the adapter that has the local address addr.
//
// Errors: [nd.DeviceNotReady]; [nd.InvalidAddress] if no provider has addr; those of
// [nd.Provider.OpenAdapter].
// Source: NdOpenAdapter, NdOpenV1Adapter.
func (l *Library) OpenAdapter(ctx context.Context, addr netip.Addr) (ad nd.Adapter, err error) {
	err = l.firstOf("open adapter", addr, func(p nd.Provider) (err error) {
		ad, err = nd.OpenAddress(ctx, p, addr)
		return err
	})
	return ad, err
}

// firstOf calls try with each provider until one knows addr or a route to it. If none does, it
// returns the error of the last.
func (l *Library) firstOf(op string, addr netip.Addr, try func(nd.Provider) error) error {
	if err := l.ready(op); err != nil {
		return err
	}
	var err error = &nd.OpError{Op: op, Object: addr.String(), Status: nd.InvalidAddress, Detail: "the library has no provider", Next: "set V2, V1 or Emulators of the Library"}
	for _, p := range l.providers(0) {
		if err = try(p); !errors.Is(err, nd.InvalidAddress) && !errors.Is(err, nd.NetworkUnreachable) {
			break
		}
	}
	return err
}

// providers returns the providers that flags do not exclude, in the order of preference.
func (l *Library) providers(flags QueryFlags) []nd.Provider {
	var list []nd.Provider
	for _, kind := range []struct {
		exclude   QueryFlags
		providers []nd.Provider
	}{{ExcludeV2, l.V2}, {ExcludeV1, l.V1}, {ExcludeEmulators, l.Emulators}} {
		if flags&kind.exclude == 0 {
			list = slices.Concat(list, kind.providers)
		}
	}
	return list
}
