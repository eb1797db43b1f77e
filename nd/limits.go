package nd

import (
	"strconv"

	"github.com/softnd/softnd/nd/internal/flagnames"
)

// AdapterID identifies an adapter. Each adapter of a host has a different one.
type AdapterID uint64

// String prints the id as 16 hex digits.
func (id AdapterID) String() string {
	s := strconv.FormatUint(uint64(id), 16)
	return "0x" + "0000000000000000"[:16-len(s)] + s
}

// Versions of [AdapterInfo] that [Adapter.Query] accepts. Both have the same fields.
// NetworkDirect's documentation uses the first; existing programs use the second.
const (
	InfoVersion1 uint32 = 1
	InfoVersion2 uint32 = 0x20000
)

// Port 0 in a Bind asks for a free port of this range. The ports belong to the provider and are
// independent of the host's TCP ports.
const (
	EphemeralPortFirst = 49152
	EphemeralPortLast  = 65535
)

// AdapterInfo has the limits of an adapter. Sizes and lengths are in bytes, depths are numbers of
// outstanding requests, and SGE limits are entries per request. A value equal to a limit is allowed.
// Source: ND2_ADAPTER_INFO.
type AdapterInfo struct {
	InfoVersion uint32 // as asked for in Query
	VendorID    uint16 // 0 where no vendor exists
	DeviceID    uint16
	AdapterID   AdapterID

	MaxRegistrationSize uint64 // one registration
	MaxWindowSize       uint64 // one window

	MaxInitiatorSGE uint32 // Send and Write
	MaxReceiveSGE   uint32 // Receive; programs expect it to equal MaxInitiatorSGE
	MaxReadSGE      uint32 // Read; MaxInitiatorSGE at most

	MaxTransferLength uint32 // all entries of one request together
	MaxInlineDataSize uint32 // one request posted with [Inline]

	MaxInboundReadLimit  uint32 // Reads that peers may have in progress, per endpoint
	MaxOutboundReadLimit uint32 // Reads in progress, per endpoint; more are queued, not refused

	MaxReceiveQueueDepth       uint32 // per endpoint
	MaxInitiatorQueueDepth     uint32 // per endpoint
	MaxSharedReceiveQueueDepth uint32 // 0: there are no shared receive queues
	MaxCompletionQueueDepth    uint32 // entries

	InlineRequestThreshold uint32 // up to here Inline is expected to be faster
	LargeRequestThreshold  uint32 // from here Read and Write are expected to beat Send

	MaxCallerData uint32 // private data of Connect
	MaxCalleeData uint32 // private data of Accept and Reject

	AdapterFlags AdapterFlags
}

// AdapterFlags are the capabilities of an adapter. Source: ND_ADAPTER_FLAG_*.
type AdapterFlags uint32

const (
	// InOrderDMASupported means that the last byte of a transfer is never visible before an earlier
	// byte of it, so a program may poll memory for the last byte.
	InOrderDMASupported AdapterFlags = 0x1
	// ReadSinkNotRequired means that the data of Reads can be placed in regions registered without
	// [RDMAReadSink]. NDK only.
	// Source: NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED.
	ReadSinkNotRequired AdapterFlags = 0x2
	// InterruptModerationSupported means that completion queues implement [InterruptModerator].
	// Source: ND_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED.
	InterruptModerationSupported AdapterFlags = 0x4
	// MultiEngineSupported means that several connections make progress at the same time.
	MultiEngineSupported AdapterFlags = 0x8
	// ReadLocalInvalidateSupported means that [ReadLocalInvalidate] takes effect. NDK only.
	// Source: NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED.
	ReadLocalInvalidateSupported AdapterFlags = 0x10
	// CQResizeSupported means that [CompletionQueue.Resize] works.
	CQResizeSupported AdapterFlags = 0x100
	// LoopbackConnectionsSupported means that an address of the adapter can be connected with itself.
	LoopbackConnectionsSupported AdapterFlags = 0x10000
)

var adapterFlagNames = []flagnames.Name{
	{Bits: uint32(InOrderDMASupported), Name: "InOrderDMASupported"},
	{Bits: uint32(ReadSinkNotRequired), Name: "ReadSinkNotRequired"},
	{Bits: uint32(InterruptModerationSupported), Name: "InterruptModerationSupported"},
	{Bits: uint32(MultiEngineSupported), Name: "MultiEngineSupported"},
	{Bits: uint32(ReadLocalInvalidateSupported), Name: "ReadLocalInvalidateSupported"},
	{Bits: uint32(CQResizeSupported), Name: "CQResizeSupported"},
	{Bits: uint32(LoopbackConnectionsSupported), Name: "LoopbackConnectionsSupported"},
}

// Has reports whether every flag of want is set.
func (f AdapterFlags) Has(want AdapterFlags) bool { return f&want == want }

// String lists the flags by name, joined by "|".
func (f AdapterFlags) String() string { return flagnames.Join(uint32(f), adapterFlagNames) }
