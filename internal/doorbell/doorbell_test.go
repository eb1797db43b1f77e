package doorbell

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

func TestRingOfUnarmedDoorbellWakesNone(t *testing.T) {
	bell := new(Doorbell)
	if bell.Ring() || bell.Armed() {
		t.Error("an unarmed doorbell")
	}
	if seq := bell.seq.Load(); seq != 0 {
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
	bell := new(Doorbell)
	bell.Sleep(bell.Arm(), time.Millisecond)
	if !bell.Armed() {
		t.Error("the bell has disarmed itself")
	}
}

// A ringer that dies in the middle of Ring leaves the doorbell in one of these states. The next ring
// must wake the waiters.
func TestRingWakesWaitersAfterRingerDied(t *testing.T) {
	for name, die := range map[string]func(*Doorbell){
		"before it marked the bell": func(*Doorbell) {},
		"after it marked the bell":  func(d *Doorbell) { d.armed.Store(mark ^ 4) },
		"before it woke them":       func(d *Doorbell) { d.armed.Store(mark ^ 4); d.seq.Add(1) },
	} {
		t.Run(name, func(t *testing.T) {
			bell := new(Doorbell)
			ticket := bell.Arm()
			var asleep sync.WaitGroup
			asleep.Go(func() { bell.Sleep(ticket, 0) })
			time.Sleep(5 * time.Millisecond) // probably asleep now, before the ringer begins; if not, the test is only weaker
			die(bell)
			if !bell.Ring() {
				t.Error("the bell takes itself for rung")
				bell.WakeAll()
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
	bell := new(Doorbell)
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
	bell := new(Doorbell)
	other := mark ^ 4
	bell.Arm()
	left, ok := bell.claim()                // this process is about to disarm the doorbell;
	bell.Arm()                              // its waiter sleeps again,
	bell.armed.CompareAndSwap(armed, other) // and another process has marked the doorbell and not woken the waiter
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
	bell := new(Doorbell)
	bell.Arm()
	bell.armed.CompareAndSwap(armed, mark) // first part of Ring
	ticket := bell.Arm()
	bell.seq.Add(1) // second part of Ring
	bell.armed.CompareAndSwap(mark, unarmed)
	if !bell.Armed() {
		t.Error("the ringer has disarmed a new waiter")
	}
	bell.Sleep(ticket, 0) // returns: the doorbell was rung after Arm
}

// A waiter arms the doorbell while a ringer stores work: one of them sees the other's store.
func TestArmAndRingSeeEachOther(t *testing.T) {
	var word atomic.Uint64
	bell, missed := new(Doorbell), 0
	var saw, rang atomic.Bool
	rounds := proctest.Lockstep(100_000, func(i uint64) {
		bell.Arm()
		saw.Store(word.Load() == i)
	}, func(i uint64) {
		word.Store(i)
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

// Several waiters sleep on one doorbell, and several ringers ring it.
func TestRingWakesAllWaiters(t *testing.T) {
	bell := new(Doorbell)
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
