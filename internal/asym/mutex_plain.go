//go:build !amd64 || race

package asym

import "sync"

// BiasedMutex is a mutual exclusion lock; here it has no bias. See mutex.go.
type BiasedMutex struct{ sync.Mutex }

// LockBiased locks m if m is biased toward the calling goroutine, which is never the case here.
func (m *BiasedMutex) LockBiased() bool { return false }
