package nd

import (
	"context"
	"net/netip"
)

// Provider is the entry point of the model. It lists local addresses, and opens the adapters that
// have these addresses.
// Source: NetworkDirect IND2Provider.
type Provider interface {
	// QueryAddressList returns every local address of this provider. There may be none. The caller
	// may keep and change the list. The next call may return a different list.
	// Source: IND2Provider::QueryAddressList.
	QueryAddressList() ([]netip.Addr, error)

	// ResolveAddress returns the ID of the adapter that has the address local. An adapter may
	// have several addresses.
	//
	// Errors: [InvalidAddress] if local is not an address of this provider.
	// Source: IND2Provider::ResolveAddress.
	ResolveAddress(local netip.Addr) (AdapterID, error)

	// OpenAdapter opens an adapter. Each call returns a new handle.
	//
	// Errors: [InvalidParameter] for an unknown id; [NoMemory]; [InsufficientResources];
	// [DeviceRemoved]; [Canceled].
	// Source: IND2Provider::OpenAdapter, INDProvider::OpenAdapter.
	OpenAdapter(ctx context.Context, id AdapterID) (Adapter, error)

	// Close ends the use of the provider. Close all adapters before the provider. If an adapter is
	// still open, the effect depends on the provider. Either the open adapters stay usable until they
	// are closed, or the provider ends them and their objects at once. In the second case it aborts
	// connections, and calls that block fail with [Canceled].
	Close() error

	extensible // implemented by embedding UnsupportedProvider
}

// Adapter creates all other objects. An object can be used only with objects of the same adapter.
// Each call that creates an object may fail with [InsufficientResources], [NoMemory],
// [DeviceRemoved] or [Canceled]. A call that fails creates nothing.
// Source: NetworkDirect IND2Adapter.
type Adapter interface {
	// Query returns the limits and capabilities of the adapter.
	// Source: IND2Adapter::Query, NdkQueryAdapterInfo.
	Query() (AdapterInfo, error)

	// QueryAddressList returns the addresses of this adapter, to which connectors and listeners can
	// be bound. Source: IND2Adapter::QueryAddressList.
	QueryAddressList() ([]netip.Addr, error)

	// CreateCompletionQueue creates a queue for at least depth results. depth is 1 to
	// MaxCompletionQueueDepth. It may be less than the sum of the depths of the initiator and receive
	// queues that use the completion queue. Only an actual overrun is an error: see [CompletionQueue].
	//
	// Errors: [InvalidParameter] for a depth out of range.
	// Source: IND2Adapter::CreateCompletionQueue, NdkCreateCq.
	CreateCompletionQueue(ctx context.Context, depth int) (CompletionQueue, error)

	// CreateMemoryRegion creates a region without memory. The next call is [MemoryRegion.Register] or
	// [MemoryRegion.InitializeFastRegister].
	// Source: IND2Adapter::CreateMemoryRegion, NdkCreateMr.
	CreateMemoryRegion(ctx context.Context) (MemoryRegion, error)

	// Register creates a region and registers buf, any memory of this process. It is
	// CreateMemoryRegion followed by [MemoryRegion.Register], and has the errors of both.
	// Source: INDAdapter::RegisterMemory.
	Register(ctx context.Context, buf []byte, flags RegionFlags) (MemoryRegion, error)

	// Allocate allocates size bytes of zeroed memory, and creates a region that has this memory
	// registered. The memory is of the kind that the provider's transfers access fastest, and begins at
	// a multiple of 64 bytes.
	// [MemoryRegion.Bytes] returns it. After Deregister the program may still use the memory, and may
	// register it again. Other regions can register parts of it, with other rights. After Close of the
	// region, the program must not access the memory, except what other regions have registered.
	//
	// Errors:
	//
	//   - [InvalidBufferSize]: size is 0.
	//   - [InvalidParameter]: size is negative, or greater than MaxRegistrationSize; or flags has an
	//     unknown bit.
	//   - [NoMemory]: the error names the limit that was reached.
	//   - [NotSupported]: the machine cannot fulfil a placement of flags, which have [RequirePlacement].
	Allocate(ctx context.Context, size int, flags RegionFlags) (MemoryRegion, error)

	// CreateMemoryWindow creates a window that is not bound.
	// Source: IND2Adapter::CreateMemoryWindow, NdkCreateMw.
	CreateMemoryWindow(ctx context.Context) (MemoryWindow, error)

	// CreateSharedReceiveQueue creates a queue of receives for several endpoints.
	//
	// Errors: [NotSupported] if MaxSharedReceiveQueueDepth is 0; [InvalidParameter] if a field of cfg is
	// out of range.
	// Source: IND2Adapter::CreateSharedReceiveQueue, NdkCreateSrq.
	CreateSharedReceiveQueue(ctx context.Context, cfg SharedReceiveQueueConfig) (SharedReceiveQueue, error)

	// CreateEndpoint creates a queue pair that is not connected. Its limits cannot change later. The
	// provider may grant higher limits than cfg asks for. It grants at least 4 entries per request, if
	// the adapter allows 4. A configuration with every limit at its maximum is valid.
	//
	// Errors: [InvalidParameter] if a field of cfg is not valid; OpError.Field names it.
	// Source: IND2Adapter::CreateQueuePair and CreateQueuePairWithSrq, NdkCreateQp,
	// NdkCreateQpWithSrq.
	CreateEndpoint(ctx context.Context, cfg EndpointConfig) (Endpoint, error)

	// CreateConnector creates a connector that has no local address yet.
	// Source: IND2Adapter::CreateConnector, NdkCreateConnector.
	CreateConnector(ctx context.Context) (Connector, error)

	// CreateListener creates a listener that has no local address yet.
	// Source: IND2Adapter::CreateListener, NdkCreateListener.
	CreateListener(ctx context.Context) (Listener, error)

	// BuildLogicalAddressMapping returns a mapping that lists the pages of buf, in addresses of the
	// adapter. [Endpoint.FastRegister] takes such pages. buf must stay valid memory until the mapping
	// is closed. Every provider with fast registration accepts memory of [Adapter.Allocate].
	// Such memory stays valid while the mapping is open, even if its region is closed.
	//
	// Errors: [NotSupported] if the provider has no fast registration; [InvalidParameter] if buf is
	// empty, or is memory that the adapter cannot address.
	// Source: NdkBuildLAM.
	BuildLogicalAddressMapping(ctx context.Context, buf []byte) (LogicalMapping, error)

	// PrivilegedToken returns a local token for memory that is mapped but not registered. The buffer
	// of an SGE with this token is any part of the memory of one [LogicalMapping] of this adapter. The
	// mapping must be open when the request is posted. Peers cannot use the token. Pass it to trusted
	// code only.
	//
	// Errors: [NotSupported]; the token is then 0.
	// Source: NdkGetPrivilegedMemoryRegionToken.
	PrivilegedToken() (Token, error)

	// Close closes this handle of the adapter, and every open object that was created with it: listeners
	// and connectors, then endpoints, windows, regions, mappings and queues, each with the effect of its own
	// Close. Other goroutines may use the objects meanwhile. When Close has returned nil, no transfer accesses
	// memory of the adapter's regions.
	//
	// Errors: [Canceled] if ctx ends first. All objects are closed even so, but the memory of a mapping in use is
	// kept. To free it, and to wait until no transfer accesses the memory, call Close again.
	Close(ctx context.Context) error

	extensible // implemented by embedding UnsupportedAdapter
}

// EndpointConfig has the queues and limits of an endpoint.
type EndpointConfig struct {
	// ReceiveCQ is the completion queue for the results of receives, and InitiatorCQ that for the results
	// of initiator requests. Both are required. They may be the same queue, and several endpoints may
	// use one queue.
	ReceiveCQ, InitiatorCQ CompletionQueue
	// SharedReceive, if not nil, replaces the endpoint's own receive queue. ReceiveDepth and
	// MaxReceiveSGE are then ignored.
	SharedReceive SharedReceiveQueue
	// Context is a number that the program chooses. It is the EndpointContext of every [Result] of
	// this endpoint.
	Context uint64

	// ReceiveDepth and InitiatorDepth limit the outstanding requests of the two queues.
	// MaxReceiveSGE and MaxInitiatorSGE limit the scatter/gather entries of one request. 0 means the
	// provider's default, which is at least 1 and within the adapter's limits.
	ReceiveDepth, InitiatorDepth   int
	MaxReceiveSGE, MaxInitiatorSGE int

	// InlineSize is the largest number of bytes of a request with [Inline]. With 0, only a request
	// without bytes can have Inline.
	InlineSize int

	// CheckPayloads makes this side's Sends, Writes and Reads carry a hash of their data. If the data changes
	// in flight, the request fails with [DataChecksumError], and so does the Receive of a Send. The peer checks
	// too, whether or not it has set the field. The program must not change a buffer before its request is
	// complete, and the checks take time. CreateEndpoint fails with [NotSupported] if the provider has none.
	CheckPayloads bool
}

// SharedReceiveQueueConfig has the limits of a shared receive queue.
type SharedReceiveQueueConfig struct {
	// Depth limits the outstanding receives. MaxSGE limits the scatter/gather entries of one receive.
	// 0 means the provider's default.
	Depth, MaxSGE int
	// Threshold is at most Depth. [SharedReceiveQueue.Notify] returns when fewer receives than
	// Threshold are outstanding. With 0, Notify never returns for that reason.
	Threshold int
}
