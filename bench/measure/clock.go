package measure

import (
	"math"
	"sync"
	"time"
)

// clock is a cheap clock for single operations. Its own cost, some nanoseconds per reading, is part of each figure.
// newClock returns one.
type clock struct {
	nsPerTick float64
}

// newClock returns the clock of this process, calibrated once.
var newClock = sync.OnceValue(func() *clock {
	return &clock{nsPerTick: calibrate()}
})

// now returns the time in ticks.
func (c *clock) now() uint64 { return ticks() }

// ns returns the nanoseconds from one time to a later one.
func (c *clock) ns(from, to uint64) float64 { return float64(int64(to-from)) * c.nsPerTick }

// calibrate returns the length of a tick, in nanoseconds of the monotonic clock.
func calibrate() float64 {
	const lasting = 10 * time.Millisecond
	begin, from := sample()
	time.Sleep(lasting)
	end, to := sample()
	return float64(end.Sub(begin).Nanoseconds()) / float64(max(to-from, 1))
}

// sample returns the times of the monotonic clock and of this one, read at nearly the same time. It reads both again if the
// operating system took the processor away in between.
func sample() (at time.Time, tick uint64) {
	const near = time.Microsecond
	least := time.Duration(math.MaxInt64)
	for range 1000 {
		t, k := time.Now(), ticks()
		if gap := time.Since(t); gap < least {
			at, tick, least = t, k, gap
		}
		if least < near {
			break
		}
	}
	return at, tick
}
