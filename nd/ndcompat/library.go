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

// Library is NetworkDirect's helper library: the addresses and adapters of all providers of a
// process together. It counts who uses it: before the first Startup, and after as many calls of
// Cleanup, every other call fails with [nd.DeviceNotReady].
//
// Fill in the providers before use and leave them alone afterwards. The Library does not close
// them; adapters opened through it live on after Cleanup. Source: NetworkDirect ndutil.
type Library struct {
	// The providers, by what they are to callers that exclude a kind. All are used alike.
	V2, V1, Emulators []nd.Provider

	mu    sync.Mutex
	users int
}

// QueryFlags leave kinds of providers out of [Library.QueryAddressList].
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

// Startup adds a user. It does not fail. Source: NdStartup.
func (l *Library) Startup() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users++
	return nil
}

// Cleanup takes a user away.
//
// Errors: [nd.DeviceNotReady] when there is none. Source: NdCleanup.
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
	return &nd.OpError{Op: op, Object: "library", Status: nd.DeviceNotReady, Detail: "nobody has started it", Next: "call Startup first"}
}

// QueryAddressList returns the local addresses of all providers but those that flags exclude,
// possibly none. The list is the caller's to keep.
//
// Errors: [nd.DeviceNotReady]; [nd.InvalidParameter1] for unknown flags. Source: NdQueryAddressList.
func (l *Library) QueryAddressList(flags QueryFlags) ([]netip.Addr, error) {
	const op = "query address list"
	if err := l.ready(op); err != nil {
		return nil, err
	}
	if flags&^(ExcludeEmulators|ExcludeV1|ExcludeV2) != 0 {
		return nil, &nd.OpError{Op: op, Object: "library", Status: nd.InvalidParameter1, Detail: flags.String()}
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
// Errors: [nd.DeviceNotReady]; [nd.InvalidAddress] when the route starts at no address of a provider;
// [nd.NetworkUnreachable] when there is no route. Source: NdResolveAddress.
func (l *Library) ResolveAddress(remote netip.Addr) (local netip.Addr, err error) {
	err = l.firstOf("resolve address", remote, func(p nd.Provider) (err error) {
		local, err = nd.ResolveRoute(p, remote)
		return err
	})
	return local, err
}

// CheckAddress returns nil if addr is a local address of one of the providers.
//
// Errors: [nd.DeviceNotReady]; [nd.InvalidAddress]. Source: NdCheckAddress.
func (l *Library) CheckAddress(addr netip.Addr) error {
	return l.firstOf("check address", addr, func(p nd.Provider) error { return nd.CheckAddress(p, addr) })
}

// OpenAdapter opens the adapter behind a local address.
//
// Errors: [nd.DeviceNotReady]; [nd.InvalidAddress], and those of [nd.Provider.OpenAdapter].
// Source: NdOpenAdapter, NdOpenV1Adapter.
func (l *Library) OpenAdapter(ctx context.Context, addr netip.Addr) (ad nd.Adapter, err error) {
	err = l.firstOf("open adapter", addr, func(p nd.Provider) (err error) {
		ad, err = nd.OpenAddress(ctx, p, addr)
		return err
	})
	return ad, err
}

// firstOf tries the providers until one does not say that addr is none of its own or out of its
// reach. The error of the last one stays when all say so.
func (l *Library) firstOf(op string, addr netip.Addr, try func(nd.Provider) error) error {
	if err := l.ready(op); err != nil {
		return err
	}
	var err error = &nd.OpError{Op: op, Object: addr.String(), Status: nd.InvalidAddress, Detail: "the library has no provider"}
	for _, p := range l.providers(0) {
		if err = try(p); !errors.Is(err, nd.InvalidAddress) && !errors.Is(err, nd.NetworkUnreachable) {
			break
		}
	}
	return err
}

// providers lists those that flags do not exclude, in the order of preference.
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
