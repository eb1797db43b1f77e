package measure

import (
	"context"
	"time"

	"github.com/softnd/softnd/nd"
)

// bindBatch is how many windows are bound before they are invalidated, where
// the two are timed apart: the clock is looked at once for all of them.
const bindBatch = 256

// binder binds and invalidates windows over one region, on an endpoint with
// nothing in flight.
type binder struct {
	cq      nd.CompletionQueue
	ep      nd.Endpoint
	mr      nd.MemoryRegion
	windows []nd.MemoryWindow
	found   [4]nd.Result
}

func (b *binder) open(ctx context.Context, ad nd.Adapter) error {
	for range bindBatch {
		w, err := ad.CreateMemoryWindow(ctx)
		if err != nil {
			return err
		}
		b.windows = append(b.windows, w)
	}
	return nil
}

func (b *binder) bind(w nd.MemoryWindow) error {
	if err := b.ep.Bind(0, b.mr, w, b.mr.Bytes(), nd.AllowRead|nd.AllowWrite); err != nil {
		return err
	}
	return b.complete()
}

func (b *binder) invalidate(w nd.MemoryWindow) error {
	if err := b.ep.Invalidate(0, w, 0); err != nil {
		return err
	}
	return b.complete()
}

// pairs binds and invalidates a window n times.
func (b *binder) pairs(n int) (time.Duration, error) {
	w := b.windows[0]
	start := time.Now()
	for range n {
		if err := b.bind(w); err != nil {
			return 0, err
		}
		if err := b.invalidate(w); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

// apart times n binds and n invalidations, each kind for itself.
func (b *binder) apart(n int) (bind, invalidate time.Duration, err error) {
	return batches(n, b.windows, b.bind, b.invalidate)
}
