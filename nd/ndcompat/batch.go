package ndcompat

import (
	"sync/atomic"

	"github.com/softnd/softnd/nd"
)

// Batch posts requests of version 1 to an endpoint, with its request batches. All goroutines that post with it share one
// batch. Pass its Endpoint, not the Batch, to Connect and Accept. A Batch must not be copied.
type Batch struct {
	nd.Endpoint
	open atomic.Bool
}

// StartRequestBatch allows the provider to delay the requests that are posted from now on, until SubmitRequestBatch: they
// have [nd.Defer].
// Source: INDEndpoint::StartRequestBatch.
func (b *Batch) StartRequestBatch() { b.open.Store(true) }

// SubmitRequestBatch starts all requests of the endpoint that were delayed.
// Source: INDEndpoint::SubmitRequestBatch.
func (b *Batch) SubmitRequestBatch() {
	b.open.Store(false)
	_ = b.Endpoint.Send(0, nil, unknownOpFlag) // a post that fails starts them
}

func (b *Batch) flags(f nd.OpFlags) nd.OpFlags {
	if b.open.Load() {
		f |= nd.Defer
	}
	return f
}

// Send is [nd.Endpoint.Send] within the batch.
func (b *Batch) Send(reqCtx uint64, sge []nd.SGE, flags nd.OpFlags) error {
	return b.Endpoint.Send(reqCtx, sge, b.flags(flags))
}

// SendAndInvalidate is [nd.Endpoint.SendAndInvalidate] within the batch.
func (b *Batch) SendAndInvalidate(reqCtx uint64, sge []nd.SGE, remoteToken nd.Token, flags nd.OpFlags) error {
	return b.Endpoint.SendAndInvalidate(reqCtx, sge, remoteToken, b.flags(flags))
}

// Bind is [nd.Endpoint.Bind] within the batch.
func (b *Batch) Bind(reqCtx uint64, mr nd.MemoryRegion, mw nd.MemoryWindow, buf []byte, flags nd.OpFlags) error {
	return b.Endpoint.Bind(reqCtx, mr, mw, buf, b.flags(flags))
}

// Invalidate is [nd.Endpoint.Invalidate] within the batch.
func (b *Batch) Invalidate(reqCtx uint64, mw nd.MemoryWindow, flags nd.OpFlags) error {
	return b.Endpoint.Invalidate(reqCtx, mw, b.flags(flags))
}

// Read is [nd.Endpoint.Read] within the batch.
func (b *Batch) Read(reqCtx uint64, sge []nd.SGE, remoteAddress uint64, remoteToken nd.Token, flags nd.OpFlags) error {
	return b.Endpoint.Read(reqCtx, sge, remoteAddress, remoteToken, b.flags(flags))
}

// Write is [nd.Endpoint.Write] within the batch.
func (b *Batch) Write(reqCtx uint64, sge []nd.SGE, remoteAddress uint64, remoteToken nd.Token, flags nd.OpFlags) error {
	return b.Endpoint.Write(reqCtx, sge, remoteAddress, remoteToken, b.flags(flags))
}
