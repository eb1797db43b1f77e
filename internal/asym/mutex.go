//go:build amd64 && !race

package asym

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Mutex is a mutual exclusion lock. A goroutine that has locked it many times in a row, with nobody else in between,
// becomes its owner, for whom locking and unlocking are plain loads and stores. Anybody else who locks it ends that
// first, for about a microsecond; so does the owner itself, once, when the runtime has moved its stack. The zero value is
// unlocked. It must not be copied, and the goroutine that locks it must be the one that unlocks it.
//
// An unlock by the owner is no memory barrier. Who stores something and then relies on seeing what the owner stored
// before must lock the mutex in between.
type Mutex struct {
	owner   pointer    // to an owner; nil = nobody. Atomic; changes with mu held
	latest  *owner     // who is the owner, or was it last; guarded by the lock
	last    *stack     // whose the lock was before; guarded by the lock
	mu      sync.Mutex // for everybody else
	streak  int32      // how often in a row it was last's; guarded by the lock
	byOwner bool       // who holds the lock holds it as its owner; guarded by the lock
}

// owner is a goroutine that has become the owner of a mutex. It writes inside
// even when it is the owner no more, until it finds out; so another owner has
// one of its own, and so has one whose stack has moved.
type owner struct {
	now    *stack        // what the runtime knows of its stack; by that it is known
	then   stack         // where that lay when it became the owner
	inside atomic.Uint32 // 1: it holds the lock, or is about to find that it must not
}

// streakForOwner is how often in a row a goroutine locks a mutex before it becomes its owner: enough to be worth the
// microsecond that it costs the next one to lock it.
const streakForOwner = 64

// A goroutine that waits for an owner to come out yields this often, and then naps, each time for twice as long up to a
// limit: an owner that is still inside by then does something long, or its process is stopped.
const (
	briefWait   = 100
	shortestNap = 20 * time.Microsecond
	longestNap  = 2 * time.Millisecond
)

// nap is how long the wait for an owner pauses after so many checks; 0 = it only yields.
func nap(looks int) time.Duration {
	if looks < briefWait {
		return 0
	}
	return min(shortestNap<<min(looks-briefWait, 20), longestNap)
}

// Lock locks m. If it is in use, it blocks until it is not.
func (m *Mutex) Lock() {
	if !m.Enter() {
		m.lock()
	}
}

// TryLock locks m unless it is in use, and tells whether it did.
func (m *Mutex) TryLock() bool { return m.Enter() || m.tryLock() }

// Unlock unlocks m, which the caller has locked.
func (m *Mutex) Unlock() {
	if m.byOwner {
		m.byOwner = false
		Store32(&m.latest.inside, 0)
		return
	}
	m.unlock()
}

func (m *Mutex) lock() {
	m.mu.Lock()
	m.dispossess()
	for looks := 0; m.ownerInside(); looks++ {
		if pause := nap(looks); pause > 0 {
			time.Sleep(pause)
		} else {
			runtime.Gosched()
		}
	}
}

func (m *Mutex) tryLock() bool {
	if !m.mu.TryLock() {
		return false
	}
	m.dispossess()
	if m.ownerInside() {
		m.mu.Unlock()
		return false
	}
	return true
}

// dispossess takes the lock away from its owner, who may be inside still. The
// caller holds mu.
func (m *Mutex) dispossess() {
	o := (*owner)(atomic.LoadPointer(&m.owner))
	if o == nil {
		return
	}
	atomic.StorePointer(&m.owner, nil)
	Heavy() // ORDER asym-owner: either the owner sees the store above, or we see that it is inside; pairs with Enter
	if o.now == mine() {
		m.streak = streakForOwner // it is us, and our stack has moved
	}
}

// ownerInside tells whether the owner that was dispossessed last holds the lock
// still. The caller holds mu.
func (m *Mutex) ownerInside() bool { return m.latest != nil && m.latest.inside.Load() != 0 }

func (m *Mutex) unlock() {
	if me := mine(); m.last != me {
		m.last, m.streak = me, 0
	} else if m.streak++; m.streak >= streakForOwner && ownable {
		m.promote(me)
	}
	m.mu.Unlock()
}

// promote makes the one who holds the lock its owner.
func (m *Mutex) promote(me *stack) {
	m.streak = 0
	if m.latest == nil || m.latest.now != me || m.latest.then != *me {
		m.latest = &owner{now: me, then: *me}
	}
	atomic.StorePointer(&m.owner, pointer(m.latest))
}
