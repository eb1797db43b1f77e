package nd

import (
	"context"
	"net/netip"
	"strconv"
)

// NDKAdapter is an optional interface of adapters. It has the parts of the model that are from NDK
// and not in version 2.
type NDKAdapter interface {
	// QueryNDK returns the limits for which [AdapterInfo] has no field.
	// Source: NdkQueryAdapterInfo.
	QueryNDK() (NDKInfo, error)

	// CreateSharedAddress creates a local address that several connectors can use at the same time:
	// see [SharedAddressConnector]. With port 0, the provider chooses a free port.
	//
	// Errors: [SharingViolation]; [TooManyAddresses]; [InvalidAddress]; [NotSupported];
	// [Canceled]. Source: NdkCreateSharedEndpoint.
	CreateSharedAddress(ctx context.Context, addr netip.AddrPort) (SharedAddress, error)
}

// NDKInfo has the limits for which [AdapterInfo] has no field.
type NDKInfo struct {
	// FastRegisterPageCount is the number of pages per fast registration that the adapter handles
	// best. It is at least 16, or 0 if the adapter has no fast registration.
	FastRegisterPageCount uint32
	Technology            Technology
}

// Technology is the transport that moves the bytes, in NDK's numbers. Source: RdmaTechnology of
// NDK_ADAPTER_INFO.
type Technology uint32

const (
	TechnologyUndefined  Technology = 0 // a transport without a number, such as shared memory
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
	// LocalAddress returns the address with its actual port. Source: NdkGetLocalAddress.
	LocalAddress() (netip.AddrPort, error)
	// Close releases the address. The address is free when the last connector that uses it is closed.
	Close() error
}

// SharedAddressConnector is an optional interface of connectors. If an adapter is an [NDKAdapter],
// its connectors implement it.
type SharedAddressConnector interface {
	// ConnectFrom is [Connector.Connect] from a shared address. It replaces Bind and Connect.
	//
	// Errors: those of Connect, and [AddressAlreadyExists] if the two addresses are already
	// connected.
	// Source: NdkConnectWithSharedEndpoint.
	ConnectFrom(ctx context.Context, ep Endpoint, from SharedAddress, addr netip.AddrPort, p ConnectParams) error
}

// RouteResolver is an optional interface of providers that know which local address reaches a peer.
// Use the function [ResolveRoute].
type RouteResolver interface {
	// ResolveRoute returns the local address to bind for a connection to remote.
	//
	// Errors: [InvalidAddress] if the route does not start at an address of this provider;
	// [NetworkUnreachable] if there is no route. Source: NdResolveAddress.
	ResolveRoute(remote netip.Addr) (netip.Addr, error)
}
