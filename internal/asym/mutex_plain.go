//go:build !amd64 || race

package asym

import "sync"

// Mutex is a mutual exclusion lock; see mutex.go.
type Mutex struct{ sync.Mutex }

// Enter locks m if the caller is its owner, which nobody is.
func (m *Mutex) Enter() bool { return false }
