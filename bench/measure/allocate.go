package measure

import (
	"sync/atomic"
	"time"
)

const (
	garbageObject = 4 << 10
	garbageLive   = 1024 // objects that are not garbage yet
	garbageTick   = time.Millisecond
)

// garbage allocates memory in the background, evenly, and lets it go.
type garbage struct {
	stop, done chan struct{}
	bytes      int64 // allocated; to be read when done is closed
	start      time.Time
	live       [garbageLive]atomic.Pointer[[garbageObject]byte]
}

// litter starts to allocate rate bytes per second.
func litter(rate int64) *garbage {
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
			g.live[i%garbageLive].Store(new([garbageObject]byte))
			g.bytes += garbageObject
		}
		select {
		case <-g.stop:
			return
		case <-tick.C:
		}
	}
}

// end stops the allocation, and returns the bytes per second that were reached.
func (g *garbage) end() float64 {
	close(g.stop)
	<-g.done
	return float64(g.bytes) / time.Since(g.start).Seconds()
}
