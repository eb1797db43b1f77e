package nd

import (
	"context"
	"net/netip"
)

// Provider is the entry point: it knows the local addresses and opens the adapters that have them.
// Source: NetworkDirect IND2Provider.
type Provider interface {
	// QueryAddressList returns every local address of this provider, possibly none. The caller may
	// keep and change the list. The next call may return a different list.
	// Source: IND2Provider::QueryAddressList.
	QueryAddressList() ([]netip.Addr, error)

	// ResolveAddress returns the adapter that has a local address. An adapter may have several
	// addresses.
	//
	// Errors: [InvalidAddress] when local is not an address of this provider.
	// Source: IND2Provider::ResolveAddress.
	ResolveAddress(local netip.Addr) (AdapterID, error)

	// OpenAdapter opens an adapter. Each call returns a new handle.
	//
	// Errors: [InvalidParameter] for an unknown id; [NoMemory]; [InsufficientResources];
	// [DeviceRemoved]; [Canceled].
	// Source: IND2Provider::OpenAdapter, INDProvider::OpenAdapter.
	OpenAdapter(ctx context.Context, id AdapterID) (Adapter, error)

	// Close ends the use of the provider. Close the adapters first: a provider may let open adapters
	// stay usable until the last of them is closed, or it may end them and their objects at once.
	// In the second case connections are aborted, and calls that wait return [Canceled].
	Close() error
}

// Adapter creates all other objects. An object can be used only with objects of the same adapter.
// Each call that creates an object may fail with [InsufficientResources], [NoMemory],
// [DeviceRemoved] or [Canceled]. A call that fails creates nothing.
// Source: NetworkDirect IND2Adapter.
type Adapter interface {
	// Query returns the limits. version is [InfoVersion1] or [InfoVersion2], and becomes the
	// InfoVersion of the answer.
	//
	// Errors: [InvalidParameter] for another version.
	// Source: IND2Adapter::Query, NdkQueryAdapterInfo.
	Query(version uint32) (AdapterInfo, error)

	// QueryAddressList returns the addresses of this adapter, to which connectors and listeners can
	// be bound. Source: IND2Adapter::QueryAddressList.
	QueryAddressList() ([]netip.Addr, error)

	// Control runs a command that this provider defines, with in as its input, and returns how
	// many bytes of out it filled.
	//
	// Errors: [NotSupported] for a code that the provider does not know; [BufferOverflow] with
	// the needed size when out is too short; others as the provider documents.
	// Source: INDAdapter::Control.
	Control(ctx context.Context, code uint32, in, out []byte) (int, error)

	// CreateCompletionQueue creates a queue for at least depth entries, 1 to
	// MaxCompletionQueueDepth. The depth may be less than the sum of the depths of the
	// initiator and receive queues that report to it: only an actual overrun is an error, see [CompletionQueue].
	//
	// Errors: [InvalidParameter3] for a depth out of range.
	// Source: IND2Adapter::CreateCompletionQueue, NdkCreateCq.
	CreateCompletionQueue(ctx context.Context, depth int) (CompletionQueue, error)

	// CreateMemoryRegion creates a region without memory, for [MemoryRegion.Register] or
	// [MemoryRegion.InitializeFastRegister].
	// Source: IND2Adapter::CreateMemoryRegion, NdkCreateMr.
	CreateMemoryRegion(ctx context.Context) (MemoryRegion, error)

	// Register creates a region over any memory of this process. It is CreateMemoryRegion followed
	// by [MemoryRegion.Register], with the errors of both.
	// Source: INDAdapter::RegisterMemory.
	Register(ctx context.Context, buf []byte, flags RegionFlags) (MemoryRegion, error)

	// Allocate creates a region over size bytes of new, zeroed memory, of the kind that the
	// provider's transfers access fastest. [MemoryRegion.Bytes] returns the memory. It lives until
	// the region's Close: after Deregister it is plain memory that may be registered again, after
	// Close it must not be touched.
	//
	// Errors: [InvalidBufferSize] for size 0; [InvalidParameter] for a negative size or one above
	// MaxRegistrationSize; [InvalidParameter3] for unknown flags; [NoMemory], which names the limit
	// that was hit.
	Allocate(ctx context.Context, size int, flags RegionFlags) (MemoryRegion, error)

	// CreateMemoryWindow creates a window in the invalidated state.
	// Source: IND2Adapter::CreateMemoryWindow, NdkCreateMw.
	CreateMemoryWindow(ctx context.Context) (MemoryWindow, error)

	// CreateSharedReceiveQueue creates a queue of receives for several endpoints.
	//
	// Errors: [NotSupported] when MaxSharedReceiveQueueDepth is 0; [InvalidParameter3] for the
	// depth; [InvalidParameter4] for the SGE count; [InvalidParameter5] for the threshold.
	// Source: IND2Adapter::CreateSharedReceiveQueue, NdkCreateSrq.
	CreateSharedReceiveQueue(ctx context.Context, cfg SharedReceiveQueueConfig) (SharedReceiveQueue, error)

	// CreateEndpoint creates a queue pair that is not connected. Its limits cannot change later. A
	// provider may grant more than asked for. It grants at least 4 SGEs if the adapter allows 4.
	// A configuration with every limit at its maximum is valid.
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

	// BuildLogicalAddressMapping returns the pages of buf in the adapter's own addresses, for
	// [Endpoint.FastRegister]. The memory must stay mapped until the mapping is closed. Memory of
	// [Adapter.Allocate] can always be mapped, and stays, even if its region is closed.
	//
	// Errors: [NotSupported] when the provider has no fast registration; [InvalidParameter] for
	// an empty buf or memory that the adapter cannot address.
	// Source: NdkBuildLAM.
	BuildLogicalAddressMapping(ctx context.Context, buf []byte) (LogicalMapping, error)

	// PrivilegedToken returns a local token for the memory of every open [LogicalMapping] of this
	// adapter, without registration. An SGE with this token may name any part of the memory of one
	// mapping that is open when the request is posted. Peers cannot use the token. Only trusted code
	// may have it.
	//
	// Errors: [NotSupported]; the token is 0 then.
	// Source: NdkGetPrivilegedMemoryRegionToken.
	PrivilegedToken() (Token, error)

	// Close releases the handle. Objects created from it stay usable until they are closed
	// themselves. The adapter is released with the last of them.
	Close() error
}

// EndpointConfig has the queues and limits of an endpoint.
type EndpointConfig struct {
	// Receive and Initiator are the completion queues for the results of receives and of initiator
	// requests. Both are required. They may be the same queue, and other endpoints may use it too.
	Receive, Initiator CompletionQueue
	// SharedReceive, if not nil, replaces the endpoint's own receive queue. ReceiveDepth and
	// MaxReceiveSGE are ignored then.
	SharedReceive SharedReceiveQueue
	// Context is the EndpointContext of every [Result] of this endpoint.
	Context uint64

	// ReceiveDepth and InitiatorDepth limit the outstanding requests of the two queues.
	// MaxReceiveSGE and MaxInitiatorSGE limit the entries of one request. 0 means the provider's
	// default, which is at least 1 and within the adapter's limits. softnd's defaults are 64
	// requests per queue, and 4 entries.
	ReceiveDepth, InitiatorDepth   int
	MaxReceiveSGE, MaxInitiatorSGE int

	// InlineSize limits the bytes of a request posted with [Inline]. With 0, only empty requests
	// can have [Inline].
	InlineSize int
}

// SharedReceiveQueueConfig has the limits of a shared receive queue.
type SharedReceiveQueueConfig struct {
	// Depth limits the outstanding receives, MaxSGE the entries of one. 0 means the provider's
	// default. softnd's defaults are 64 receives and 4 entries.
	Depth, MaxSGE int
	// Threshold is the number of outstanding receives below which Notify returns, at most Depth.
	// With 0 it never does.
	Threshold int
}
