package measure

import (
	"context"
	"errors"
	"time"

	"github.com/softnd/softnd/bench/report"
	"github.com/softnd/softnd/nd"
)

// BindInvalidate measures lending memory and taking it back, with nothing in
// flight, each request posted and its completion polled: the two as a pair, and
// each for itself.
func BindInvalidate() Test {
	return Test{Name: "bind_invalidate", Title: "Bind and Invalidate of a window, nothing in flight", Ranks: 2, Run: runBind}
}

// windowsAtOnce is how many windows are bound before they are invalidated,
// where the two are timed apart.
const windowsAtOnce = 256

func runBind(ctx context.Context, w *World, o Options) (found []report.Result, err error) {
	b, err := newBinder(ctx, w)
	if err != nil {
		return nil, err
	}
	defer func() { err = afterAll(ctx, w, err, b.close) }()
	for _, size := range sizesOf(o, 64, 4096, 1<<20) {
		if b.mr, err = newRegion(ctx, w.Job.Adapter(), size, o.Private); err != nil {
			return nil, err
		}
		pair := &Loop{Result: timed(w, o, "bind_invalidate", size), Run: onRank0(w, b.pairs), Sample: sampleOnRank0(w, b.pair)}
		r, err := pair.Measure(ctx, w, o)
		if err != nil {
			return nil, err
		}
		found = append(found, r...)
		if r, err = b.apart().latency(ctx, w, o, timed(w, o, "bind", size), timed(w, o, "invalidate", size)); err != nil {
			return nil, err
		}
		found = append(found, r...)
		if err := b.mr.Close(); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// binder binds and invalidates windows over one region.
type binder struct {
	*wire
	mr      nd.MemoryRegion
	windows []nd.MemoryWindow
}

func newBinder(ctx context.Context, w *World) (*binder, error) {
	wire, err := connectWire(ctx, w)
	if err != nil {
		return nil, err
	}
	b := &binder{wire: wire}
	for range windowsAtOnce {
		mw, err := w.Job.Adapter().CreateMemoryWindow(ctx)
		if err != nil {
			return nil, errors.Join(err, b.close())
		}
		b.windows = append(b.windows, mw)
	}
	return b, nil
}

func (b *binder) bind(i int) error {
	if err := b.ep.Bind(0, b.mr, b.windows[i], b.mr.Bytes(), nd.AllowRead|nd.AllowWrite); err != nil {
		return err
	}
	return b.take(1)
}

func (b *binder) invalidate(i int) error {
	if err := b.ep.Invalidate(0, b.windows[i], 0); err != nil {
		return err
	}
	return b.take(1)
}

func (b *binder) pair() error {
	if err := b.bind(0); err != nil {
		return err
	}
	return b.invalidate(0)
}

// pairs times n binds, each followed by its invalidation.
func (b *binder) pairs(n int) (time.Duration, error) {
	start := time.Now()
	for range n {
		if err := b.pair(); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

func (b *binder) apart() turns {
	return turns{objects: len(b.windows), do: b.bind, undo: b.invalidate}
}

func (b *binder) close() (err error) {
	for _, w := range b.windows {
		err = errors.Join(err, w.Close())
	}
	return errors.Join(err, b.wire.close())
}
