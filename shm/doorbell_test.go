package shm

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/proctest"
	"github.com/softnd/softnd/internal/sched"
)

func TestRingOfUnarmedDoorbellWakesNone(t *testing.T) {
	bell := Doorbell{new(doorbellWords)}
	if bell.Ring() || bell.Armed() {
		t.Error("an unarmed doorbell")
	}
	if seq := bell.words.seq.Load(); seq != 0 {
		t.Errorf("the futex word has changed to %d", seq)
	}
	ticket := bell.Arm()
	if !bell.Armed() || !bell.Ring() {
		t.Error("an armed bell")
	}
	if bell.Armed() || bell.Ring() {
		t.Error("a bell that has been rung")
	}
	bell.Sleep(ticket, 0) // returns: the doorbell was rung after Arm
	bell.Arm()
	bell.Disarm()
	if bell.Armed() || bell.Ring() {
		t.Error("a disarmed bell")
	}
}

func TestSleepTimesOut(t *testing.T) {
	bell := Doorbell{new(doorbellWords)}
	bell.Sleep(bell.Arm(), time.Millisecond)
	if !bell.Armed() {
		t.Error("the bell has disarmed itself")
	}
}

// A ringer that dies in the middle of Ring leaves the doorbell in one of these states. The next ring
// must wake the waiters.
func TestRingWakesWaitersAfterRingerDied(t *testing.T) {
	for name, die := range map[string]func(*doorbellWords){
		"before it marked the bell": func(*doorbellWords) {},
		"after it marked the bell":  func(w *doorbellWords) { w.armed.Store(mark ^ 4) },
		"before it woke them":       func(w *doorbellWords) { w.armed.Store(mark ^ 4); w.seq.Add(1) },
	} {
		t.Run(name, func(t *testing.T) {
			bell := Doorbell{new(doorbellWords)}
			bell.Arm()
			var asleep sync.WaitGroup
			asleep.Go(func() {
				// Asleep before the ringer began: the kernel has compared this seq.
				bell.Sleep(bell.words.seq.Load(), 0)
			})
			time.Sleep(5 * time.Millisecond) // probably asleep now; if not, the test is only weaker
			die(bell.words)
			if !bell.Ring() {
				t.Error("the bell takes itself for rung")
				bell.wake()
			}
			asleep.Wait()
			if bell.Armed() {
				t.Error("the bell is still armed")
			}
		})
	}
}

// A ringer loads armed, and then finds the doorbell disarmed. The waiter may have checked for work
// before the ringer's store was visible, so Ring must ring the engine's doorbell too.
func TestRingOfDisarmedDoorbellRingsTheOther(t *testing.T) {
	bell := Doorbell{new(doorbellWords)}
	bell.Arm()
	bell.Disarm()
	if bell.ring() {
		t.Error("a bell that its last waiter has left counts as rung")
	}
	bell.Arm()
	if !bell.ring() {
		t.Error("an armed bell does not count as rung")
	}
}

// A slow ringer must not remove the mark of another ringer, which may be stopped before it has woken
// a waiter.
func TestRingKeepsMarksOfOtherRingers(t *testing.T) {
	words := new(doorbellWords)
	bell := Doorbell{words}
	other := mark ^ 4
	bell.Arm()
	left, ok := bell.claim()                 // this process is about to disarm the doorbell;
	bell.Arm()                               // its waiter sleeps again,
	words.armed.CompareAndSwap(armed, other) // and another process has marked the doorbell and not woken the waiter
	bell.settle(left)
	if !ok {
		t.Error("an armed bell cannot be claimed")
	}
	if !bell.Armed() || !bell.Ring() {
		t.Error("no ringer will wake the waiter")
	}
}

// A mark differs from unarmed and from armed.
func TestMarkDiffersFromArmedValues(t *testing.T) {
	if mark == unarmed || mark == armed || mark^4 == unarmed || mark^4 == armed {
		t.Errorf("the mark is %#x", mark)
	}
}

// A waiter that arms again while it is being woken stays armed.
func TestArmDuringRingStaysArmed(t *testing.T) {
	words := new(doorbellWords)
	bell := Doorbell{words}
	bell.Arm()
	words.armed.CompareAndSwap(armed, mark) // first part of Ring
	ticket := bell.Arm()
	words.seq.Add(1) // second part of Ring
	words.armed.CompareAndSwap(mark, unarmed)
	if !bell.Armed() {
		t.Error("the ringer has disarmed a new waiter")
	}
	bell.Sleep(ticket, 0) // returns: the doorbell was rung after Arm
}

// lockstep runs first and second at the same moment, repeatedly, and between two rounds runs between
// alone. It returns the number of rounds, which is less than rounds on a busy machine.
func lockstep(rounds uint64, first, second, between func(round uint64)) uint64 {
	var at [2]atomic.Uint64
	var over atomic.Bool
	meet := func(self int, i uint64) {
		at[self].Store(i)
		for k := 1; at[1-self].Load() < i; k++ {
			if k%200 == 0 {
				runtime.Gosched()
			}
			if k%5000 == 0 {
				sched.Yield()
			}
		}
	}
	var done sync.WaitGroup
	done.Go(func() {
		for i := uint64(0); ; i++ {
			meet(1, 2*i+1)
			if over.Load() {
				return
			}
			second(i + 1)
			meet(1, 2*i+2)
		}
	})
	end := time.Now().Add(time.Second)
	i := uint64(0)
	for ; ; i++ {
		over.Store(i == rounds || time.Now().After(end))
		meet(0, 2*i+1)
		if over.Load() {
			break
		}
		first(i + 1)
		meet(0, 2*i+2)
		between(i + 1) // the other goroutine waits for the next step
	}
	done.Wait()
	return i
}

// A waiter arms the doorbell while a ringer stores work: one of them sees the other's store.
func TestArmAndRingSeeEachOther(t *testing.T) {
	a := newArena(t, 0)
	m := join(t, a, NoRank)
	off, err := m.heap.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	word, err := At[turnWord](a, off)
	if err != nil {
		t.Fatal(err)
	}
	bell, missed := m.WaitDoorbell(), 0
	var saw, rang atomic.Bool
	rounds := lockstep(100_000, func(i uint64) {
		bell.Arm()
		saw.Store(word.turn.Load() == i)
	}, func(i uint64) {
		word.turn.Store(i)
		rang.Store(bell.Ring())
	}, func(uint64) {
		if !saw.Load() && !rang.Load() {
			missed++
		}
		bell.Disarm()
	})
	t.Logf("%d rounds", rounds)
	if missed > 0 {
		t.Errorf("in %d of %d rounds the waiter saw no work and the ringer no waiter", missed, rounds)
	}
}

// pingPong waits for every second value of a turn word, as all waiters do: arm, check again, sleep.
// There is no timeout, which would hide a lost wake-up. more reports whether to continue; only one
// side calls it.
func pingPong(turn *atomic.Uint64, mine, theirs Doorbell, first uint64, more func(i uint64) bool) {
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
	pingPong(&turn.turn, m.WaitDoorbell(), Doorbell{&p.rec.waiters}, 1, func(uint64) bool { return true })
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
	c := start(t, a, rolePingPong, uint64(off), uint64(m.ID()))
	p := peerOf(t, m, memberIDFrom(t, c.Hear()))
	finished := make(chan uint64, 1)
	go func() {
		last, end := uint64(0), time.Now().Add(budget)
		pingPong(&word.turn, m.WaitDoorbell(), Doorbell{&p.rec.waiters}, 0, func(i uint64) bool {
			last = i
			return i < turns && time.Now().Before(end)
		})
		finished <- last
	}()
	for last := uint64(0); ; {
		select {
		case played := <-finished:
			t.Logf("%d turns, each after a ring", played)
			c.Wait()
			return
		case <-time.After(proctest.Timeout / 3):
		}
		if now := word.turn.Load(); now != last {
			last = now
			continue
		}
		t.Errorf("stuck at turn %d of %d; bells: ours %d, theirs %d", last, turns, m.rec.waiters.armed.Load(), p.rec.waiters.armed.Load())
		c.Kill()
		word.turn.Store(gameOver)
		m.WaitDoorbell().wake()
		<-finished
		return
	}
}

// Several waiters sleep on one doorbell, and several ringers ring it.
func TestRingWakesAllWaiters(t *testing.T) {
	bell := Doorbell{new(doorbellWords)}
	const waiters, rounds = 4, 300
	var turn atomic.Uint64
	var seen [waiters]atomic.Uint64
	var done sync.WaitGroup
	for i := range waiters {
		done.Go(func() {
			for want := uint64(1); want <= rounds; want++ {
				for turn.Load() < want {
					ticket := bell.Arm()
					if turn.Load() >= want {
						break // without Disarm: others may sleep
					}
					bell.Sleep(ticket, 0)
				}
				seen[i].Store(want)
			}
		})
	}
	for want := uint64(1); want <= rounds; want++ {
		turn.Store(want)
		var ringers sync.WaitGroup
		for range 2 {
			ringers.Go(func() { bell.Ring() })
		}
		ringers.Wait()
		for i := range seen {
			proctest.Eventually(t, fmt.Sprintf("waiter %d sees turn %d", i, want), func() bool { return seen[i].Load() >= want })
		}
	}
	done.Wait()
}
