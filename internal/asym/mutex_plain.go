//go:build !amd64 || race

package asym

import "sync"

// Mutex is a mutual exclusion lock; see mutex.go.
type Mutex struct{ sync.Mutex }
