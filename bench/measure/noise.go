package measure

import (
	"context"
	"slices"
	"time"

	"github.com/softnd/softnd/bench/report"
)

const (
	noiseRate = 1e9 // bytes allocated in a second, by each rank
	noiseSize = 8
	// So many operations have a p99.9 that single accidents do not make.
	leastNoiseOps = 20000
)

// runAllocNoise measures the latency that one Write in a thousand exceeds, with and without a goroutine of each rank that
// allocates memory. Each repeat measures both, one after the other. It also measures the bare cache line both ways, which
// shows the effect of the Go runtime on any loop that polls.
func runAllocNoise(ctx context.Context, w *World, o Options) (found []report.Result, err error) {
	o.Pairs = 1
	for _, size := range sizes(o, noiseSize) {
		l, err := openLink(ctx, w, o, writeLat.config.sized(size))
		if err != nil {
			return nil, err
		}
		n := &noise{w: w, l: l}
		res := newResult("alloc_noise", "ratio", "less", "", o)
		res.Settings = l.o.settings(l.size)
		r, err := n.measure(ctx, o, res)
		if err := afterAll(ctx, w, err, l.release); err != nil {
			return nil, err
		}
		for i := range r {
			note(&r[i], "%.2g GB/s allocated by the slower rank; p99.9 of the half round trip %.0f ns without and %.0f ns with it, of the bare line %.0f and %.0f ns, at the end",
				n.reached/1e9, n.quiet.write, n.noisy.write, n.quiet.line, n.noisy.line)
		}
		found = append(found, r...)
	}
	return found, nil
}

// noise is the result of the last repeat.
type noise struct {
	w            *World
	l            *link
	quiet, noisy tails   // on rank 0
	reached      float64 // bytes a second
}

// tails are 99.9th percentiles, in nanoseconds.
type tails struct{ write, line float64 }

// measure chooses the number of operations without noise, because starting and ending the noise takes as long as many
// operations.
func (n *noise) measure(ctx context.Context, o Options, res report.Result) ([]report.Result, error) {
	if o.Iterations == 0 {
		quiet := &loop{result: res, run: func(_ context.Context, ops int) (float64, error) { return n.tail(max(ops, 1)) }}
		ops, err := quiet.iterations(ctx, n.w, o)
		if err != nil {
			return nil, quiet.failed("choice of iterations", err)
		}
		o.Iterations = max(ops, leastNoiseOps)
	}
	loop := &loop{result: res, run: n.repeat, limitName: rawLineNoiseLimit, limitUnit: "ratio", within: true}
	loop.limit = func(float64) (float64, error) { return n.noisy.line / n.quiet.line, nil }
	return loop.measure(ctx, n.w, o)
}

func (n *noise) repeat(ctx context.Context, ops int) (_ float64, err error) {
	if n.quiet, err = n.tails(ops); err != nil {
		return 0, err
	}
	if err := n.w.Job.Barrier(ctx); err != nil {
		return 0, err
	}
	g := startGarbage(noiseRate)
	n.noisy, err = n.tails(ops)
	reached := g.end()
	if err != nil {
		return 0, err
	}
	all, err := gather(ctx, n.w, reached)
	if err != nil || !n.l.active() {
		return 0, err
	}
	n.reached = slices.Min(all)
	return n.noisy.write / n.quiet.write, nil
}

// tails measures both, one after the other.
func (n *noise) tails(ops int) (found tails, err error) {
	if found.write, err = n.tail(ops); err != nil {
		return found, err
	}
	h := new(histogram)
	if err := n.w.limits.sampleRawLine(ops, h); err != nil || !n.l.active() {
		return found, err
	}
	found.line = h.distribution().P999
	return found, nil
}

// tail makes Writes back and forth, and returns their p99.9 on rank 0.
func (n *noise) tail(ops int) (float64, error) {
	h := new(histogram)
	if err := writeLat.sample(n.l, ops, h); err != nil || !n.l.active() {
		return 0, err
	}
	return h.distribution().P999, nil
}

const (
	garbageObject = 4 << 10
	garbageLive   = 1024 // objects that are not garbage yet
	garbageTick   = time.Millisecond
)

// garbage is a goroutine that allocates memory at a constant rate and drops it.
type garbage struct {
	stop, done chan struct{}
	bytes      int64 // allocated so far; the goroutine's
	start      time.Time
	live       [garbageLive]*[garbageObject]byte
}

// startGarbage starts to allocate rate bytes per second.
func startGarbage(rate int64) *garbage {
	g := &garbage{stop: make(chan struct{}), done: make(chan struct{}), start: time.Now()}
	go g.run(rate)
	return g
}

func (g *garbage) run(rate int64) {
	defer close(g.done)
	tick := time.NewTicker(garbageTick)
	defer tick.Stop()
	for i := 0; ; {
		owed := int64(float64(rate) * time.Since(g.start).Seconds())
		for ; g.bytes < owed; i++ {
			g.live[i%garbageLive] = new([garbageObject]byte)
			g.bytes += garbageObject
		}
		select {
		case <-g.stop:
			return
		case <-tick.C:
		}
	}
}

// end stops the goroutine, and returns how many bytes per second it has allocated.
func (g *garbage) end() float64 {
	close(g.stop)
	<-g.done
	return float64(g.bytes) / time.Since(g.start).Seconds()
}
