//go:build amd64 && !race

package asym

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// BiasedMutex is a mutual exclusion lock that becomes biased toward a goroutine which has locked it 64 times with no other
// goroutine in between. That goroutine then locks and unlocks it with plain loads and stores. Any other goroutine that
// locks it revokes the bias first, which takes about a microsecond. The goroutine itself does so once when the runtime
// has moved its stack. The zero value is unlocked and has no bias. A BiasedMutex must not be copied, and the goroutine
// that locks it must unlock it.
//
// TWIN c/src/shm/lock.c.
//
// A biased unlock is no memory fence. A goroutine that stores a word and then has to see what the biased goroutine stored
// before must lock the mutex in between.
type BiasedMutex struct {
	bias       pointer    // to a bias; nil = none. Atomic; changes with mu held
	latest     *bias      // the present bias, or the one that was revoked last; guarded by the lock
	last       *stack     // the goroutine that last locked through mu; guarded by the lock
	mu         sync.Mutex // for goroutines without the bias
	streak     int32      // how many consecutive locks through mu were last's; guarded by the lock
	heldByBias bool       // the lock is held, and was locked by LockBiased; guarded by the lock
}

// bias is the bias toward one goroutine. That goroutine may write inside even after the bias is revoked, until it finds
// out. So each goroutine has a bias of its own, and gets a new one when its stack has moved.
type bias struct {
	record *stack        // the runtime's record of the goroutine, which identifies it
	bounds stack         // where its stack was when it got the bias
	inside atomic.Uint32 // 1: it holds the lock, or is about to find that the bias is revoked
}

// biasThreshold is how many consecutive locks give a goroutine the bias: enough to be worth the microsecond that revoking
// it takes.
const biasThreshold = 64

// A goroutine that waits for the biased one to unlock first yields yieldChecks times. Then it sleeps between checks, each
// time twice as long, up to longestNap: the holder is doing something long by then, or its process is stopped.
const (
	yieldChecks = 100
	shortestNap = 20 * time.Microsecond
	longestNap  = 2 * time.Millisecond
)

// nap returns how long to sleep after so many checks; 0 = only yield.
func nap(checks int) time.Duration {
	if checks < yieldChecks {
		return 0
	}
	return min(shortestNap<<min(checks-yieldChecks, 20), longestNap)
}

// Lock locks m. It blocks until m is available.
func (m *BiasedMutex) Lock() {
	if !m.LockBiased() {
		m.lockSlow()
	}
}

// TryLock locks m unless it is locked, and reports whether it did.
func (m *BiasedMutex) TryLock() bool { return m.LockBiased() || m.tryLockSlow() }

// Unlock unlocks m, which the calling goroutine has locked.
func (m *BiasedMutex) Unlock() {
	if m.heldByBias {
		m.heldByBias = false
		StoreRelease32(&m.latest.inside, 0)
		return
	}
	m.unlockSlow()
}

func (m *BiasedMutex) lockSlow() {
	m.mu.Lock()
	m.revokeBias()
	for checks := 0; m.isBiasedInside(); checks++ {
		if pause := nap(checks); pause > 0 {
			time.Sleep(pause)
		} else {
			runtime.Gosched()
		}
	}
}

func (m *BiasedMutex) tryLockSlow() bool {
	if !m.mu.TryLock() {
		return false
	}
	m.revokeBias()
	if m.isBiasedInside() {
		m.mu.Unlock()
		return false
	}
	return true
}

// revokeBias ends the bias, if there is one. The biased goroutine may still hold the lock. The caller holds mu.
func (m *BiasedMutex) revokeBias() {
	b := (*bias)(atomic.LoadPointer(&m.bias))
	if b == nil {
		return
	}
	atomic.StorePointer(&m.bias, nil)
	Heavy() // ORDER bias: either the biased goroutine sees the store above, or we see inside; pairs with LockBiased
	if b.record == currentStack() {
		m.streak = biasThreshold // the bias was ours, and our stack has moved
	}
}

// isBiasedInside reports whether the goroutine whose bias was revoked last still holds the lock. The caller holds mu.
func (m *BiasedMutex) isBiasedInside() bool { return m.latest != nil && m.latest.inside.Load() != 0 }

func (m *BiasedMutex) unlockSlow() {
	if me := currentStack(); m.last != me {
		m.last, m.streak = me, 0
	} else if m.streak++; m.streak >= biasThreshold && canBias {
		m.setBias(me)
	}
	m.mu.Unlock()
}

// setBias biases m toward the goroutine that holds it.
func (m *BiasedMutex) setBias(me *stack) {
	m.streak = 0
	if m.latest == nil || m.latest.record != me || m.latest.bounds != *me {
		m.latest = &bias{record: me, bounds: *me}
	}
	atomic.StorePointer(&m.bias, pointer(m.latest))
}
