//go:build !amd64 || race

package asym

import "sync"

// BiasedMutex is a mutual exclusion lock; here it has no bias. See mutex.go.
type BiasedMutex struct{ sync.Mutex }

// LockBiased locks m if that needs no wait: then the paths behind it run without a bias, too.
func (m *BiasedMutex) LockBiased() bool { return m.TryLock() }
