package nd

import (
	"context"
	"net/netip"
	"strconv"
)

// NDKAdapter is implemented by adapters that have the parts of the model that only NDK has.
type NDKAdapter interface {
	// QueryNDK returns the limits for which [AdapterInfo] has no field.
	// Source: NdkQueryAdapterInfo.
	QueryNDK() (NDKInfo, error)

	// CreateSharedAddress makes addr a local address that many connectors can connect from.
	// Port 0 picks a free one.
	//
	// Errors: [SharingViolation]; [TooManyAddresses]; [InvalidAddress]; [NotSupported];
	// [Canceled]. Source: NdkCreateSharedEndpoint.
	CreateSharedAddress(ctx context.Context, addr netip.AddrPort) (SharedAddress, error)
}

// NDKInfo has the limits that only NDK has.
type NDKInfo struct {
	// FastRegisterPageCount is the number of pages, at least 16, with which fast registration works
	// best. It is 0 without fast registration.
	FastRegisterPageCount uint32
	Technology            Technology
}

// Technology is the transport that moves the bytes, in NDK's numbers. Source: RdmaTechnology of NDK_ADAPTER_INFO.
type Technology uint32

const (
	TechnologyUndefined  Technology = 0 // none of the others, such as shared memory
	TechnologyIWARP      Technology = 1
	TechnologyInfiniBand Technology = 2
	TechnologyRoCE       Technology = 3
	TechnologyRoCEv2     Technology = 4
)

// String returns the usual spelling.
func (t Technology) String() string {
	names := [...]string{"undefined", "iWARP", "InfiniBand", "RoCE", "RoCEv2"}
	if int64(t) < int64(len(names)) {
		return names[t]
	}
	return "Technology(" + strconv.FormatUint(uint64(t), 10) + ")"
}

// SharedAddress is a local address from which several connectors can connect. Source: NDK_SHARED_ENDPOINT.
type SharedAddress interface {
	// LocalAddress returns the address with the port in use. Source: NdkGetLocalAddress.
	LocalAddress() (netip.AddrPort, error)
	// Close releases the address. It is free when the last connector that uses it is closed.
	Close() error
}

// SharedAddressConnector is implemented by connectors of adapters that are an [NDKAdapter].
type SharedAddressConnector interface {
	// ConnectFrom is [Connector.Connect] from a shared address, and takes the place of Bind. It has
	// the errors of Connect, and [AddressAlreadyExists] when the two addresses are connected already.
	// Source: NdkConnectWithSharedEndpoint.
	ConnectFrom(ctx context.Context, ep Endpoint, from SharedAddress, addr netip.AddrPort, p ConnectParams) error
}

// RouteResolver is implemented by providers that know the local address for each peer.
type RouteResolver interface {
	// ResolveRoute returns the local address to bind for a connection to remote.
	//
	// Errors: [InvalidAddress] when the route does not start at an address of this provider;
	// [NetworkUnreachable] when there is no route. Source: NdResolveAddress.
	ResolveRoute(remote netip.Addr) (netip.Addr, error)
}
