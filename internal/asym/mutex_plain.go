//go:build !amd64 || race

package asym

import "sync"

// Mutex is a mutual exclusion lock; see mutex.go.
type Mutex struct{ sync.Mutex }

// LockBy is Lock for a caller who knows its name.
func (m *Mutex) LockBy(Goroutine) { m.Lock() }

// Current returns the name of the running goroutine.
func Current() Goroutine { return 0 }
