package measure

import (
	"context"
	"errors"

	"github.com/softnd/softnd/bench/report"
	"github.com/softnd/softnd/nd"
)

// windowsAtOnce is the number of windows that are bound before they are invalidated, if Bind and Invalidate are timed
// separately.
const windowsAtOnce = 256

// runBind measures Bind and Invalidate with no other request in flight. It posts each request and polls its completion.
// It measures the two as a pair, and each alone.
func runBind(ctx context.Context, w *World, o Options) (found []report.Result, err error) {
	for _, size := range sizes(o, 64, 4096, 1<<20) {
		if w.crew != nil {
			r, err := helpedBind(ctx, w, o, size)
			if err != nil {
				return nil, err
			}
			found = append(found, r...)
			continue
		}
		b, err := newBinder(ctx, w, o, size)
		if err != nil {
			return nil, err
		}
		r, err := b.measure(ctx, w, o)
		if err := afterAll(ctx, w, err, b.close); err != nil {
			return nil, err
		}
		found = append(found, r...)
	}
	return found, nil
}

// helpedBind measures the pair with helpers as both ranks.
func helpedBind(ctx context.Context, w *World, o Options, size int) (_ []report.Result, err error) {
	o.Pairs, o.Inline = 1, false
	res := newResult("bind_invalidate", "ns", "less", "", o)
	p, err := w.open(ctx, o, nd.RequestBind, linkConfig{size: size, depth: 1}, &res, steps{figure: func(ns float64, _ int) float64 { return ns }})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err == nil {
			err = p.close()
		}
	}()
	res.Settings = p.settings
	l := &loop{result: res,
		run: func(_ context.Context, n int) (float64, error) {
			took, err := p.repeat(n)
			return nsPerOp(took, n), err
		},
		sample: func(_ context.Context, n int, h *histogram) error { return p.sample(n, h) },
	}
	l.againstExchange(w)
	return l.measure(ctx, w, o)
}

// binder binds windows to the same part of a region, and invalidates them.
type binder struct {
	*link
	windows []nd.MemoryWindow
}

func newBinder(ctx context.Context, w *World, o Options, size int) (*binder, error) {
	o.Pairs, o.Inline = 1, false
	l, err := openLink(ctx, w, o, linkConfig{size: size, depth: 1})
	if err != nil {
		return nil, err
	}
	b := &binder{link: l}
	for range windowsAtOnce {
		mw, err := w.Job.Adapter().CreateMemoryWindow(ctx)
		if err != nil {
			return nil, errors.Join(err, b.close())
		}
		nd.Expect(mw, "the region is open for other tests", "N403")
		b.windows = append(b.windows, mw)
	}
	return b, nil
}

func (b *binder) measure(ctx context.Context, w *World, o Options) ([]report.Result, error) {
	pair := &loop{result: b.timed("bind_invalidate"), run: onRank0(w, b.together), sample: sampleOnRank0(w, b.together)}
	pair.againstExchange(w)
	together, err := pair.measure(ctx, w, o)
	if err != nil {
		return nil, err
	}
	apart := reversible{objects: len(b.windows), do: b.bind, undo: b.invalidate}
	each, err := apart.latency(ctx, w, o, b.timed("bind"), b.timed("invalidate"))
	return append(together, each...), err
}

func (b *binder) timed(test string) report.Result {
	res := newResult(test, "ns", "less", "", b.o)
	res.Settings = b.o.settings(b.size)
	return res
}

func (b *binder) bind(i int) error {
	p := &b.pairs[0]
	if err := p.ep.Bind(0, b.mr, b.windows[i], p.land.Buffer, nd.AllowRead|nd.AllowWrite); err != nil {
		return err
	}
	return b.complete(b.done + 1)
}

func (b *binder) invalidate(i int) error {
	if err := b.pairs[0].ep.Invalidate(0, b.windows[i], 0); err != nil {
		return err
	}
	return b.complete(b.done + 1)
}

// together binds a window and invalidates it, n times.
func (b *binder) together(n int) error {
	for range n {
		if err := b.bind(0); err != nil {
			return err
		}
		if err := b.invalidate(0); err != nil {
			return err
		}
	}
	return nil
}

func (b *binder) close() (err error) {
	for _, w := range b.windows {
		err = errors.Join(err, w.Close(b.ctx))
	}
	return errors.Join(err, b.release())
}
