package nd

import (
	"strconv"

	"github.com/softnd/softnd/nd/internal/flagnames"
)

// OpFlags are the flags of a work request. The numbers up to 0x20 are those of version 2 of the
// model. The others have no number there, and use bits that version 2 does not use.
// Source: ND_OP_FLAG_*.
type OpFlags uint32

const (
	// SilentSuccess suppresses the result and the event of a success. A failed or flushed request
	// is reported as usual. For every initiator request.
	SilentSuccess OpFlags = 0x1
	// ReadFence delays the request until the data of every earlier Read of this endpoint has
	// arrived. For every initiator request.
	ReadFence OpFlags = 0x2
	// SendAndSolicitEvent makes the result of the peer's Receive satisfy [NotifySolicited]. For
	// Send and SendAndInvalidate.
	SendAndSolicitEvent OpFlags = 0x4
	// AllowRead lets peers read through the window. For Bind.
	AllowRead OpFlags = 0x8
	// AllowWrite lets peers write through the window. Its region needs [AllowLocalWrite]. For Bind.
	AllowWrite OpFlags = 0x10
	// Inline copies the bytes during the call: the caller may change the buffers when it returns.
	// They can be any memory, and tokens are ignored. InlineSize limits the bytes;
	// MaxInitiatorSGE does not apply. For Send, SendAndInvalidate and Write; see [SendInline].
	Inline OpFlags = 0x20

	// ReadLocalInvalidate makes a successful Read invalidate the token of its first entry that has
	// bytes. It ends that region's registration as [Endpoint.InvalidateRegion] does, before the
	// result is visible. The region must be fast-registered on this endpoint, with no window bound
	// to it. Otherwise the Read fails with [InvalidDeviceRequest] and moves nothing. No request can
	// end a plain registration. After a failed Read the state of the token is undefined. The flag
	// is ignored unless the adapter has [ReadLocalInvalidateSupported]. For Read. The number is
	// NDK's.
	// Source: NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE.
	ReadLocalInvalidate OpFlags = 0x100
	// Defer allows the provider to delay the request until one without Defer follows. It is a hint:
	// the request runs in any case. A failed post also starts the deferred requests. So a chain
	// ends with a request without Defer, or with a failed post. For every initiator request. The
	// number is NDK's. Source: NDK_OP_FLAG_DEFER.
	Defer OpFlags = 0x200
	// ThisEndpointOnly limits the use of the window to the connection that it was bound on; on
	// other connections its token is invalid. Without the flag, every connected peer that has the
	// token may use the window. RDMA hardware that follows version 2 always behaves as if the flag
	// were set, so programs for such hardware set it. For Bind. The number is softnd's.
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

// RegionFlags are the rights of a registration. The source of a Send or Write needs none of them.
// The numbers are the same in version 2 and in NDK. Source: ND_MR_FLAG_*.
type RegionFlags uint32

const (
	// AllowLocalWrite lets messages and the data of Reads be placed in the region, and windows over
	// it be bound with [AllowWrite].
	AllowLocalWrite RegionFlags = 0x1
	// AllowRemoteRead lets peers Read with the region's own remote token.
	AllowRemoteRead RegionFlags = 0x2
	// AllowRemoteWrite lets peers Write with the region's own remote token. It has two bits, 0x4
	// and that of AllowLocalWrite: test it with [RegionFlags.RemoteWrite].
	AllowRemoteWrite RegionFlags = 0x5
	// RDMAReadSink lets the data of Reads be placed in the region, on adapters that require this
	// flag. Other adapters ignore it.
	RDMAReadSink RegionFlags = 0x8
	// DoNotSecureVM has a meaning on Windows only. It is accepted and ignored.
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

// LocalWrite reports whether the owner's requests may write to the region.
func (f RegionFlags) LocalWrite() bool { return f&AllowLocalWrite != 0 }

// RemoteRead reports whether peers may Read with the region's token.
func (f RegionFlags) RemoteRead() bool { return f&AllowRemoteRead != 0 }

// RemoteWrite reports whether peers may Write with the region's token. It checks bit 0x4 alone,
// because the other bit of [AllowRemoteWrite] is [AllowLocalWrite].
func (f RegionFlags) RemoteWrite() bool { return f&0x4 != 0 }

// String lists the flags by name, joined by "|".
func (f RegionFlags) String() string { return flagnames.Join(uint32(f), regionFlagNames) }

// NotifyType selects the entries that end a [CompletionQueue.Notify]. The numbers are the same in
// all versions of the model. Source: ND_CQ_*.
type NotifyType uint32

const (
	// NotifyErrors selects entries with a failed status, flushed ones included. An overrun or
	// another failure of the queue ends every Notify.
	NotifyErrors NotifyType = 0
	// NotifyAny selects every entry.
	NotifyAny NotifyType = 1
	// NotifySolicited selects the entries of NotifyErrors, and those of receives whose message was
	// sent with [SendAndSolicitEvent].
	NotifySolicited NotifyType = 2
)

// Combine returns the type for which a queue waits when one call asks for t and another for u: the
// wider of the two. NotifyAny is widest, NotifyErrors narrowest.
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
