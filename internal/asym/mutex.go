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
// first, for about a microsecond. The zero value is unlocked. It must not be copied, and the goroutine that locks it
// must be the one that unlocks it.
//
// An unlock by the owner is no memory barrier. Who stores something and then relies on seeing what the owner stored
// before must lock the mutex in between.
type Mutex struct {
	owner   atomic.Uintptr // of the bias; 0 = nobody. Changes under mu.
	inside  atomic.Uint32  // 1: the owner holds the lock, or is about to find that it is the owner no more
	byOwner bool           // who holds the lock holds it as its owner; guarded by the lock

	mu     sync.Mutex // for everybody else
	last   uintptr    // who locked it last; guarded by the lock
	streak int        // and how often in a row
}

// streakForOwner is how often in a row a goroutine locks a mutex before it becomes its owner: enough to be worth the
// microsecond that it costs the next one to lock it.
const streakForOwner = 64

// Who has to wait for an owner to come out yields this often, and then naps.
const (
	briefWait = 100
	napWait   = 20 * time.Microsecond
)

// Lock locks m. If it is in use, it blocks until it is not.
func (m *Mutex) Lock() { m.LockBy(Current()) }

// LockBy is Lock for a caller who knows its name.
func (m *Mutex) LockBy(me Goroutine) {
	if !m.enter(me) {
		m.lock()
	}
}

// TryLock locks m unless it is in use, and tells whether it did.
func (m *Mutex) TryLock() bool { return m.TryLockBy(Current()) }

// TryLockBy is TryLock for a caller who knows its name.
func (m *Mutex) TryLockBy(me Goroutine) bool { return m.enter(me) || m.tryLock() }

// enter is the owner's way.
func (m *Mutex) enter(me Goroutine) bool {
	if m.owner.Load() != uintptr(me) || m.byOwner { // held by ourselves: no other way in than for others
		return false
	}
	Store32(&m.inside, 1)
	m.byOwner = m.owner.Load() == uintptr(me) // ORDER asym-owner: after inside, with no barrier in between; pairs with the barrier in dispossess
	if !m.byOwner {
		Store32(&m.inside, 0)
	}
	return m.byOwner
}

// Unlock unlocks m, which the caller has locked.
func (m *Mutex) Unlock() {
	if m.byOwner {
		m.byOwner = false
		Store32(&m.inside, 0)
		return
	}
	m.unlock()
}

func (m *Mutex) lock() {
	m.mu.Lock()
	m.dispossess()
	for i := 0; m.inside.Load() != 0; i++ {
		if i < briefWait {
			runtime.Gosched()
		} else {
			time.Sleep(napWait)
		}
	}
}

func (m *Mutex) tryLock() bool {
	if !m.mu.TryLock() {
		return false
	}
	m.dispossess()
	if m.inside.Load() != 0 {
		m.mu.Unlock()
		return false
	}
	return true
}

// dispossess takes the lock away from its owner, who may be inside still. The caller holds mu.
func (m *Mutex) dispossess() {
	if m.owner.Load() != 0 {
		m.owner.Store(0)
		Heavy() // ORDER asym-owner: either the owner sees the store above, or we see that it is inside; pairs with enter
	}
}

func (m *Mutex) unlock() {
	if me := uintptr(Current()); m.last != me {
		m.last, m.streak = me, 0
	} else if m.streak++; m.streak >= streakForOwner && available {
		m.streak = 0
		m.owner.Store(me)
	}
	m.mu.Unlock()
}
