package nd

import (
	"strconv"

	"github.com/softnd/softnd/nd/internal/flagnames"
)

// OpFlags modify one work request. The numbers up to 0x20 are those of version 2 of the model;
// the rest have no number there and use bits that version 2 leaves free. Source: ND_OP_FLAG_*.
type OpFlags uint32

const (
	// SilentSuccess: success leaves no entry in the completion queue and raises no event; a
	// failed or flushed request is reported as usual. Every initiator request.
	SilentSuccess OpFlags = 0x1
	// ReadFence: the request starts only when the data of every earlier Read of this endpoint
	// has arrived. Every initiator request.
	ReadFence OpFlags = 0x2
	// SendAndSolicitEvent: the peer's receive completion satisfies [NotifySolicited]. Send and
	// SendAndInvalidate.
	SendAndSolicitEvent OpFlags = 0x4
	// AllowRead: peers may read through the window. Bind.
	AllowRead OpFlags = 0x8
	// AllowWrite: peers may write through the window; its region needs [AllowLocalWrite]. Bind.
	AllowWrite OpFlags = 0x10
	// Inline: the bytes are taken during the call. Tokens are ignored, any memory will do, the
	// limit is the endpoint's inline size instead of its number of entries, and the buffers are
	// the caller's again at return. Send, SendAndInvalidate, Write.
	Inline OpFlags = 0x20

	// ReadLocalInvalidate: a successful Read also invalidates the token of its first entry that
	// has bytes: it ends that region's registration as [Endpoint.InvalidateRegion] does, before
	// the result is seen. The region must be fast-registered on this endpoint, with no window
	// bound to it; else the Read fails with [InvalidDeviceRequest] and moves nothing: no request
	// ends a plain registration. After a failed Read the state of the token is undefined. Ignored
	// unless the adapter shows [ReadLocalInvalidateSupported]. Read. The number is NDK's.
	// Source: NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE.
	ReadLocalInvalidate OpFlags = 0x100
	// Defer: the request may wait until one without Defer follows. A hint; completions are owed
	// all the same. A post that fails pushes out what was deferred before it, so a chain ends
	// with a request without Defer or with an error. Every initiator request. The number is NDK's.
	// Source: NDK_OP_FLAG_DEFER.
	Defer OpFlags = 0x200
	// ThisEndpointOnly: the window can be used only over the connection that it was bound on;
	// other connections get the fault of an invalid token. Without it any connected peer that
	// holds the token may use the window. RDMA hardware that follows version 2 always behaves
	// as if it were set, so programs meant for such hardware set it. Bind. The number is softnd's.
	// Source: none, softnd's own.
	ThisEndpointOnly OpFlags = 0x10000
)

// everyRequest holds the flags that any initiator request takes.
const everyRequest = SilentSuccess | ReadFence | Defer

var opFlagNames = []flagnames.Name{
	{Bits: uint32(SilentSuccess), Name: "SilentSuccess"},
	{Bits: uint32(ReadFence), Name: "ReadFence"},
	{Bits: uint32(SendAndSolicitEvent), Name: "SendAndSolicitEvent"},
	{Bits: uint32(AllowRead), Name: "AllowRead"},
	{Bits: uint32(AllowWrite), Name: "AllowWrite"},
	{Bits: uint32(Inline), Name: "Inline"},
	{Bits: uint32(ReadLocalInvalidate), Name: "ReadLocalInvalidate"},
	{Bits: uint32(Defer), Name: "Defer"},
	{Bits: uint32(ThisEndpointOnly), Name: "ThisEndpointOnly"},
}

// Has reports whether every flag of want is set.
func (f OpFlags) Has(want OpFlags) bool { return f&want == want }

// String lists the flags by name, joined by "|"; bits without a name appear as one hex number.
func (f OpFlags) String() string { return flagnames.Join(uint32(f), opFlagNames) }

// RegionFlags are the rights that a registration grants. Use as the source of a Send or Write
// needs none of them. Both flavours of the model share these numbers. Source: ND_MR_FLAG_*.
type RegionFlags uint32

const (
	// AllowLocalWrite: the region may take received messages and the data of Reads, and windows
	// over it may be bound with [AllowWrite].
	AllowLocalWrite RegionFlags = 0x1
	// AllowRemoteRead: peers may Read with the region's own remote token.
	AllowRemoteRead RegionFlags = 0x2
	// AllowRemoteWrite: peers may Write with the region's own remote token. Two bits, 0x4 and
	// AllowLocalWrite: test with [RegionFlags.RemoteWrite].
	AllowRemoteWrite RegionFlags = 0x5
	// RDMAReadSink: the region may take the data of Reads on adapters that want to be told so.
	// Harmless everywhere else.
	RDMAReadSink RegionFlags = 0x8
	// DoNotSecureVM has a meaning on Windows only; it is accepted and ignored.
	DoNotSecureVM RegionFlags = 0x80000000
)

// AllRegionFlags holds every bit with a meaning; Register refuses others.
const AllRegionFlags = AllowLocalWrite | AllowRemoteRead | AllowRemoteWrite | RDMAReadSink | DoNotSecureVM

var regionFlagNames = []flagnames.Name{
	{Bits: uint32(AllowRemoteWrite), Name: "AllowRemoteWrite"},
	{Bits: uint32(AllowLocalWrite), Name: "AllowLocalWrite"},
	{Bits: uint32(AllowRemoteRead), Name: "AllowRemoteRead"},
	{Bits: uint32(RDMAReadSink), Name: "RDMAReadSink"},
	{Bits: uint32(DoNotSecureVM), Name: "DoNotSecureVM"},
}

// LocalWrite reports whether the owner's requests may store into the region.
func (f RegionFlags) LocalWrite() bool { return f&AllowLocalWrite != 0 }

// RemoteRead reports whether peers may Read with the region's token.
func (f RegionFlags) RemoteRead() bool { return f&AllowRemoteRead != 0 }

// RemoteWrite reports whether peers may Write with the region's token. It looks at bit 0x4
// alone: the other bit of [AllowRemoteWrite] is [AllowLocalWrite].
func (f RegionFlags) RemoteWrite() bool { return f&0x4 != 0 }

// String lists the flags by name, joined by "|".
func (f RegionFlags) String() string { return flagnames.Join(uint32(f), regionFlagNames) }

// NotifyType says which completions end a [CompletionQueue.Notify]. The numbers are common to
// all flavours of the model. Source: ND_CQ_*.
type NotifyType uint32

const (
	// NotifyErrors: an entry with a failed status (flushed ones included), overrun, or breakdown.
	NotifyErrors NotifyType = 0
	// NotifyAny: any new entry.
	NotifyAny NotifyType = 1
	// NotifySolicited: a receive completion of a message sent with [SendAndSolicitEvent], and
	// whatever NotifyErrors fires on.
	NotifySolicited NotifyType = 2
)

// Combine returns what a queue armed with t waits for once u is asked for as well: the wider
// of the two. NotifyAny is widest, NotifyErrors narrowest.
func (t NotifyType) Combine(u NotifyType) NotifyType {
	switch {
	case t == NotifyAny || u == NotifyAny:
		return NotifyAny
	case t == NotifySolicited || u == NotifySolicited:
		return NotifySolicited
	}
	return NotifyErrors
}

// String returns the constant's name.
func (t NotifyType) String() string {
	switch t {
	case NotifyErrors:
		return "NotifyErrors"
	case NotifyAny:
		return "NotifyAny"
	case NotifySolicited:
		return "NotifySolicited"
	}
	return "NotifyType(" + strconv.FormatUint(uint64(t), 10) + ")"
}
