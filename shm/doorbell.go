package shm

import (
	"math/rand/v2"
	"time"

	"github.com/softnd/softnd/internal/asym"
)

// Doorbell wakes the sleepers of one member. Sleepers arm it, look once more
// for work, and sleep; whoever has made work rings it. A ring costs a load
// when nobody is armed.
//
// The protocol that loses no wake-up: the sleeper stores armed and then looks
// at the work; the ringer stores the work and then looks at armed. One of them
// sees the other (ORDER doorbell-armed). The ringer's store need not be a
// barrier if the sleeper's process reaches it with [asym.HeavyGlobal].
type Doorbell struct{ words *doorbellWords }

// Values of the armed word. Any other is the mark of a process that is waking
// the sleepers.
const (
	unarmed = iota
	armed   // there is a sleeper, or about to be
)

// mark is this process's own, so that a ringer removes no mark but its own: a
// process that is stopped or killed over a ring leaves the bell for the next one.
var mark = rand.Uint32() | 2

// Arm announces a sleeper and returns the ticket to sleep with. The caller
// must look for work between Arm and [Doorbell.Sleep].
func (d Doorbell) Arm() (ticket uint32) {
	ticket = d.words.seq.Load()
	d.words.armed.Swap(armed) // ORDER doorbell-armed: pairs with the load in Quiet
	asym.HeavyGlobal()        // for ringers whose stores are no barriers; see Producer.Relax
	return ticket
}

// Sleep blocks until the bell has been rung since the ticket was taken, or
// timeout has passed (0 = no timeout). It may return early.
func (d Doorbell) Sleep(ticket uint32, timeout time.Duration) {
	futexSleep(&d.words.seq, ticket, timeout)
}

// Disarm withdraws the announcement. The caller knows that no other sleeper of
// this bell is left: one that still sleeps would not be woken.
func (d Doorbell) Disarm() { d.words.armed.Store(unarmed) }

// Armed tells whether somebody sleeps or is about to.
func (d Doorbell) Armed() bool { return d.words.armed.Load() != unarmed }

// Quiet tells whether a ring would wake nobody. The conditions of [Doorbell.Ring] hold.
func (d Doorbell) Quiet() bool {
	fence(&d.words.armed)
	return d.words.armed.Load() == unarmed // ORDER doorbell-armed: pairs with the swap in Arm
}

// Ring wakes all sleepers if the bell is armed, and reports whether it was.
// The caller has stored what the sleepers are to find, with a barrier unless
// they pay for it; see [Producer.Relax].
func (d Doorbell) Ring() bool { return !d.Quiet() && d.ring() }

// ring wakes the sleepers of a bell that was armed, and reports whether it still
// is. If not, the last sleeper may have checked for work before the caller's store
// was visible, which it is since the exchange: another bell has to be rung.
func (d Doorbell) ring() bool {
	left, ok := d.claim()
	if !ok {
		return false
	}
	d.wake()
	d.settle(left)
	return true
}

// claim marks an armed bell before its sleepers are woken, and returns what settle is to
// remove afterwards. ok is false if the bell is not armed any more.
func (d Doorbell) claim() (left uint32, ok bool) {
	if d.words.armed.CompareAndSwap(armed, mark) {
		return mark, true
	}
	switch left = d.words.armed.Load(); left {
	case unarmed:
		return unarmed, false
	case armed: // again: its sleeper checks for work after the exchange, and stays armed
		return unarmed, true
	}
	return left, true
}

// settle disarms a bell whose sleepers have been woken, unless it has been armed again, or
// marked by another process.
func (d Doorbell) settle(left uint32) { d.words.armed.CompareAndSwap(left, unarmed) }

// wake wakes all sleepers, announced or not.
func (d Doorbell) wake() {
	d.words.seq.Add(1)
	futexWakeAll(&d.words.seq)
}
