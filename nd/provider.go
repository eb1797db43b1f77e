package nd

import (
	"context"
	"net/netip"
)

// Provider is the way in: it knows the local addresses and opens the adapters behind them.
// Source: NetworkDirect IND2Provider.
type Provider interface {
	// QueryAddressList returns every local address through which this provider can be reached,
	// possibly none. The list is the caller's to keep; it may differ at the next call.
	// Source: IND2Provider::QueryAddressList.
	QueryAddressList() ([]netip.Addr, error)

	// ResolveAddress returns the adapter that owns a local address. Several addresses may lead
	// to one adapter.
	//
	// Errors: [InvalidAddress] when local is not an address of this provider.
	// Source: IND2Provider::ResolveAddress.
	ResolveAddress(local netip.Addr) (AdapterID, error)

	// OpenAdapter opens an adapter; each call returns a handle of its own.
	//
	// Errors: [InvalidParameter] for an unknown id; [NoMemory]; [InsufficientResources];
	// [DeviceRemoved]; [Canceled].
	// Source: IND2Provider::OpenAdapter, INDProvider::OpenAdapter.
	OpenAdapter(ctx context.Context, id AdapterID) (Adapter, error)

	// Close ends the use of the provider. A provider may let adapters that are still open stay
	// usable until the last of them closes, or end all that was made through it at once,
	// connections by force and waiting calls with [Canceled]; close those first.
	Close() error
}

// Adapter creates every other object; objects can be combined only with objects of the same
// adapter. Each creating call may fail with [InsufficientResources], [NoMemory], [DeviceRemoved]
// or [Canceled], and a failed one leaves nothing behind.
// Source: NetworkDirect IND2Adapter.
type Adapter interface {
	// Query returns the limits. version is [InfoVersion1] or [InfoVersion2] and comes back in
	// the answer.
	//
	// Errors: [InvalidParameter] for another version.
	// Source: IND2Adapter::Query, NdkQueryAdapterInfo.
	Query(version uint32) (AdapterInfo, error)

	// QueryAddressList returns the addresses of this adapter; connectors and listeners can be
	// bound to them. Source: IND2Adapter::QueryAddressList.
	QueryAddressList() ([]netip.Addr, error)

	// Control runs a command that this provider defines, with in as its input, and returns how
	// many bytes of out it filled.
	//
	// Errors: [NotSupported] for a code that the provider does not know; [BufferOverflow] with
	// the needed size when out is too short; others as the provider documents.
	// Source: INDAdapter::Control.
	Control(ctx context.Context, code uint32, in, out []byte) (int, error)

	// CreateCompletionQueue creates a queue for at least depth entries, 1 to
	// MaxCompletionQueueDepth. Endpoints may be deeper than their completion queue; running over
	// is noticed when it happens, see [CompletionQueue].
	//
	// Errors: [InvalidParameter3] for a depth out of range.
	// Source: IND2Adapter::CreateCompletionQueue, NdkCreateCq.
	CreateCompletionQueue(ctx context.Context, depth int) (CompletionQueue, error)

	// CreateMemoryRegion creates a region without memory, for [MemoryRegion.Register] or
	// [MemoryRegion.InitializeFastRegister].
	// Source: IND2Adapter::CreateMemoryRegion, NdkCreateMr.
	CreateMemoryRegion(ctx context.Context) (MemoryRegion, error)

	// Register creates a region over any memory of this process. It is CreateMemoryRegion and
	// [MemoryRegion.Register] in one, with the errors of both.
	// Source: INDAdapter::RegisterMemory.
	Register(ctx context.Context, buf []byte, flags RegionFlags) (MemoryRegion, error)

	// Allocate creates a region over size bytes of new, zeroed memory that this provider reaches
	// best; the region's Bytes is the memory. It lives until Close: after Deregister it is plain
	// memory that may be registered again, after Close it must not be touched.
	//
	// Errors: [InvalidBufferSize] for size 0; [InvalidParameter] for a negative size or one above
	// MaxRegistrationSize; [InvalidParameter3] for unknown flags; [NoMemory] with the limit that
	// was hit.
	Allocate(ctx context.Context, size int, flags RegionFlags) (MemoryRegion, error)

	// CreateMemoryWindow creates a window in the invalidated state.
	// Source: IND2Adapter::CreateMemoryWindow, NdkCreateMw.
	CreateMemoryWindow(ctx context.Context) (MemoryWindow, error)

	// CreateSharedReceiveQueue creates a receive queue that several endpoints can draw from.
	//
	// Errors: [NotSupported] when MaxSharedReceiveQueueDepth is 0; [InvalidParameter3] for the
	// depth; [InvalidParameter4] for the SGE count; [InvalidParameter5] for the threshold.
	// Source: IND2Adapter::CreateSharedReceiveQueue, NdkCreateSrq.
	CreateSharedReceiveQueue(ctx context.Context, cfg SharedReceiveQueueConfig) (SharedReceiveQueue, error)

	// CreateEndpoint creates a queue pair, not connected. Limits cannot change later; a provider
	// may grant more than asked for, and at least 4 SGEs where the adapter allows as many. All
	// limits may be at their maximum together.
	//
	// Errors, by the field at fault. Without SharedReceive: [InvalidParameter2] Receive,
	// [InvalidParameter3] Initiator, [InvalidParameter5] ReceiveDepth, [InvalidParameter6]
	// InitiatorDepth, [InvalidParameter7] MaxReceiveSGE, [InvalidParameter8] MaxInitiatorSGE,
	// [InvalidParameter9] InlineSize. With it: [InvalidParameter2] Receive, [InvalidParameter3]
	// Initiator, [InvalidParameter4] SharedReceive, [InvalidParameter6] InitiatorDepth,
	// [InvalidParameter7] MaxInitiatorSGE, [InvalidParameter8] InlineSize.
	// Source: IND2Adapter::CreateQueuePair and CreateQueuePairWithSrq, NdkCreateQp,
	// NdkCreateQpWithSrq.
	CreateEndpoint(ctx context.Context, cfg EndpointConfig) (Endpoint, error)

	// CreateConnector creates a connector, not bound.
	// Source: IND2Adapter::CreateConnector, NdkCreateConnector.
	CreateConnector(ctx context.Context) (Connector, error)

	// CreateListener creates a listener, not bound.
	// Source: IND2Adapter::CreateListener, NdkCreateListener.
	CreateListener(ctx context.Context) (Listener, error)

	// BuildLogicalAddressMapping lists the pages of buf in the adapter's own addresses, as input
	// for [Endpoint.FastRegister]. The memory must stay in place until the mapping is closed.
	// That of [Adapter.Allocate] can always be mapped, and stays, even if its region is closed.
	//
	// Errors: [NotSupported] when the provider has no fast registration; [InvalidParameter] for
	// an empty buf or memory that the adapter cannot address.
	// Source: NdkBuildLAM.
	BuildLogicalAddressMapping(ctx context.Context, buf []byte) (LogicalMapping, error)

	// PrivilegedToken returns the local token that makes every live [LogicalMapping] of this
	// adapter usable as a local buffer, without registration: an SGE with this token may name any
	// part of the memory of one mapping that is live when the request is posted. It is of no use
	// to peers. It must not leave trusted code.
	//
	// Errors: [NotSupported], with token 0.
	// Source: NdkGetPrivilegedMemoryRegionToken.
	PrivilegedToken() (Token, error)

	// Close gives the handle up. Objects created from it stay usable until they are closed
	// themselves; the adapter goes with the last of them.
	Close() error
}

// EndpointConfig fixes an endpoint's queues and limits.
type EndpointConfig struct {
	// Receive and Initiator take the completions of the two queues; both are needed, and they
	// may be the same queue, shared with other endpoints or not.
	Receive, Initiator CompletionQueue
	// SharedReceive, when not nil, takes the place of the endpoint's own receive queue, and
	// ReceiveDepth and MaxReceiveSGE are ignored.
	SharedReceive SharedReceiveQueue
	// Context comes back in every [Result] of this endpoint.
	Context uint64

	// ReceiveDepth and InitiatorDepth bound the outstanding requests, MaxReceiveSGE and
	// MaxInitiatorSGE the entries of one. 0 asks for the provider's default, which is usable and
	// within the adapter's limits but not otherwise specified.
	ReceiveDepth, InitiatorDepth   int
	MaxReceiveSGE, MaxInitiatorSGE int

	// InlineSize bounds the bytes of a request posted with [Inline]; 0 allows empty ones only.
	InlineSize int
}

// SharedReceiveQueueConfig fixes a shared receive queue.
type SharedReceiveQueueConfig struct {
	// Depth bounds the outstanding receives, MaxSGE the entries of one. 0 asks for the
	// provider's default.
	Depth, MaxSGE int
	// Threshold is the number of outstanding receives below which Notify fires, Depth at most; 0
	// turns that off.
	Threshold int
}
