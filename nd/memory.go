package nd

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
)

// Token stands for the right to use registered memory. It is opaque; 0 is never valid. Local
// tokens (in an [SGE]) and remote tokens (in Read, Write and SendAndInvalidate) are different
// number spaces: one used in place of the other is refused. Whoever holds a remote token can
// use it, so String does not show one in full.
type Token uint32

// String marks the value as a token and shows its low eight bits only.
func (t Token) String() string {
	if t == 0 {
		return "token(none)"
	}
	s := strconv.FormatUint(uint64(t&0xff), 16)
	return "token(..." + "00"[:2-len(s)] + s + ")"
}

// GoString keeps %#v from showing the value.
func (t Token) GoString() string { return t.String() }

// SGE is one entry of a scatter/gather list: a part of a registered region and that region's
// local token. A request copies the list during the call; the buffers are the request's until
// it completes (with [Inline]: until the call returns). What Send and Write take their data
// from must not change until then; what Receive and Read fill is undefined meanwhile. Buffers
// of several requests may overlap.
//
// Whether the token covers the buffer is checked when the request runs: a mismatch is an
// [AccessViolation] in the completion, not an error of the call. Source: ND2_SGE, NDK_SGE.
type SGE struct {
	Buffer []byte
	Token  Token
}

// WindowDescriptorSize is the length in bytes of an encoded [WindowDescriptor].
const WindowDescriptorSize = 20

// WindowDescriptor is what a peer needs to use a window: where it starts in the owner's
// addresses, how many bytes it has, and its remote token. A peer may add offsets to Address;
// it need not be an address in any process. Source: ND_MW_DESCRIPTOR.
type WindowDescriptor struct {
	Address, Length uint64
	Token           Token
}

// AppendBinary appends the encoding of d: Address, Length and Token in this order, without gaps,
// each in network byte order. It never fails.
func (d WindowDescriptor) AppendBinary(b []byte) ([]byte, error) {
	b = binary.BigEndian.AppendUint64(b, d.Address)
	b = binary.BigEndian.AppendUint64(b, d.Length)
	return binary.BigEndian.AppendUint32(b, uint32(d.Token)), nil
}

// MarshalBinary returns the [WindowDescriptorSize] bytes of [WindowDescriptor.AppendBinary]. It
// never fails.
func (d WindowDescriptor) MarshalBinary() ([]byte, error) {
	return d.AppendBinary(make([]byte, 0, WindowDescriptorSize))
}

// UnmarshalBinary reads what MarshalBinary wrote. Any [WindowDescriptorSize] bytes are a
// descriptor: whether the window exists shows when it is used.
//
// Errors: [InvalidBufferSize] for another length; d is unchanged then.
func (d *WindowDescriptor) UnmarshalBinary(b []byte) error {
	if len(b) != WindowDescriptorSize {
		return &OpError{
			Op: "decode", Object: "window descriptor", Status: InvalidBufferSize,
			Detail: fmt.Sprintf("%d bytes instead of %d", len(b), WindowDescriptorSize),
			Next:   "pass exactly what MarshalBinary returned at the owner",
		}
	}
	d.Address = binary.BigEndian.Uint64(b)
	d.Length = binary.BigEndian.Uint64(b[8:])
	d.Token = Token(binary.BigEndian.Uint32(b[16:]))
	return nil
}

// MemoryRegion is memory that requests may use, with the rights of its registration. It holds
// one registration at a time, of a buffer that may be registered in other regions as well, and
// serves every endpoint of its adapter. Source: NetworkDirect IND2MemoryRegion, NDK_MR.
type MemoryRegion interface {
	// Register makes buf usable with the rights in flags and gives the region new tokens. A
	// region can be registered again after each Deregister.
	//
	// Errors: [InvalidParameter] for a nil buf or one above MaxRegistrationSize;
	// [InvalidBufferSize] for a buf that is empty but not nil; [InvalidParameter3] for unknown
	// flags; [AccessViolation] for memory that cannot be accessed as the flags ask, if the
	// provider looks: it need not, and a transfer to memory that is not writable may then crash
	// the process;
	// [InvalidDeviceState] when already registered or set up for fast registration;
	// [InsufficientResources]; [NoMemory]; [Canceled]. The region is as before after each.
	// Source: IND2MemoryRegion::Register, NdkRegisterMr.
	Register(ctx context.Context, buf []byte, flags RegionFlags) error

	// Deregister ends a registration. When it returns nil no transfer touches the memory any
	// more; requests that name its tokens later fail with [AccessViolation], at whichever side
	// they were posted. Requests in progress are stopped, not waited for to the end.
	//
	// Errors: [DeviceBusy], at once and without effect, while a window is bound to the region;
	// [InvalidDeviceState] when not registered, or fast-registered; [Canceled], after which the
	// tokens are dead already and another Deregister waits for the rest.
	// Source: IND2MemoryRegion::Deregister, NdkDeregisterMr.
	Deregister(ctx context.Context) error

	// InitializeFastRegister makes an empty region ready for [Endpoint.FastRegister] of up to
	// pages pages; remote says whether its registrations may carry remote rights. It may be
	// called again with other values while nothing is registered. The region is for fast
	// registration from then on, until Close.
	//
	// Errors: [NotSupported]; [ImplementationLimit] for too many pages; [InvalidParameter1] for
	// pages below 1; [InvalidDeviceState] when registered; [Canceled].
	// Source: NdkInitializeFastRegisterMr.
	InitializeFastRegister(ctx context.Context, pages int, remote bool) error

	// LocalToken returns the token for an [SGE] of this region; 0 before the first registration,
	// the last one, of no use, after a registration ended. Source: IND2MemoryRegion::GetLocalToken.
	LocalToken() Token

	// RemoteToken returns the token for peers. It is worth something to any connected peer of
	// the adapter, but only as far as the region's AllowRemote flags go. Values follow the rule
	// of LocalToken. Source: IND2MemoryRegion::GetRemoteToken.
	RemoteToken() Token

	// Bytes returns the registered memory, nil when not registered. A fast-registered region
	// returns nil as well unless its pages are neighbours in this process.
	Bytes() []byte

	// Address returns the address that peers use for Bytes()[0], 0 when not registered: of a
	// fast-registered region its baseAddress. Add the offset for other bytes. The value only
	// means something together with a token.
	Address() uint64

	// Close releases the region and ends its registration as Deregister does. Windows bound to
	// it keep the registration alive until the last of them is invalidated or closed. It waits
	// for a copy that is under way, for as long as the process that copies lives.
	Close() error

	// CloseContext is Close for a bounded time. Errors: [Canceled]. After it the region is
	// closed and its tokens are invalid all the same. The memory must not be touched before
	// another call has returned nil.
	CloseContext(ctx context.Context) error
}

// MemoryWindow lends part of a region to peers, for as long as its owner likes. It is created
// invalidated, becomes bound by [Endpoint.Bind] and invalidated again by [Endpoint.Invalidate]
// or by the peer's [Endpoint.SendAndInvalidate]; this may be repeated without limit, with
// another range, region or endpoint. A window is also invalidated when the endpoint that it was
// bound on fails, disconnects or is closed. Windows may overlap.
// Source: NetworkDirect IND2MemoryWindow, NDK_MW.
type MemoryWindow interface {
	// RemoteToken returns the token that the last Bind gave the window, as soon as that Bind has
	// returned: 0 before the first, the last one, of no use, after invalidation. Every Bind
	// gives a value that differs from all tokens of the adapter in recent use.
	// Source: IND2MemoryWindow::GetRemoteToken.
	RemoteToken() Token

	// Descriptor returns the range and the token of the last Bind, under the rule of RemoteToken.
	// The zero value before the first. Source: the descriptor of INDEndpoint::Bind.
	Descriptor() WindowDescriptor

	// Close invalidates the window if it is bound, waits until no transfer uses it, and releases
	// it. A transfer that was in progress fails at the peer. The wait lasts for a copy that is
	// under way, for as long as the process that copies lives.
	Close() error

	// CloseContext is Close for a bounded time. Errors: [Canceled]. After it the window is
	// closed and its token is invalid all the same. Another call waits for the rest.
	CloseContext(ctx context.Context) error
}

// LogicalPage is the address of one page as the adapter counts them.
type LogicalPage uint64

// LogicalMapping lists the pages behind a buffer. Source: NDK's logical address mapping.
type LogicalMapping interface {
	// Pages returns the pages in the order of the buffer; the caller must not change the slice.
	Pages() []LogicalPage
	// PageSize returns the bytes per page.
	PageSize() int
	// Offset returns where in the first page the buffer starts, in bytes.
	Offset() int
	// Close gives the mapping up; registrations made from it must be gone by then.
	// Errors: [DeviceBusy], without effect, while one is not. Source: NdkReleaseLAM.
	Close() error

	// CloseContext is Close for a bounded time. Errors: as Close; [Canceled]. After it the
	// mapping takes no more registrations. Another call waits for the rest.
	CloseContext(ctx context.Context) error
}
