package measure

import (
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
	begin, from := time.Now(), ticks()
	time.Sleep(lasting)
	took, to := time.Since(begin), ticks()
	return float64(took.Nanoseconds()) / float64(max(to-from, 1))
}
