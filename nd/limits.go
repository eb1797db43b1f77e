package nd

import (
	"strconv"

	"github.com/softnd/softnd/nd/internal/flagnames"
)

// AdapterID identifies an adapter. Each adapter of a host has a different one.
type AdapterID uint64

// String returns the id as 0x and 16 hex digits.
func (id AdapterID) String() string {
	s := strconv.FormatUint(uint64(id), 16)
	return "0x" + "0000000000000000"[:16-len(s)] + s
}

// EphemeralPortFirst and EphemeralPortLast are the first and the last port that Bind of a [Connector]
// or [Listener] may choose for port 0. The ports belong to the provider. They are
// independent of the host's TCP ports.
const (
	EphemeralPortFirst = 49152
	EphemeralPortLast  = 65535
)

// AdapterInfo has the limits of an adapter. Sizes and lengths are in bytes, depths are numbers of
// outstanding requests, and SGE limits are entries per request. A value equal to a limit is allowed.
// Source: ND2_ADAPTER_INFO.
type AdapterInfo struct {
	VendorID  uint16 // 0 if there is no vendor
	DeviceID  uint16
	AdapterID AdapterID

	MaxRegistrationSize uint64 // of one registration
	MaxWindowSize       uint64 // of one window

	MaxInitiatorSGE uint32 // entries of a Send or Write
	MaxReceiveSGE   uint32 // entries of a Receive; programs expect it to equal MaxInitiatorSGE
	MaxReadSGE      uint32 // entries of a Read; at most MaxInitiatorSGE

	MaxTransferLength uint32 // of all entries of one request together
	MaxInlineDataSize uint32 // of one request with [Inline]

	MaxInboundReadLimit  uint32 // Reads of the peer that may be in progress, per endpoint
	MaxOutboundReadLimit uint32 // Reads of this side that may be in progress, per endpoint; further Reads wait

	MaxReceiveQueueDepth       uint32 // per endpoint
	MaxInitiatorQueueDepth     uint32 // per endpoint
	MaxSharedReceiveQueueDepth uint32 // 0 if there are no shared receive queues
	MaxCompletionQueueDepth    uint32 // in results

	InlineRequestThreshold uint32 // up to this length, a request is expected to be faster with Inline
	LargeRequestThreshold  uint32 // from this length on, Read and Write are expected to be faster than Send

	MaxCallerData uint32 // private data of Connect
	MaxCalleeData uint32 // private data of Accept and Reject

	AdapterFlags AdapterFlags

	// MaxInterHostConnections is the number of connections to other hosts that all processes of this host may have
	// together. It is 0 if no other host can be reached, as in a job on one host. The other limits are the same on these
	// connections. Requests on them complete when the peer's host has answered. Source: none.
	MaxInterHostConnections uint32
}

// AdapterFlags are the capabilities of an adapter. Source: ND_ADAPTER_FLAG_*.
type AdapterFlags uint32

const (
	// InOrderDMASupported means that the last byte of a transfer becomes visible after all its other
	// bytes. A program can therefore poll the last byte in memory to detect that all data has arrived.
	InOrderDMASupported AdapterFlags = 0x1
	// ReadSinkNotRequired means that Reads can store data in regions that were registered without
	// [RDMAReadSink]. The flag is from NDK.
	// Source: NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED.
	ReadSinkNotRequired AdapterFlags = 0x2
	// InterruptModerationSupported means that completion queues implement [InterruptModerator].
	// Source: ND_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED.
	InterruptModerationSupported AdapterFlags = 0x4
	// MultiEngineSupported means that several connections make progress at the same time.
	MultiEngineSupported AdapterFlags = 0x8
	// ReadLocalInvalidateSupported means that [ReadLocalInvalidate] has an effect. The flag is from
	// NDK.
	// Source: NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED.
	ReadLocalInvalidateSupported AdapterFlags = 0x10
	// CQResizeSupported means that [CompletionQueue.Resize] is supported.
	CQResizeSupported AdapterFlags = 0x100
	// LoopbackConnectionsSupported means that an address of the adapter can connect to itself.
	LoopbackConnectionsSupported AdapterFlags = 0x10000
	// AtomicsSupported means that FetchAndAdd, CompareAndSwap and Swap of [Endpoint] are supported. The flag and its
	// number are this package's own. Source: atomic_cap of verbs.
	AtomicsSupported AdapterFlags = 0x20000
	// ImmediateSupported means that SendImmediate and WriteImmediate of [Endpoint] are supported. The flag and its number
	// are this package's own. Source: none.
	ImmediateSupported AdapterFlags = 0x40000
	// PlacementSupported means that Allocate of [Adapter] accepts [HugePages], [Prefault], [OnNode] and [RequirePlacement], and
	// Register accepts Prefault and RequirePlacement. The flag and its number are this package's own. Source: none.
	PlacementSupported AdapterFlags = 0x80000
)

var adapterFlagNames = []flagnames.Name{
	{Bits: uint32(InOrderDMASupported), Name: "InOrderDMASupported"},
	{Bits: uint32(ReadSinkNotRequired), Name: "ReadSinkNotRequired"},
	{Bits: uint32(InterruptModerationSupported), Name: "InterruptModerationSupported"},
	{Bits: uint32(MultiEngineSupported), Name: "MultiEngineSupported"},
	{Bits: uint32(ReadLocalInvalidateSupported), Name: "ReadLocalInvalidateSupported"},
	{Bits: uint32(CQResizeSupported), Name: "CQResizeSupported"},
	{Bits: uint32(LoopbackConnectionsSupported), Name: "LoopbackConnectionsSupported"},
	{Bits: uint32(AtomicsSupported), Name: "AtomicsSupported"},
	{Bits: uint32(ImmediateSupported), Name: "ImmediateSupported"},
	{Bits: uint32(PlacementSupported), Name: "PlacementSupported"},
}

// Has reports whether every flag of want is set.
func (f AdapterFlags) Has(want AdapterFlags) bool { return f&want == want }

// String lists the flags by name, joined by "|".
func (f AdapterFlags) String() string { return flagnames.Join(uint32(f), adapterFlagNames) }
