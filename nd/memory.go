package nd

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
)

// Token is an opaque number that grants access to registered memory. 0 is never valid. A local token
// is for an [SGE]; a remote token is for Read, Write and SendAndInvalidate. The two kinds are different
// number spaces: a request with a token of the wrong kind fails.
type Token uint32

// String returns the low eight bits of the token only, because every peer that knows a remote token
// can use it.
func (t Token) String() string {
	if t == 0 {
		return "token(none)"
	}
	s := strconv.FormatUint(uint64(t&0xff), 16)
	return "token(..." + "00"[:2-len(s)] + s + ")"
}

// GoString returns the same as String, so that %#v does not show the whole token.
func (t Token) GoString() string { return t.String() }

// SGE is one entry of a scatter/gather list ([SGL]): a part of a registered region and that region's
// local token. [SGEOf] returns one.
//
// The buffers belong to the request until it completes, or, with [Inline], until the post returns.
// Until then the program must not change the buffers of a Send or Write. The contents of the buffers
// of a Receive or Read are undefined until then. Buffers of several requests may overlap.
//
// When the request runs, the provider checks that the token covers the buffer. If it does not, the
// result has the status [AccessViolation]; the post itself succeeds.
// Source: ND2_SGE, NDK_SGE.
type SGE struct {
	Buffer []byte
	Token  Token
}

// SGL is the scatter/gather list of a request. The zero SGL has no entries. [One] and [List] return an SGL. A post copies the
// entries, so the program may change them when the post has returned.
//
// The first entry is part of the value, so ep.Send(1, nd.One(entry), 0) allocates nothing. A slice would escape to the heap,
// because [Endpoint] is an interface.
// Source: the array of ND2_SGE or NDK_SGE that a request takes, and its length.
type SGL struct {
	First SGE   // the zero SGE if there are no entries
	More  []SGE // the entries after the first
}

// One returns the list of a single entry. It allocates nothing.
func One(entry SGE) SGL { return SGL{First: entry} }

// List returns the list of entries. It does not copy a slice that is passed with "...". For a single entry, use [One].
func List(entries ...SGE) SGL {
	if len(entries) == 0 {
		return SGL{}
	}
	return SGL{First: entries[0], More: entries[1:]}
}

// Len returns the number of entries. A single entry with a nil Buffer does not count: it has no bytes.
func (l *SGL) Len() int {
	if l.First.Buffer == nil && len(l.More) == 0 {
		return 0
	}
	return 1 + len(l.More)
}

// At returns the entry with index i, from 0 to Len()-1.
func (l *SGL) At(i int) *SGE {
	if i == 0 {
		return &l.First
	}
	return &l.More[i-1]
}

// Entries returns a new slice of the entries.
func (l *SGL) Entries() []SGE {
	if l.Len() == 0 {
		return nil
	}
	return append([]SGE{l.First}, l.More...)
}

// SGEOf returns an [SGE] with n bytes of mr.Bytes(), beginning at offset, and with mr.LocalToken().
// Like a slice expression, SGEOf panics if mr.Bytes() does not have these bytes. mr.Bytes() is empty
// if mr is not registered, or closed.
func SGEOf(mr MemoryRegion, offset, n int) SGE {
	mem := mr.Bytes()
	if offset < 0 || n < 0 || offset > len(mem) || n > len(mem)-offset {
		panic(fmt.Sprintf("nd: SGEOf: %d bytes at offset %d of a region of %d bytes", n, offset, len(mem)))
	}
	return SGE{Buffer: mem[offset : offset+n : offset+n], Token: mr.LocalToken()}
}

// WindowDescriptorSize is the length in bytes of an encoded [WindowDescriptor].
const WindowDescriptorSize = 20

// WindowDescriptor has the values that a peer needs to access memory: the address of the first byte,
// the length, and the remote token. It describes a window ([MemoryWindow.Descriptor]) or a region
// ([DescriptorOf]). The owner of the memory sends the descriptor to the peer, encoded by
// [WindowDescriptor.MarshalBinary]. The peer may add an offset to Address, but must not dereference
// it.
// Source: ND_MW_DESCRIPTOR.
type WindowDescriptor struct {
	Address, Length uint64
	Token           Token
}

// AppendBinary appends the encoding of d to b: Address, Length and Token in this order, without
// gaps, each in network byte order. It never fails.
func (d WindowDescriptor) AppendBinary(b []byte) ([]byte, error) {
	b = binary.BigEndian.AppendUint64(b, d.Address)
	b = binary.BigEndian.AppendUint64(b, d.Length)
	return binary.BigEndian.AppendUint32(b, uint32(d.Token)), nil
}

// MarshalBinary returns the encoding of d, which has [WindowDescriptorSize] bytes. It never fails.
func (d WindowDescriptor) MarshalBinary() ([]byte, error) {
	return d.AppendBinary(make([]byte, 0, WindowDescriptorSize))
}

// UnmarshalBinary sets d to the descriptor that [WindowDescriptor.MarshalBinary] encoded as b. It
// cannot check that the memory exists. If it does not exist, a request that uses d fails.
//
// Errors: [InvalidBufferSize] if b does not have [WindowDescriptorSize] bytes. d is then unchanged.
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

// Slice returns a descriptor of n bytes of the memory of d, beginning at offset. Its token is that
// of d.
//
// Errors: [AccessViolation] if the memory of d does not have these bytes.
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

// DescriptorOf returns the descriptor of all memory of mr, with mr.RemoteToken(). Until the
// registration ends, peers can use the descriptor for the access that the region's AllowRemote flags
// allow. Length is 0 if mr.Bytes() is nil. This is so while mr is not registered, and for a fast
// registration whose pages are not contiguous in this process.
func DescriptorOf(mr MemoryRegion) WindowDescriptor {
	return WindowDescriptor{Address: mr.Address(), Length: uint64(len(mr.Bytes())), Token: mr.RemoteToken()}
}

// MemoryRegion is memory that requests may use, with the rights of its registration. It has one
// registration at a time. The same buffer may be registered in other regions too. All endpoints of
// the adapter can use the region. To use its memory in a request, call [SGEOf] or [DescriptorOf].
// Source: NetworkDirect IND2MemoryRegion, NDK_MR.
type MemoryRegion interface {
	// Register registers buf with the rights in flags, and gives the region new tokens. After a
	// Deregister, the region can be registered again.
	//
	// buf may be a part of memory from [Adapter.Allocate]. Transfers then access it as fast as through
	// the region of Allocate.
	//
	// The process must be able to read buf, and to write it if flags allow any writes. Until the
	// registration has ended, the program must not unmap the memory, take these rights away, or
	// truncate a mapped file. Otherwise a transfer may crash the process. Register does not find pages beyond
	// the end of a mapped file, nor guards of MADV_GUARD_INSTALL.
	//
	// Errors (the region is unchanged after each):
	//
	//   - [InvalidParameter]: buf is nil, or longer than MaxRegistrationSize; or flags has an unknown bit.
	//   - [InvalidBufferSize]: buf is empty but not nil.
	//   - [AccessViolation]: the process cannot access buf in the ways that flags allows, or a part of
	//     it is memory of a closed region. The error names the range. A provider need not check this,
	//     and does not touch the memory for it.
	//   - [InvalidDeviceState]: the region is already registered, or set up for fast registration.
	//   - [NotSupported]: flags have [RequirePlacement], and [Prefault] has failed.
	//   - [InsufficientResources], [NoMemory], [Canceled].
	//
	// Source: IND2MemoryRegion::Register, NdkRegisterMr.
	Register(ctx context.Context, buf []byte, flags RegionFlags) error

	// Deregister ends the registration. Once it has returned nil, no transfer accesses the memory
	// through this registration. A request of either side that uses the old tokens then fails with
	// [AccessViolation]. Deregister stops requests in progress. It does not wait until they complete.
	//
	// Errors:
	//
	//   - [DeviceBusy]: a window is bound to the region. Deregister does not wait, and has no effect.
	//   - [InvalidDeviceState]: the region is not registered, or is fast-registered.
	//   - [Canceled]: ctx has ended. The tokens are invalid even so. To wait until no transfer accesses
	//     the memory, call Deregister again.
	//
	// Source: IND2MemoryRegion::Deregister, NdkDeregisterMr.
	Deregister(ctx context.Context) error

	// InitializeFastRegister prepares a region without memory for [Endpoint.FastRegister] of up to
	// pages pages. If remote is true, registrations of the region may have remote rights. Afterwards
	// the region is for fast registration only, until it is closed. While the region is not
	// registered, InitializeFastRegister may be called again, with other values.
	//
	// Errors: [InvalidParameter] if pages is less than 1; [ImplementationLimit] if pages is too
	// large; [InvalidDeviceState] if the region is registered; [NotSupported]; [Canceled].
	// Source: NdkInitializeFastRegisterMr.
	InitializeFastRegister(ctx context.Context, pages int, remote bool) error

	// LocalToken returns the token for an [SGE] of this region. It returns 0 before the first
	// registration. After the registration has ended, it still returns the last token, which is then
	// invalid.
	// Source: IND2MemoryRegion::GetLocalToken.
	LocalToken() Token

	// RemoteToken returns the token for peers. Every connected peer of the adapter can use the token
	// for the access that the region's AllowRemote flags allow. RemoteToken returns 0 before the first
	// registration. After the registration has ended, it still returns the last token, which is then
	// invalid.
	// Source: IND2MemoryRegion::GetRemoteToken.
	RemoteToken() Token

	// Bytes returns the registered memory, and nil if the region is not registered. It also returns
	// nil for a fast-registered region whose pages are not contiguous in this process.
	Bytes() []byte

	// Address returns the address by which peers access the first byte of the region, and 0 if the
	// region is not registered. For a fast-registered region it returns the baseAddress. The byte at
	// an offset has the address Address() + offset. To use an address, a peer also needs a token.
	Address() uint64

	// Placement returns those of [HugePages], [Prefault] and [OnNode] that the memory was given, of those that the latest
	// registration or Allocate has asked for.
	Placement() RegionFlags

	// Close releases the region, and ends its registration as Deregister does. If windows are bound
	// to the region, the registration ends when the last of them is invalidated or closed. If another
	// process is copying from or to the region, Close blocks until that copy ends, that process dies, or
	// ctx ends.
	//
	// Memory from [Adapter.Allocate] is freed then. If registrations of other regions cover it, also in
	// part, it is freed when the last of them has ended.
	//
	// Errors: [Canceled] if ctx ends first. The region is closed and its tokens are invalid even so. The
	// program must not access the memory before another call of Close has returned nil.
	Close(ctx context.Context) error

	extensible // implemented by embedding UnsupportedMemoryRegion
}

// MemoryWindow gives peers access to a part of a region, until the window is invalidated.
// [Endpoint.Bind] binds a window. [Endpoint.Invalidate] of the owner, or [Endpoint.SendAndInvalidate]
// of the peer, invalidates it. The window may then be bound again, any number of times, with another
// range, region or endpoint. A window is also invalidated if the endpoint on which it was bound fails,
// disconnects or is closed. A new window is not bound. Windows may overlap.
// Source: NetworkDirect IND2MemoryWindow, NDK_MW.
type MemoryWindow interface {
	// RemoteToken returns the token of the last Bind, as soon as the call of Bind has returned. Every
	// Bind gives the window a new token. RemoteToken returns 0 before the first Bind. After the
	// invalidation, it still returns the last token, which is then invalid. A provider may reuse the
	// number of an old token.
	// Source: IND2MemoryWindow::GetRemoteToken.
	RemoteToken() Token

	// Descriptor returns the range and the token of the last Bind, as soon as the call of Bind has
	// returned. It returns the zero value before the first Bind.
	// Source: the descriptor of INDEndpoint::Bind.
	Descriptor() WindowDescriptor

	// Close releases the window. If the window is bound, Close invalidates it first. A transfer in
	// progress fails at the peer. If another process is copying through the window, Close blocks until
	// that copy ends, that process dies, or ctx ends.
	//
	// Errors: [Canceled] if ctx ends first. The window is closed and its token is invalid even so. To wait
	// until no transfer accesses the memory, call Close again.
	Close(ctx context.Context) error

	extensible // implemented by embedding UnsupportedMemoryWindow
}

// LogicalPage is the address of one page, in addresses of the adapter.
type LogicalPage uint64

// LogicalMapping lists the pages of a buffer, for [Endpoint.FastRegister]. It is created by
// [Adapter.BuildLogicalAddressMapping]. Source: NDK's logical address mapping.
type LogicalMapping interface {
	// Pages returns the pages in the order of the buffer. The caller must not change the slice.
	Pages() []LogicalPage
	// PageSize returns the number of bytes of a page.
	PageSize() int
	// Offset returns the offset of the buffer in the first page, in bytes.
	Offset() int
	// Close releases the mapping. All registrations of its pages must have ended before Close. If another
	// process is copying from or to the memory, Close blocks until that copy ends, that process dies, or ctx
	// ends.
	//
	// Errors: [DeviceBusy], without effect, if a registration still uses its pages; [Canceled] if ctx ends
	// first. The mapping accepts no further registrations even so. To wait until no transfer accesses the
	// memory, call Close again.
	// Source: NdkReleaseLAM.
	Close(ctx context.Context) error

	extensible // implemented by embedding UnsupportedLogicalMapping
}
