package nd

import (
	"strconv"

	"github.com/softnd/softnd/nd/internal/flagnames"
)

// OpFlags are the flags of a request. The numbers up to 0x20 are those of version 2 of NetworkDirect.
// The other flags are not in version 2, and have numbers that version 2 does not use.
// Source: ND_OP_FLAG_*.
type OpFlags uint32

const (
	// SilentSuccess is for every initiator request. If the request succeeds, it has no result and
	// raises no event. A failed or flushed request has a result as usual.
	SilentSuccess OpFlags = 0x1
	// ReadFence is for every initiator request. It delays the request until the data of every earlier
	// Read of this endpoint has arrived.
	ReadFence OpFlags = 0x2
	// SendAndSolicitEvent is for Send, SendAndInvalidate, SendImmediate and WriteImmediate. The result of the peer's
	// Receive then ends a Notify of type [NotifySolicited].
	SendAndSolicitEvent OpFlags = 0x4
	// AllowRead is for Bind. It allows peers to read through the window.
	AllowRead OpFlags = 0x8
	// AllowWrite is for Bind. It allows peers to write through the window. The region must have
	// [AllowLocalWrite].
	AllowWrite OpFlags = 0x10
	// Inline is for Sends and Writes of each kind; see also [SendInline]. The post copies the
	// bytes of the buffers, so the program may change the buffers when the post has returned. The
	// buffers may be any memory, and their tokens are ignored. [EndpointConfig].InlineSize limits the
	// number of bytes; MaxInitiatorSGE does not limit the number of entries.
	Inline OpFlags = 0x20

	// ReadLocalInvalidate is for Read. A successful Read then also ends the registration of the
	// region that belongs to its first entry with bytes, as [Endpoint.InvalidateRegion] does. The
	// registration has ended when the result is in the completion queue.
	//
	// The region must be fast-registered on this endpoint, and no window may be bound to it. If not,
	// the Read fails with [InvalidDeviceRequest] and copies nothing. If the Read fails for any reason,
	// it is undefined whether the registration has ended. The flag has no effect unless the adapter
	// has [ReadLocalInvalidateSupported]. Its number is that of NDK.
	// Source: NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE.
	ReadLocalInvalidate OpFlags = 0x100
	// Defer is for every initiator request. It allows the provider to delay the request until a
	// request without Defer is posted, a post fails, or [Endpoint].WaitSlot waits. It is a hint: the
	// provider may run the request earlier. Its number is that of NDK. Source: NDK_OP_FLAG_DEFER.
	Defer OpFlags = 0x200
	// ThisEndpointOnly is for Bind. Only the peer of the endpoint on which the window is bound can
	// then use the window; on other connections the token is invalid. Without the flag, every
	// connected peer that has the token may use the window. RDMA hardware that follows version 2
	// always behaves as if the flag were set. A program that is also meant for such hardware sets
	// the flag. Its number is this package's own.
	// Source: none.
	ThisEndpointOnly OpFlags = 0x10000
	// AllowAtomic is for Bind, with an adapter that has [AtomicsSupported]. It allows peers to change memory of the
	// window by FetchAndAdd, CompareAndSwap and Swap. The region must have [AllowLocalWrite]. Its number is this
	// package's own. Source: IBV_ACCESS_REMOTE_ATOMIC of verbs.
	AllowAtomic OpFlags = 0x20000
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
	{Bits: uint32(AllowAtomic), Name: "AllowAtomic"},
}

// Has reports whether every flag of want is set.
func (f OpFlags) Has(want OpFlags) bool { return f&want == want }

// String lists the flags by name, joined by "|". Bits without a name appear as one hex number.
func (f OpFlags) String() string { return flagnames.Join(uint32(f), opFlagNames) }

// RegionFlags are the rights of a registration, and the placement of its memory. A Send or Write of this process needs no right to
// read its buffers. The numbers of version 2 and of NDK are the same. Source: ND_MR_FLAG_*.
//
// HugePages, Prefault and [OnNode] are wishes. If the machine cannot fulfil one, the call succeeds all the same, and
// [MemoryRegion].Placement lacks the flag. With RequirePlacement, the call fails instead. Only adapters with
// [PlacementSupported] accept these four.
type RegionFlags uint32

const (
	// AllowLocalWrite allows Receives and Reads of this process to store data in the region. A Bind
	// with [AllowWrite] needs it too.
	AllowLocalWrite RegionFlags = 0x1
	// AllowRemoteRead allows peers to read the region with the region's own remote token.
	AllowRemoteRead RegionFlags = 0x2
	// AllowRemoteWrite allows peers to write to the region with the region's own remote token. It has
	// two bits, 0x4 and that of AllowLocalWrite: test it with [RegionFlags.RemoteWrite].
	AllowRemoteWrite RegionFlags = 0x5
	// RDMAReadSink allows Reads of this process to store data in the region. Adapters with
	// [ReadSinkNotRequired] do not need this flag, and ignore it.
	RDMAReadSink RegionFlags = 0x8
	// AllowRemoteAtomic allows peers to change the region by FetchAndAdd, CompareAndSwap and Swap with the region's own
	// remote token. It has two bits, 0x10000 and that of AllowLocalWrite: test it with [RegionFlags.RemoteAtomic]. Only
	// adapters with [AtomicsSupported] accept it. Its number is this package's own. Source: IBV_ACCESS_REMOTE_ATOMIC of verbs.
	AllowRemoteAtomic RegionFlags = 0x10001
	// HugePages is for [Adapter].Allocate. The memory is in huge pages, and takes up whole ones. Source: IBV_ACCESS_HUGETLB of
	// verbs.
	HugePages RegionFlags = 0x20000
	// Prefault fills the page tables of this process, so that its first access of each page takes no page fault. Peers have page
	// tables of their own. On memory that the program has never used, the flag makes the kernel provide all pages. Source:
	// MADV_POPULATE_WRITE of Linux.
	Prefault RegionFlags = 0x40000
	// RequirePlacement makes the call fail with [NotSupported] if it cannot fulfil HugePages, Prefault or [OnNode]. The error says
	// why. Source: none.
	RequirePlacement RegionFlags = 0x80000
	// DoNotSecureVM has a meaning on Windows only. It is accepted and ignored.
	DoNotSecureVM RegionFlags = 0x80000000
)

// Bits 20 to 29 of RegionFlags have the number of a NUMA node plus one.
const (
	nodeShift = 20
	lastNode  = 0x3fe
	nodeMask  = 0x3ff << nodeShift
)

// OnNode returns the flag for memory of a NUMA node, for [Adapter].Allocate. Without it, the memory is of the node of the calling
// thread's processor, unless that has too little. The kernel may move pages later. No machine has nodes
// with other numbers than 0 to 1021.
func OnNode(node int) RegionFlags { return RegionFlags(min(uint(node), lastNode)+1) << nodeShift }

// Node returns the node of [OnNode]. ok is false if f has none.
func (f RegionFlags) Node() (node int, ok bool) {
	n := int(f & nodeMask >> nodeShift)
	return n - 1, n != 0
}

// AllRegionFlags has all bits of the model that Register accepts; an adapter with [AtomicsSupported] also accepts [AllowRemoteAtomic].
const AllRegionFlags = AllowLocalWrite | AllowRemoteRead | AllowRemoteWrite | RDMAReadSink | DoNotSecureVM

var regionFlagNames = []flagnames.Name{
	{Bits: uint32(AllowRemoteWrite), Name: "AllowRemoteWrite"},
	{Bits: uint32(AllowRemoteAtomic), Name: "AllowRemoteAtomic"},
	{Bits: uint32(AllowLocalWrite), Name: "AllowLocalWrite"},
	{Bits: uint32(AllowRemoteRead), Name: "AllowRemoteRead"},
	{Bits: uint32(RDMAReadSink), Name: "RDMAReadSink"},
	{Bits: uint32(HugePages), Name: "HugePages"},
	{Bits: uint32(Prefault), Name: "Prefault"},
	{Bits: uint32(RequirePlacement), Name: "RequirePlacement"},
	{Bits: uint32(DoNotSecureVM), Name: "DoNotSecureVM"},
}

// LocalWrite reports whether requests of this process may write to the region.
func (f RegionFlags) LocalWrite() bool { return f&AllowLocalWrite != 0 }

// RemoteRead reports whether peers may read with the region's own remote token.
func (f RegionFlags) RemoteRead() bool { return f&AllowRemoteRead != 0 }

// RemoteWrite reports whether peers may write with the region's own remote token. It checks bit 0x4
// alone, because the other bit of [AllowRemoteWrite] is [AllowLocalWrite].
func (f RegionFlags) RemoteWrite() bool { return f&0x4 != 0 }

// RemoteAtomic reports whether peers may change the memory atomically with the region's own remote token. It checks bit
// 0x10000 alone, because the other bit of [AllowRemoteAtomic] is [AllowLocalWrite].
func (f RegionFlags) RemoteAtomic() bool { return f&0x10000 != 0 }

// Has reports whether every flag of want is set.
func (f RegionFlags) Has(want RegionFlags) bool { return f&want == want }

// String lists the flags by name, joined by "|".
func (f RegionFlags) String() string {
	names := flagnames.Join(uint32(f&^nodeMask), regionFlagNames)
	node, ok := f.Node()
	switch onNode := "OnNode(" + strconv.Itoa(node) + ")"; {
	case !ok:
		return names
	case f&^nodeMask == 0:
		return onNode
	default:
		return names + "|" + onNode
	}
}

// NotifyType selects the results that end a [CompletionQueue.Notify]. The numbers are the same in
// all versions of the model. Source: ND_CQ_*.
type NotifyType uint32

const (
	// NotifyErrors selects the results of failed and flushed requests.
	NotifyErrors NotifyType = 0
	// NotifyAny selects every result.
	NotifyAny NotifyType = 1
	// NotifySolicited selects the results of NotifyErrors, and those of receives whose message was
	// sent with [SendAndSolicitEvent].
	NotifySolicited NotifyType = 2
)

// Combine returns the wider of the types t and u. NotifyAny is the widest type, NotifyErrors the
// narrowest.
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
