package shm

import (
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
// barrier if the sleeper's process reaches it with [asym.HeavyForAll].
type Doorbell struct{ words *doorbellWords }

// Values of the armed word.
const (
	unarmed = iota
	armed   // somebody sleeps or is about to
	ringing // and somebody is waking them
)

// Arm announces a sleeper and returns the ticket to sleep with. The caller
// must look for work between Arm and [Doorbell.Sleep].
func (d Doorbell) Arm() (ticket uint32) {
	ticket = d.words.seq.Load()
	d.words.armed.Swap(armed) // ORDER doorbell-armed: pairs with the load in Quiet
	asym.HeavyForAll()        // for ringers whose stores are no barriers; see Producer.Relax
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

// Ring wakes all sleepers if the bell is armed, and tells whether it was.
// The caller has stored what the sleepers are to find, with a barrier unless
// they pay for it; see [Producer.Relax].
func (d Doorbell) Ring() bool {
	if d.Quiet() {
		return false
	}
	d.ring()
	return true
}

// ring wakes the sleepers of an armed bell.
func (d Doorbell) ring() {
	// The mark stays until the sleepers have been woken, so that a ringer that
	// is stopped or killed over it leaves the bell for the next one to ring. A
	// sleeper that arms again meanwhile stores armed over it.
	d.words.armed.CompareAndSwap(armed, ringing)
	d.wake()
	d.words.armed.CompareAndSwap(ringing, unarmed)
}

// wake wakes all sleepers, announced or not.
func (d Doorbell) wake() {
	d.words.seq.Add(1)
	futexWakeAll(&d.words.seq)
}
