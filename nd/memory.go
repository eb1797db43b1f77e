package nd

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
)

// Token is the right to use registered memory, as a number. It is opaque; 0 is never valid. Local
// tokens (in an [SGE]) and remote tokens (in Read, Write and SendAndInvalidate) are different
// number spaces: a request with a token of the wrong kind fails. Every peer that knows a remote
// token can use it, so String does not print all of it.
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
// local token. [SGEOf] returns one. A request copies the list during the call. The buffers belong
// to the request until it completes, or, with [Inline], until the call returns. Until then the
// program must not change the buffers of a Send or Write, and the contents of the buffers of a
// Receive or Read are undefined. Buffers of several requests may overlap.
//
// The provider checks that the token covers the buffer when the request runs: a mismatch is an
// [AccessViolation] in the result, not an error of the call. Source: ND2_SGE, NDK_SGE.
type SGE struct {
	Buffer []byte
	Token  Token
}

// SGEOf returns the entry for n bytes of mr's memory, from offset on: that part of mr.Bytes() with
// mr.LocalToken(). Like a slice expression, it panics if these bytes are not all within the memory.
// mr.Bytes() is empty if mr is not registered, or closed.
func SGEOf(mr MemoryRegion, offset, n int) SGE {
	mem := mr.Bytes()
	if offset < 0 || n < 0 || offset > len(mem) || n > len(mem)-offset {
		panic(fmt.Sprintf("nd: SGEOf: %d bytes at offset %d of a region of %d bytes", n, offset, len(mem)))
	}
	return SGE{Buffer: mem[offset : offset+n : offset+n], Token: mr.LocalToken()}
}

// WindowDescriptorSize is the length in bytes of an encoded [WindowDescriptor].
const WindowDescriptorSize = 20

// WindowDescriptor is what a peer needs to access memory of another process: the address of the
// first byte, the length, and the remote token. It describes a window ([MemoryWindow.Descriptor])
// or a region ([DescriptorOf]). The owner sends it to the peer, in a binary encoding: see
// [WindowDescriptor.MarshalBinary]. Address is opaque: a peer may add offsets to it, but must
// not dereference it.
// Source: ND_MW_DESCRIPTOR.
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

// UnmarshalBinary decodes the encoding of [WindowDescriptor.MarshalBinary]. Any
// [WindowDescriptorSize] bytes are a descriptor; a request that uses it fails if there is no such
// memory.
//
// Errors: [InvalidBufferSize] for another length; d is unchanged then.
func (d *WindowDescriptor) UnmarshalBinary(b []byte) error {
	if len(b) != WindowDescriptorSize {
		return &OpError{
			Op: "decode", Object: "window descriptor", Status: InvalidBufferSize,
			Detail: fmt.Sprintf("%d bytes, want %d", len(b), WindowDescriptorSize),
			Next:   "pass the bytes that MarshalBinary returned at the owner",
		}
	}
	d.Address = binary.BigEndian.Uint64(b)
	d.Length = binary.BigEndian.Uint64(b[8:])
	d.Token = Token(binary.BigEndian.Uint32(b[16:]))
	return nil
}

// Slice returns the descriptor of n bytes from offset on, with the same token.
//
// Errors: [AccessViolation] if d does not have these bytes.
func (d WindowDescriptor) Slice(offset, n int) (WindowDescriptor, error) {
	if offset < 0 || n < 0 || uint64(offset) > d.Length || uint64(n) > d.Length-uint64(offset) {
		return WindowDescriptor{}, &OpError{
			Op: "slice", Object: "window descriptor", Status: AccessViolation,
			Detail: fmt.Sprintf("not within the memory described (asked %d bytes at offset %d, have %d)", n, offset, d.Length),
			Next:   "check offset and length",
		}
	}
	return WindowDescriptor{Address: d.Address + uint64(offset), Length: uint64(n), Token: d.Token}, nil
}

// DescriptorOf returns the descriptor of all memory of mr, with mr.RemoteToken(). Peers can use it
// as far as the region's AllowRemote flags allow, until the registration ends. Length is 0 if
// mr.Bytes() is nil: while mr is not registered, and for a fast registration whose pages are not
// contiguous in this process.
func DescriptorOf(mr MemoryRegion) WindowDescriptor {
	return WindowDescriptor{Address: mr.Address(), Length: uint64(len(mr.Bytes())), Token: mr.RemoteToken()}
}

// MemoryRegion is memory that requests may use, with the rights of its registration. It has one
// registration at a time. The same buffer may be registered in other regions too. All endpoints of
// the adapter can use the region. [SGEOf] and [DescriptorOf] name its memory in requests.
// Source: NetworkDirect IND2MemoryRegion, NDK_MR.
type MemoryRegion interface {
	// Register makes buf usable with the rights in flags and gives the region new tokens. A
	// region can be registered again after each Deregister.
	//
	// Errors: [InvalidParameter] for a nil buf or one above MaxRegistrationSize;
	// [InvalidBufferSize] for a buf that is empty but not nil; [InvalidParameter3] for unknown
	// flags; [AccessViolation] for memory that cannot be accessed as the flags ask;
	// [InvalidDeviceState] when already registered or set up for fast registration;
	// [InsufficientResources]; [NoMemory]; [Canceled]. The region is unchanged after each. A
	// provider need not check access to the memory. If it does not, a transfer to memory that is
	// not writable may crash the process.
	// Source: IND2MemoryRegion::Register, NdkRegisterMr.
	Register(ctx context.Context, buf []byte, flags RegionFlags) error

	// Deregister ends a registration. Once it has returned nil, no transfer accesses the memory
	// through this registration. Requests with its tokens then fail with [AccessViolation], on
	// whichever side they are posted. Deregister stops requests in progress and does not wait until
	// they complete.
	//
	// Errors: [DeviceBusy], at once and without effect, while a window is bound to the region;
	// [InvalidDeviceState] when not registered, or fast-registered; [Canceled], after which the
	// tokens are invalid already, and another Deregister waits until no transfer accesses the
	// memory.
	// Source: IND2MemoryRegion::Deregister, NdkDeregisterMr.
	Deregister(ctx context.Context) error

	// InitializeFastRegister prepares an empty region for [Endpoint.FastRegister] of up to pages
	// pages. remote determines whether its registrations may have remote rights. It may be called
	// again with other values while nothing is registered. From then on, until Close, the region is
	// for fast registration only.
	//
	// Errors: [NotSupported]; [ImplementationLimit] for too many pages; [InvalidParameter1] for
	// pages below 1; [InvalidDeviceState] when registered; [Canceled].
	// Source: NdkInitializeFastRegisterMr.
	InitializeFastRegister(ctx context.Context, pages int, remote bool) error

	// LocalToken returns the token for an [SGE] of this region, and 0 before the first
	// registration. After the registration has ended it still returns the last token, which is
	// invalid then.
	// Source: IND2MemoryRegion::GetLocalToken.
	LocalToken() Token

	// RemoteToken returns the token for peers. Every connected peer of the adapter can use it, as
	// far as the region's AllowRemote flags allow. It returns 0 before the first registration.
	// After the registration has ended it still returns the last token, which is invalid then.
	// Source: IND2MemoryRegion::GetRemoteToken.
	RemoteToken() Token

	// Bytes returns the registered memory, and nil when not registered. For a fast-registered
	// region it returns nil too, unless the pages are contiguous in this process.
	Bytes() []byte

	// Address returns the address that peers use for Bytes()[0], and 0 when not registered. For a
	// fast-registered region it is the baseAddress. Add the offset for other bytes. Peers need a
	// token, too, to use the address.
	Address() uint64

	// Close releases the region and ends its registration as Deregister does. Windows bound to
	// it keep the registration alive until the last of them is invalidated or closed. Close waits
	// until a copy in progress has ended, at the latest by the death of the process that copies.
	Close() error

	// CloseContext is Close with a bound on the wait.
	//
	// Errors: [Canceled] when ctx ends. The region is closed and its tokens are invalid even so,
	// but the memory must not be accessed before another call has returned nil.
	CloseContext(ctx context.Context) error
}

// MemoryWindow gives peers access to a part of a region, until its owner invalidates it. A new
// window is invalidated. [Endpoint.Bind] binds it; [Endpoint.Invalidate], or
// [Endpoint.SendAndInvalidate] of the peer, invalidates it again. This may be repeated without
// limit, with another range, region or endpoint. A window is also invalidated when the endpoint
// that it was bound on fails, disconnects or is closed. Windows may overlap.
// Source: NetworkDirect IND2MemoryWindow, NDK_MW.
type MemoryWindow interface {
	// RemoteToken returns the token of the last Bind, as soon as that Bind has returned. It returns
	// 0 before the first Bind. After the invalidation it still returns the last token, which is
	// invalid then. Every Bind gives the window a new token. A provider may use the number of an
	// old token again, in softnd after 4,096 later Binds and registrations at the earliest.
	// Source: IND2MemoryWindow::GetRemoteToken.
	RemoteToken() Token

	// Descriptor returns the range and the token of the last Bind, as soon as that Bind has
	// returned, and the zero value before the first Bind. Source: the descriptor of INDEndpoint::Bind.
	Descriptor() WindowDescriptor

	// Close invalidates the window if it is bound, waits until no transfer uses it, and releases
	// it. A transfer in progress fails at the peer. Close waits until a copy in progress has ended,
	// at the latest by the death of the process that copies.
	Close() error

	// CloseContext is Close with a bound on the wait.
	//
	// Errors: [Canceled] when ctx ends. The window is closed and its token is invalid even so.
	// Another call waits until no transfer uses the memory.
	CloseContext(ctx context.Context) error
}

// LogicalPage is the address of one page in the adapter's own addresses.
type LogicalPage uint64

// LogicalMapping lists the pages behind a buffer. Source: NDK's logical address mapping.
type LogicalMapping interface {
	// Pages returns the pages in the order of the buffer; the caller must not change the slice.
	Pages() []LogicalPage
	// PageSize returns the bytes per page.
	PageSize() int
	// Offset returns where in the first page the buffer starts, in bytes.
	Offset() int
	// Close releases the mapping. Registrations of its pages must have ended before.
	//
	// Errors: [DeviceBusy], without effect, while a registration of its pages exists.
	// Source: NdkReleaseLAM.
	Close() error

	// CloseContext is Close with a bound on the wait.
	//
	// Errors: as Close; [Canceled] when ctx ends: the mapping accepts no further registrations, and
	// another call waits until no transfer uses the memory.
	CloseContext(ctx context.Context) error
}
