package shm

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/doorbell"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

// pingPong waits for every second value of a turn word, as all waiters do: arm, check again, sleep.
// There is no timeout, which would hide a lost wake-up. more reports whether to continue; only one
// side calls it.
func pingPong(turn *atomic.Uint64, mine, theirs *doorbell.Doorbell, first uint64, more func(i uint64) bool) {
	for i := first; ; i += 2 {
		for now := turn.Load(); now != i; now = turn.Load() {
			if now == gameOver {
				return
			}
			ticket := mine.Arm()
			if turn.Load() == now {
				mine.Sleep(ticket, 0)
			}
		}
		for range i * 2654435761 >> 7 % 512 { // the delay varies, so that the ring comes at any point before the other side sleeps
			turn.Load()
		}
		if !more(i) {
			turn.Store(gameOver)
			theirs.Ring()
			return
		}
		turn.Store(i + 1)
		theirs.Ring()
	}
}

const gameOver = ^uint64(0)

type turnWord struct{ turn atomic.Uint64 }

var rolePingPong = proctest.Role("ping-pong", func(self *proctest.Self) error {
	var off Offset
	var id MemberID
	if _, err := fmt.Sscan(self.Args[0], &off); err != nil {
		return err
	}
	if _, err := fmt.Sscan(self.Args[1], &id); err != nil {
		return err
	}
	m, err := joinInherited(self, NoRank)
	if err != nil {
		return err
	}
	turn, err := At[turnWord](m.Arena(), off)
	if err != nil {
		return err
	}
	p, err := m.Arena().Peer(id)
	if err != nil {
		return err
	}
	self.Say("%d", m.ID())
	pingPong(&turn.turn, m.WaitDoorbell(), &p.rec.waiters, 1, func(uint64) bool { return true })
	return m.Leave()
})

func TestWakeUpsAreNotLost(t *testing.T) {
	a := newArena(t, 0)
	turns, budget := uint64(200_000), 4*time.Second // on a busy machine a turn takes milliseconds
	if testing.Short() {
		turns, budget = 5000, time.Second
	}
	m := join(t, a, NoRank)
	off, err := m.heap.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	word, err := At[turnWord](a, off)
	if err != nil {
		t.Fatal(err)
	}
	c := proctest.StartWith(t, a.File(), rolePingPong, uint64(off), uint64(m.ID()))
	p := peerOf(t, m, memberIDFrom(t, c.Hear()))
	finished := make(chan uint64, 1)
	go func() {
		last, end := uint64(0), time.Now().Add(budget)
		pingPong(&word.turn, m.WaitDoorbell(), &p.rec.waiters, 0, func(i uint64) bool {
			last = i
			return i < turns && time.Now().Before(end)
		})
		finished <- last
	}()
	for last := uint64(0); ; {
		select {
		case count := <-finished:
			t.Logf("%d turns, each after a ring", count)
			c.Wait()
			return
		case <-time.After(proctest.Timeout / 3):
		}
		if now := word.turn.Load(); now != last {
			last = now
			continue
		}
		t.Errorf("stuck at turn %d of %d; bells armed: ours %v, theirs %v", last, turns, m.rec.waiters.Armed(), p.rec.waiters.Armed())
		c.Kill()
		word.turn.Store(gameOver)
		m.WaitDoorbell().WakeAll()
		<-finished
		return
	}
}
