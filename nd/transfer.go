package nd

import "fmt"

// WriteTo posts an [Endpoint.Write] to the memory that the descriptor to describes, beginning at its
// first byte. To write to another part of the memory, use [WindowDescriptor.Slice]. WriteTo checks
// first that the data fits. Without this check, a Write that is too long would end the connection.
//
// Errors: [AccessViolation] if the entries of sge have more bytes than to.Length; those of
// [Endpoint.Write].
func WriteTo(ep Endpoint, reqCtx uint64, sge SGL, to WindowDescriptor, flags OpFlags) error {
	if err := to.fits("write", &sge); err != nil {
		return err
	}
	return ep.Write(reqCtx, sge, to.Address, to.Token, flags)
}

// ReadFrom posts an [Endpoint.Read] of the memory that the descriptor from describes, beginning at
// its first byte. To read another part of the memory, use [WindowDescriptor.Slice]. ReadFrom checks
// first that the memory is long enough. Without this check, a Read that is too long would end the
// connection.
//
// Errors: [AccessViolation] if the entries of sge have more bytes than from.Length; those of
// [Endpoint.Read].
func ReadFrom(ep Endpoint, reqCtx uint64, sge SGL, from WindowDescriptor, flags OpFlags) error {
	if err := from.fits("read", &sge); err != nil {
		return err
	}
	return ep.Read(reqCtx, sge, from.Address, from.Token, flags)
}

// fits checks that the entries of sge have at most d.Length bytes.
func (d WindowDescriptor) fits(op string, sge *SGL) error {
	var total uint64
	for i := range sge.Len() {
		total += uint64(len(sge.At(i).Buffer))
	}
	if total <= d.Length {
		return nil
	}
	return &OpError{
		Op: op, Object: "window descriptor", Status: AccessViolation, Field: "sge",
		Detail: fmt.Sprintf("more bytes than the memory described (asked %d, have %d)", total, d.Length),
		Next:   "shorten the request",
	}
}

// SendInline posts an [Endpoint.Send] of message, with [Inline] added to flags. The message can be in
// any memory, and the program may change it when SendInline has returned.
//
// Errors: [BufferOverflow] if message is longer than [EndpointConfig].InlineSize, which is 0 by
// default; those of [Endpoint.Send].
func SendInline(ep Endpoint, reqCtx uint64, message []byte, flags OpFlags) error {
	return ep.Send(reqCtx, One(SGE{Buffer: message}), flags|Inline)
}

// FastRegistration has the parameters of [Endpoint.FastRegister].
type FastRegistration struct {
	Region      MemoryRegion  // set up by [MemoryRegion.InitializeFastRegister]
	Pages       []LogicalPage // of open mappings of the adapter: see [LogicalMapping.Pages]
	Offset      int           // offset of the first byte in the first page, in bytes
	Length      int           // number of bytes to register
	BaseAddress uint64        // address of the first byte for peers; not 0
	Rights      RegionFlags
}
