package measure

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/softnd/softnd/bench"
	"github.com/softnd/softnd/bench/internal/median"
	"github.com/softnd/softnd/nd"
)

// limits measures the best that the machine can do, in nanoseconds. Ranks 0 and 1 call its methods together, and other ranks
// do not. Each call measures again. The methods return the figure on rank 0.
type limits struct {
	side     int // 0 measures, 1 answers
	line     *bench.Line
	allocate func(size int) (nd.MemoryRegion, error)
	places   []place // of memcpy, for one size
	next     int
}

// place is memory of a copy.
type place struct {
	mr       nd.MemoryRegion
	from, to []byte
}

// memcpy uses several places in turn, if they are not too large: whether pages compete for the lines of a cache depends on where they
// lie, and changes the time of a copy by a tenth.
const (
	copyPlaces = 8
	copyBytes  = 64 << 20 // of all places
)

// rawLine measures the half round trip of a cache line between the two ranks.
func (l *limits) rawLine() (float64, error) {
	if err := l.usable(); err != nil {
		return 0, err
	}
	trip := 0.0
	l.bounces(false, func() {
		trip = repeatedly(func(n int) {
			for range n {
				l.line.Bounce()
			}
		})
	})
	return trip / 2, nil
}

// sampleRawLine makes n round trips of that line, and on rank 0 records half of each.
func (l *limits) sampleRawLine(n int, h *histogram) error {
	if err := l.usable(); err != nil {
		return err
	}
	clock := newClock()
	l.bounces(false, func() {
		for range n {
			start := clock.now()
			l.line.Bounce()
			h.record(clock.ns(start, clock.now()) / 2)
		}
	})
	return nil
}

// rawSwitch measures how long the two ranks take to pass a core from one to the other with sched_yield(2).
func (l *limits) rawSwitch() (float64, error) {
	if err := l.usable(); err != nil {
		return 0, err
	}
	restore, err := bench.Pin(0)
	if err != nil {
		return 0, err
	}
	trip := 0.0
	l.bounces(true, func() {
		trip = repeatedly(func(n int) {
			for range n {
				l.line.BounceYielding()
			}
		})
	})
	return trip / 2, restore()
}

// bounces runs f on rank 0 while rank 1 echoes its round trips.
func (l *limits) bounces(yielding bool, f func()) {
	l.line.Meet(l.side)
	if l.side == 0 {
		f()
	} else {
		l.line.Echo(yielding)
	}
	l.line.Meet(l.side)
}

// exchange measures an atomic exchange by one rank, of a word of its own, while the other rank waits. This is the least
// cost of a full barrier on this processor.
func (l *limits) exchange() (float64, error) {
	return l.alone(func() float64 {
		word := new(atomic.Uint64)
		return repeatedly(func(n int) {
			for i := range uint64(n) {
				word.Swap(i)
			}
		})
	})
}

// memcpy measures a plain copy of size bytes by one rank while the other rank waits. The memory is of the arena, as that of most
// transfers. The figure is the mean of the windows, as a repeat is the mean of its transfers: what another program does to the caches
// slows both down alike.
func (l *limits) memcpy(size int) (float64, error) {
	err := l.makePlaces(size)
	ns, failed := l.alone(func() float64 { // also after an error, because rank 1 takes part
		if err != nil {
			return 0
		}
		l.next = (l.next + 1) % len(l.places)
		p := l.places[l.next]
		copy(p.to, p.from)
		figures := windowsOf(func(n int) {
			for range n {
				copy(p.to, p.from)
			}
		})
		return sum(figures) / float64(len(figures))
	})
	if err != nil {
		return 0, fmt.Errorf("measure: limit: memory of copies: %w", err)
	}
	return ns, failed
}

// makePlaces makes the places of one size, and releases those of another.
func (l *limits) makePlaces(size int) error {
	if l.side != 0 || len(l.places) > 0 && len(l.places[0].from) == size {
		return nil
	}
	for _, p := range l.places {
		if err := errors.Join(p.mr.Deregister(context.Background()), p.mr.Close(context.Background())); err != nil {
			return err
		}
	}
	l.places = nil
	to := (size + 63) &^ 63 // at the beginning of a line, as the places of transfers
	for range max(1, min(copyPlaces, copyBytes/(2*to))) {
		mr, err := l.allocate(to + size)
		if err != nil {
			return err
		}
		mem := mr.Bytes()
		pattern(mem)
		l.places = append(l.places, place{mr, mem[:size], mem[to:]})
	}
	return nil
}

// alone runs f on rank 0 while rank 1 rests. Rank 1 returns 0.
func (l *limits) alone(f func() float64) (float64, error) {
	if err := l.usable(); err != nil {
		return 0, err
	}
	l.line.Meet(l.side)
	defer l.line.Meet(l.side)
	if l.side == 1 {
		return 0, nil
	}
	return f(), nil
}

const (
	limitTime   = 2 * time.Millisecond // in which a limit is measured, if its rounds are short
	windows     = 9                    // parts of that time, each with a figure of its own
	fewWindows  = 3                    // are enough of rounds that take longer
	longestTime = 4 * limitTime        // for more windows than that
)

// repeatedly returns the nanoseconds of one round of the loop: the median of
// several windows, so that an interruption of one of them does not count.
func repeatedly(loop func(n int)) float64 { return median.Of(windowsOf(loop)) }

// windowsOf returns the nanoseconds of one round of the loop in several windows.
func windowsOf(loop func(n int)) (figures []float64) {
	timed := func(n int) time.Duration {
		start := time.Now()
		loop(n)
		return time.Since(start)
	}
	n := 1
	for timed(n) < limitTime/windows {
		n *= 2
	}
	for start := time.Now(); len(figures) < fewWindows || len(figures) < windows && time.Since(start) < longestTime; {
		figures = append(figures, nsPerOp(timed(n), n))
	}
	return figures
}

func (l *limits) usable() error {
	if l.side > 1 {
		return fmt.Errorf("measure: limit: called on rank %d: want rank 0 or 1", l.side)
	}
	return nil
}
