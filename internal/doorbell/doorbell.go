// Package doorbell wakes processes that sleep: its doorbells are futex words in memory that processes
// share.
package doorbell

// TWIN c/src/shm/doorbell.c.

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/internal/testkit/failpoint"
)

// Doorbell wakes its waiters, which may be in several processes. A waiter arms the doorbell, checks
// for work once more, and sleeps. A ringer stores the work and then rings. A ring of an unarmed
// doorbell costs one load.
//
// No wake-up is lost: the waiter stores armed and then loads the work; the ringer stores the work
// and then loads armed. One of them sees the other's store (ORDER doorbell-armed). The ringer's
// store need not be a full barrier if [asym.HeavyGlobal] in the waiter's process reaches the
// ringer. The zero value is unarmed. Safe for concurrent use.
type Doorbell struct {
	armed atomic.Uint32 // unarmed, armed, or the mark of a ringer
	seq   atomic.Uint32 // the futex word; each ring increments it
}

// Values of the armed word. Any other value is the mark of a ringer that is waking the waiters.
const (
	unarmed = iota
	armed   // a waiter sleeps, or is about to
)

// mark is the mark of this process. A ringer removes only its own mark. If a ringer is stopped or
// killed in the middle, its mark stays, and the next ringer wakes the waiters.
var mark = rand.Uint32() | 2

// Arm announces a waiter and returns the ticket for [Doorbell.Sleep]. The caller must check for
// work between Arm and Sleep.
func (d *Doorbell) Arm() (ticket uint32) {
	ticket = d.seq.Load()
	d.armed.Swap(armed) // ORDER doorbell-armed: pairs with the load in Doorbell.Armed
	failpoint.Reach(failpoint.DoorbellArmed)
	asym.HeavyGlobal() // for ringers whose stores are no full barriers
	return ticket
}

// Sleep blocks until the doorbell has been rung since Arm returned the ticket, or timeout has passed
// (0: no timeout). It may return early.
func (d *Doorbell) Sleep(ticket uint32, timeout time.Duration) {
	futexSleep(&d.seq, ticket, timeout)
}

// Disarm withdraws the announcement. The doorbell must have no other waiter: Ring would not wake
// it.
func (d *Doorbell) Disarm() {
	d.armed.Store(unarmed) // ORDER doorbell-disarmed: pairs with the exchange in claim
	failpoint.Reach(failpoint.DoorbellDisarmed)
}

// Armed reports whether a waiter sleeps or is about to. The condition of [Doorbell.Ring] applies.
func (d *Doorbell) Armed() bool {
	raceFence(&d.armed)
	return d.armed.Load() != unarmed // ORDER doorbell-armed: pairs with the swap in Arm
}

// Ring wakes all waiters if the doorbell is armed, and reports whether it was. The caller has
// stored the work before, with a full barrier unless the waiters issue it.
func (d *Doorbell) Ring() bool { return d.Armed() && d.ring() }

// ring wakes the waiters of a doorbell that was armed, and reports whether it still was. If not,
// the last waiter may have checked for work before the caller's store was visible. The exchange in
// claim makes the store visible, and the caller must ring another doorbell.
func (d *Doorbell) ring() bool {
	left, ok := d.claim()
	if !ok {
		return false
	}
	failpoint.Reach(failpoint.DoorbellMarked)
	d.WakeAll()
	failpoint.Reach(failpoint.WaitersWoken)
	d.settle(left)
	return true
}

// claim puts this process's mark on an armed doorbell before its waiters are woken. It returns the
// value that settle replaces afterwards. ok is false if another ringer has disarmed the doorbell.
func (d *Doorbell) claim() (left uint32, ok bool) {
	if d.armed.CompareAndSwap(armed, mark) { // ORDER doorbell-disarmed: pairs with the store in Disarm
		return mark, true
	}
	switch left = d.armed.Load(); left {
	case unarmed:
		return unarmed, false
	case armed: // armed again: its waiter checks for work after this exchange, so it stays armed
		return unarmed, true
	}
	return left, true
}

// settle disarms a doorbell whose waiters have been woken, unless a waiter has armed it again or
// another ringer has marked it.
func (d *Doorbell) settle(left uint32) { d.armed.CompareAndSwap(left, unarmed) }

// WakeAll wakes all waiters, even if the doorbell is not armed.
func (d *Doorbell) WakeAll() {
	d.seq.Add(1)
	futexWakeAll(&d.seq)
}
