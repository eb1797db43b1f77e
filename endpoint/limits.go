package endpoint

import (
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/nd"
)

// Limits of the adapter; see adapter.Query.
const (
	maxRegistration   = 64 << 30
	maxTransfer       = 1 << 30
	maxSGE            = 16
	minSGE            = 4 // granted if fewer are requested, see adapterLimits
	maxQueueDepth     = 4096
	maxSharedDepth    = 4096
	defaultQueueDepth = 64
	maxCQDepth        = 65536
	maxReads          = 128
	maxInterHost      = 2048 // connections that the relay of a host carries
	maxInline         = 1024
	// inlineThreshold is reported to programs: up to four cache lines, the second copy costs no
	// more than the check of the source's token that it saves.
	inlineThreshold = 256
)

// noReads says why a Read or an atomic is refused.
const noReads = "the connection was made with an outbound read limit of 0: pass OutboundReadLimit, and the peer InboundReadLimit, in ConnectParams"

// adapterLimits are the limits in which a small card differs from a large one.
type adapterLimits struct {
	sge         int
	leastSGE    int // granted even if fewer are requested
	inline      int
	queueDepth  int
	sharedDepth int
	cqDepth     int
	reads       int
	privateData int // of Connect, Accept and Reject
	flags       nd.AdapterFlags
}

// largeLimits has the limits of softnd, smallLimits those with a weak order: little hardware has less.
var (
	largeLimits = adapterLimits{
		sge: maxSGE, leastSGE: minSGE, inline: maxInline, queueDepth: maxQueueDepth,
		sharedDepth: maxSharedDepth, cqDepth: maxCQDepth, reads: maxReads, privateData: wire.MaxPrivateData,
		flags: adapterFlags,
	}
	smallLimits = adapterLimits{
		sge: 4, leastSGE: 1, inline: 96, queueDepth: 256,
		sharedDepth: 256, cqDepth: 4096, reads: 16, privateData: 56,
		flags: adapterFlags &^ nd.InOrderDMASupported,
	}
)

// smallTransfer is the number of bytes up to which a request runs within the post. Polls and the
// progress engine run longer requests, in chunks.
const smallTransfer = 64 << 10

const adapterFlags = nd.InOrderDMASupported | nd.ReadSinkNotRequired | nd.MultiEngineSupported | nd.LoopbackConnectionsSupported | nd.AtomicsSupported |
	nd.ImmediateSupported | nd.PlacementSupported | nd.CQResizeSupported | nd.InterruptModerationSupported | nd.ReadLocalInvalidateSupported

// The flags of regions: those of fast registrations, of other registrations, and of Allocate.
const (
	regionFlags   = nd.AllRegionFlags | nd.AllowRemoteAtomic
	registerFlags = regionFlags | nd.Prefault | nd.RequirePlacement
	allocateFlags = registerFlags | nd.HugePages
)
