//go:build !amd64 || race

package asym

import "sync"

// Mutex is a mutual exclusion lock; see mutex.go.
type Mutex struct{ sync.Mutex }

// LockBy is Lock for a caller who knows its name.
func (m *Mutex) LockBy(Goroutine) { m.Lock() }

// Enter locks m if that is the owner's name, which nobody's is.
func (m *Mutex) Enter(Goroutine) bool { return false }

// TryLockBy is TryLock for a caller who knows its name.
func (m *Mutex) TryLockBy(Goroutine) bool { return m.TryLock() }

// Current returns the name of the running goroutine.
func Current() Goroutine { return 0 }
