package nd

import (
	"strconv"
	"strings"
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

// unknownOpFlag stands for NDK bits without a meaning; no operation accepts it.
const unknownOpFlag OpFlags = 0x80000000

var opFlagNames = []flagName{
	{uint32(SilentSuccess), "SilentSuccess"},
	{uint32(ReadFence), "ReadFence"},
	{uint32(SendAndSolicitEvent), "SendAndSolicitEvent"},
	{uint32(AllowRead), "AllowRead"},
	{uint32(AllowWrite), "AllowWrite"},
	{uint32(Inline), "Inline"},
	{uint32(ReadLocalInvalidate), "ReadLocalInvalidate"},
	{uint32(Defer), "Defer"},
	{uint32(ThisEndpointOnly), "ThisEndpointOnly"},
}

// Has reports whether every flag of want is set.
func (f OpFlags) Has(want OpFlags) bool { return f&want == want }

// String lists the flags by name, joined by "|"; bits without a name appear as one hex number.
func (f OpFlags) String() string { return flagString(uint32(f), opFlagNames) }

// NDK returns the flags in NDK's numbers. ThisEndpointOnly, which NDK lacks, is dropped.
func (f OpFlags) NDK() NDKOpFlags {
	var n NDKOpFlags
	for _, p := range opFlagPairs {
		if f.Has(p.model) {
			n |= p.ndk
		}
	}
	return n
}

// NDKOpFlags are the same modifiers in the kernel flavour's numbers. The type is separate
// because some numbers mean different things: 0x10 and 0x20 of [OpFlags] are not NDK's.
// Source: NDK_OP_FLAG_*.
type NDKOpFlags uint32

const (
	NDKSilentSuccess       NDKOpFlags = 0x1
	NDKReadFence           NDKOpFlags = 0x2
	NDKSendAndSolicitEvent NDKOpFlags = 0x4
	NDKAllowRemoteRead     NDKOpFlags = 0x8
	NDKAllowLocalWrite     NDKOpFlags = 0x10 // FastRegister only
	NDKAllowRemoteWrite    NDKOpFlags = 0x30 // bit 0x20 together with NDKAllowLocalWrite
	NDKInline              NDKOpFlags = 0x40
	NDKReadSink            NDKOpFlags = 0x80  // FastRegister only. Source: NDK_OP_FLAG_RDMA_READ_SINK.
	NDKReadLocalInvalidate NDKOpFlags = 0x100 // Source: NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE.
	NDKDefer               NDKOpFlags = 0x200
)

// ndkRemoteWriteBit is what NDKAllowRemoteWrite adds to NDKAllowLocalWrite.
const ndkRemoteWriteBit NDKOpFlags = 0x20

// ndkKnown holds every NDK bit that has a meaning.
const ndkKnown = NDKSilentSuccess | NDKReadFence | NDKSendAndSolicitEvent | NDKAllowRemoteRead |
	NDKAllowRemoteWrite | NDKInline | NDKReadSink | NDKReadLocalInvalidate | NDKDefer

// opFlagPairs gives both numbers of each modifier that has two.
var opFlagPairs = []struct {
	model OpFlags
	ndk   NDKOpFlags
}{
	{SilentSuccess, NDKSilentSuccess},
	{ReadFence, NDKReadFence},
	{SendAndSolicitEvent, NDKSendAndSolicitEvent},
	{AllowRead, NDKAllowRemoteRead},
	{AllowWrite, NDKAllowRemoteWrite},
	{Inline, NDKInline},
	{ReadLocalInvalidate, NDKReadLocalInvalidate},
	{Defer, NDKDefer},
}

var ndkOpFlagNames = []flagName{
	{uint32(NDKSilentSuccess), "NDKSilentSuccess"},
	{uint32(NDKReadFence), "NDKReadFence"},
	{uint32(NDKSendAndSolicitEvent), "NDKSendAndSolicitEvent"},
	{uint32(NDKAllowRemoteRead), "NDKAllowRemoteRead"},
	{uint32(NDKAllowRemoteWrite), "NDKAllowRemoteWrite"},
	{uint32(NDKAllowLocalWrite), "NDKAllowLocalWrite"},
	{uint32(NDKInline), "NDKInline"},
	{uint32(NDKReadSink), "NDKReadSink"},
	{uint32(NDKReadLocalInvalidate), "NDKReadLocalInvalidate"},
	{uint32(NDKDefer), "NDKDefer"},
}

// OpFlags returns the flags in the numbers of this package. The rights that only FastRegister
// takes are left to [NDKOpFlags.RegionFlags]. Bits that mean nothing in NDK come out as
// 0x80000000, which every operation refuses.
func (f NDKOpFlags) OpFlags() OpFlags {
	var m OpFlags
	for _, p := range opFlagPairs {
		bit := p.ndk
		if p.model == AllowWrite {
			bit = ndkRemoteWriteBit // its other half alone is a right of FastRegister
		}
		if f&bit != 0 {
			m |= p.model
		}
	}
	if f&^ndkKnown != 0 {
		m |= unknownOpFlag
	}
	return m
}

// RegionFlags returns the rights in f as [Endpoint.FastRegister] takes them.
func (f NDKOpFlags) RegionFlags() RegionFlags {
	var r RegionFlags
	if f&NDKAllowLocalWrite != 0 {
		r |= AllowLocalWrite
	}
	if f&NDKAllowRemoteRead != 0 {
		r |= AllowRemoteRead
	}
	if f&ndkRemoteWriteBit != 0 {
		r |= AllowRemoteWrite
	}
	if f&NDKReadSink != 0 {
		r |= RDMAReadSink
	}
	return r
}

// String lists the flags by name, joined by "|".
func (f NDKOpFlags) String() string { return flagString(uint32(f), ndkOpFlagNames) }

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

var regionFlagNames = []flagName{
	{uint32(AllowRemoteWrite), "AllowRemoteWrite"},
	{uint32(AllowLocalWrite), "AllowLocalWrite"},
	{uint32(AllowRemoteRead), "AllowRemoteRead"},
	{uint32(RDMAReadSink), "RDMAReadSink"},
	{uint32(DoNotSecureVM), "DoNotSecureVM"},
}

// LocalWrite reports whether the owner's requests may store into the region.
func (f RegionFlags) LocalWrite() bool { return f&AllowLocalWrite != 0 }

// RemoteRead reports whether peers may Read with the region's token.
func (f RegionFlags) RemoteRead() bool { return f&AllowRemoteRead != 0 }

// RemoteWrite reports whether peers may Write with the region's token. It looks at bit 0x4
// alone: the other bit of [AllowRemoteWrite] is [AllowLocalWrite].
func (f RegionFlags) RemoteWrite() bool { return f&0x4 != 0 }

// String lists the flags by name, joined by "|".
func (f RegionFlags) String() string { return flagString(uint32(f), regionFlagNames) }

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

type flagName struct {
	bits uint32
	name string
}

// flagString names the bits of v; a composite must stand before its parts in names.
func flagString(v uint32, names []flagName) string {
	if v == 0 {
		return "0"
	}
	var out []string
	for _, n := range names {
		if v&n.bits == n.bits {
			out = append(out, n.name)
			v &^= n.bits
		}
	}
	if v != 0 {
		out = append(out, "0x"+strconv.FormatUint(uint64(v), 16))
	}
	return strings.Join(out, "|")
}
