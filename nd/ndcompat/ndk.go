package ndcompat

import (
	"strconv"
	"strings"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/internal/flagnames"
)

// NDKOpFlags are the flags of a request in NDK's numbers. They are a separate type because 0x10 and
// 0x20 are different flags in [nd.OpFlags].
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

// ndkRemoteWriteBit is the bit that NDKAllowRemoteWrite has and NDKAllowLocalWrite has not.
const ndkRemoteWriteBit NDKOpFlags = 0x20

// ndkKnown holds every NDK bit that has a meaning.
const ndkKnown = NDKSilentSuccess | NDKReadFence | NDKSendAndSolicitEvent | NDKAllowRemoteRead |
	NDKAllowRemoteWrite | NDKInline | NDKReadSink | NDKReadLocalInvalidate | NDKDefer

// unknownOpFlag is what bits without a meaning in NDK become. No request accepts it.
const unknownOpFlag nd.OpFlags = 0x80000000

// opFlagPairs gives both numbers of each flag that has two.
var opFlagPairs = []struct {
	nd  nd.OpFlags
	ndk NDKOpFlags
}{
	{nd.SilentSuccess, NDKSilentSuccess},
	{nd.ReadFence, NDKReadFence},
	{nd.SendAndSolicitEvent, NDKSendAndSolicitEvent},
	{nd.AllowRead, NDKAllowRemoteRead},
	{nd.AllowWrite, NDKAllowRemoteWrite},
	{nd.Inline, NDKInline},
	{nd.ReadLocalInvalidate, NDKReadLocalInvalidate},
	{nd.Defer, NDKDefer},
}

var ndkOpFlagNames = []flagnames.Name{
	{Bits: uint32(NDKSilentSuccess), Name: "NDKSilentSuccess"},
	{Bits: uint32(NDKReadFence), Name: "NDKReadFence"},
	{Bits: uint32(NDKSendAndSolicitEvent), Name: "NDKSendAndSolicitEvent"},
	{Bits: uint32(NDKAllowRemoteRead), Name: "NDKAllowRemoteRead"},
	{Bits: uint32(NDKAllowRemoteWrite), Name: "NDKAllowRemoteWrite"},
	{Bits: uint32(NDKAllowLocalWrite), Name: "NDKAllowLocalWrite"},
	{Bits: uint32(NDKInline), Name: "NDKInline"},
	{Bits: uint32(NDKReadSink), Name: "NDKReadSink"},
	{Bits: uint32(NDKReadLocalInvalidate), Name: "NDKReadLocalInvalidate"},
	{Bits: uint32(NDKDefer), Name: "NDKDefer"},
}

// NDKOpFlagsOf returns f in NDK's numbers, without [nd.ThisEndpointOnly], which NDK does not have.
func NDKOpFlagsOf(f nd.OpFlags) NDKOpFlags {
	var n NDKOpFlags
	for _, p := range opFlagPairs {
		if f.Has(p.nd) {
			n |= p.ndk
		}
	}
	return n
}

// OpFlags returns the flags in the numbers of package nd, without the rights of FastRegister: see
// [NDKOpFlags.RegionFlags]. If f has a bit that NDK does not define, the returned flags contain
// 0x80000000, which every request refuses.
func (f NDKOpFlags) OpFlags() nd.OpFlags {
	var m nd.OpFlags
	for _, p := range opFlagPairs {
		bit := p.ndk
		if p.nd == nd.AllowWrite {
			bit = ndkRemoteWriteBit // the other bit alone is a right of FastRegister
		}
		if f&bit != 0 {
			m |= p.nd
		}
	}
	if f&^ndkKnown != 0 {
		m |= unknownOpFlag
	}
	return m
}

// RegionFlags returns the rights in f, for the parameter rights of [nd.Endpoint.FastRegister].
func (f NDKOpFlags) RegionFlags() nd.RegionFlags {
	var r nd.RegionFlags
	if f&NDKAllowLocalWrite != 0 {
		r |= nd.AllowLocalWrite
	}
	if f&NDKAllowRemoteRead != 0 {
		r |= nd.AllowRemoteRead
	}
	if f&ndkRemoteWriteBit != 0 {
		r |= nd.AllowRemoteWrite
	}
	if f&NDKReadSink != 0 {
		r |= nd.RDMAReadSink
	}
	return r
}

// String lists the flags by name, joined by "|".
func (f NDKOpFlags) String() string { return flagnames.Join(uint32(f), ndkOpFlagNames) }

// NDKOperationType is the type of a request in NDK's numbers. Only NDKOperationReceiveAndInvalidate
// has the same number in [nd.RequestType]. 0 is never valid.
// Source: NDK_OPERATION_TYPE.
type NDKOperationType uint32

const (
	NDKOperationReceive              NDKOperationType = 1
	NDKOperationSend                 NDKOperationType = 2
	NDKOperationFastRegister         NDKOperationType = 4
	NDKOperationBind                 NDKOperationType = 8
	NDKOperationInvalidate           NDKOperationType = 16
	NDKOperationRead                 NDKOperationType = 32
	NDKOperationWrite                NDKOperationType = 64
	NDKOperationReceiveAndInvalidate NDKOperationType = 0x8001
)

// operationTypePairs gives both numbers of each type.
var operationTypePairs = []struct {
	nd  nd.RequestType
	ndk NDKOperationType
}{
	{nd.RequestReceive, NDKOperationReceive},
	{nd.RequestSend, NDKOperationSend},
	{nd.RequestBind, NDKOperationBind},
	{nd.RequestInvalidate, NDKOperationInvalidate},
	{nd.RequestRead, NDKOperationRead},
	{nd.RequestWrite, NDKOperationWrite},
	{nd.RequestReceiveAndInvalidate, NDKOperationReceiveAndInvalidate},
	{nd.RequestFastRegister, NDKOperationFastRegister},
}

// NDKOperationTypeOf returns t in NDK's numbers, and 0 if t is not a constant of package nd.
func NDKOperationTypeOf(t nd.RequestType) NDKOperationType {
	for _, p := range operationTypePairs {
		if p.nd == t {
			return p.ndk
		}
	}
	return 0
}

// RequestType returns t in the numbers of package nd, and false if t is unknown.
func (t NDKOperationType) RequestType() (nd.RequestType, bool) {
	for _, p := range operationTypePairs {
		if p.ndk == t {
			return p.nd, true
		}
	}
	return 0, false
}

// String returns the constant's name.
func (t NDKOperationType) String() string {
	if r, ok := t.RequestType(); ok {
		return "NDKOperation" + strings.TrimPrefix(r.String(), "Request")
	}
	return "NDKOperationType(0x" + strconv.FormatUint(uint64(t), 16) + ")"
}
