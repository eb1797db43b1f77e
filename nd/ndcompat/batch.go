package ndcompat

import (
	"sync"

	"github.com/softnd/softnd/nd"
)

// Batch posts requests of version 1 to an endpoint, with its request batches. All goroutines that post with it share one
// batch. Pass its Endpoint, not the Batch, to Connect and Accept. A Batch must not be copied.
type Batch struct {
	nd.Endpoint

	mu   sync.RWMutex // held shared during a post
	open bool         // guarded by mu
}

// StartRequestBatch allows the provider to delay the requests that are posted from now on, until SubmitRequestBatch: they
// have [nd.Defer].
// Source: INDEndpoint::StartRequestBatch.
func (b *Batch) StartRequestBatch() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open = true
}

// SubmitRequestBatch starts all requests of the endpoint that were delayed.
// Source: INDEndpoint::SubmitRequestBatch.
func (b *Batch) SubmitRequestBatch() {
	b.mu.Lock() // a post that has found the batch open would stay delayed if it came after the Send
	defer b.mu.Unlock()
	b.open = false
	_ = b.Endpoint.Send(0, nd.SGL{}, unknownOpFlag) // a post that fails starts them
}

// post calls post with the flags of a request that belongs to the batch if one is open.
func (b *Batch) post(flags nd.OpFlags, post func(nd.OpFlags) error) error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.open {
		flags |= nd.Defer
	}
	return post(flags)
}

// Send is [nd.Endpoint.Send] within the batch.
func (b *Batch) Send(reqCtx uint64, sge nd.SGL, flags nd.OpFlags) error {
	return b.post(flags, func(f nd.OpFlags) error { return b.Endpoint.Send(reqCtx, sge, f) })
}

// SendAndInvalidate is [nd.Endpoint.SendAndInvalidate] within the batch.
func (b *Batch) SendAndInvalidate(reqCtx uint64, sge nd.SGL, remoteToken nd.Token, flags nd.OpFlags) error {
	return b.post(flags, func(f nd.OpFlags) error { return b.Endpoint.SendAndInvalidate(reqCtx, sge, remoteToken, f) })
}

// Bind is [nd.Endpoint.Bind] within the batch.
func (b *Batch) Bind(reqCtx uint64, mr nd.MemoryRegion, mw nd.MemoryWindow, buf []byte, flags nd.OpFlags) error {
	return b.post(flags, func(f nd.OpFlags) error { return b.Endpoint.Bind(reqCtx, mr, mw, buf, f) })
}

// Invalidate is [nd.Endpoint.Invalidate] within the batch.
func (b *Batch) Invalidate(reqCtx uint64, mw nd.MemoryWindow, flags nd.OpFlags) error {
	return b.post(flags, func(f nd.OpFlags) error { return b.Endpoint.Invalidate(reqCtx, mw, f) })
}

// Read is [nd.Endpoint.Read] within the batch.
func (b *Batch) Read(reqCtx uint64, sge nd.SGL, remoteAddress uint64, remoteToken nd.Token, flags nd.OpFlags) error {
	return b.post(flags, func(f nd.OpFlags) error { return b.Endpoint.Read(reqCtx, sge, remoteAddress, remoteToken, f) })
}

// Write is [nd.Endpoint.Write] within the batch.
func (b *Batch) Write(reqCtx uint64, sge nd.SGL, remoteAddress uint64, remoteToken nd.Token, flags nd.OpFlags) error {
	return b.post(flags, func(f nd.OpFlags) error { return b.Endpoint.Write(reqCtx, sge, remoteAddress, remoteToken, f) })
}
