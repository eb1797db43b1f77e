package nd

import "fmt"

// WriteTo is [Endpoint.Write] to the beginning of the memory that to describes. Unlike Write it
// checks the length first: a Write that is longer than the memory would end the connection. Use
// [WindowDescriptor.Slice] to write elsewhere.
//
// Errors: [AccessViolation] if the entries of sge have more bytes than to; nothing is posted
// then. Others as [Endpoint.Write].
func WriteTo(ep Endpoint, reqCtx uint64, sge []SGE, to WindowDescriptor, flags OpFlags) error {
	if err := to.fits("write", sge); err != nil {
		return err
	}
	return ep.Write(reqCtx, sge, to.Address, to.Token, flags)
}

// ReadFrom is [Endpoint.Read] from the beginning of the memory that from describes. Unlike Read it
// checks the length first. Use [WindowDescriptor.Slice] to read elsewhere.
//
// Errors: [AccessViolation] if the entries of sge have more bytes than from; nothing is posted
// then. Others as [Endpoint.Read].
func ReadFrom(ep Endpoint, reqCtx uint64, sge []SGE, from WindowDescriptor, flags OpFlags) error {
	if err := from.fits("read", sge); err != nil {
		return err
	}
	return ep.Read(reqCtx, sge, from.Address, from.Token, flags)
}

// fits checks that the entries of sge have at most d.Length bytes.
func (d WindowDescriptor) fits(op string, sge []SGE) error {
	var total uint64
	for i := range sge {
		total += uint64(len(sge[i].Buffer))
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

// SendInline is [Endpoint.Send] of message with [Inline] added to flags. The bytes are copied
// during the call, so message can be any memory and may be changed when SendInline returns.
//
// Errors: [BufferOverflow] if message is longer than [EndpointConfig].InlineSize, which is 0 by
// default. Others, and results, as [Endpoint.Send].
func SendInline(ep Endpoint, reqCtx uint64, message []byte, flags OpFlags) error {
	return ep.Send(reqCtx, []SGE{{Buffer: message}}, flags|Inline)
}

// FastRegistration holds the parameters of [Endpoint.FastRegister] by name.
type FastRegistration struct {
	Region      MemoryRegion  // set up by [MemoryRegion.InitializeFastRegister]
	Pages       []LogicalPage // of live mappings of the adapter, see [LogicalMapping.Pages]
	Offset      int           // of the first byte in the first page, in bytes
	Length      int           // bytes to register
	BaseAddress uint64        // by which peers address the first byte; not 0
	Rights      RegionFlags
}

// FastRegister is [Endpoint.FastRegister] with its parameters in a struct. Its errors and results
// are the same.
func FastRegister(ep Endpoint, reqCtx uint64, r FastRegistration, flags OpFlags) error {
	return ep.FastRegister(reqCtx, r.Region, r.Pages, r.Offset, r.Length, r.BaseAddress, r.Rights, flags)
}
