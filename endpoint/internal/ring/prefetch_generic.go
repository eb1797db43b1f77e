//go:build !amd64

package ring

import "sync/atomic"

// Other processors do not prefetch ring slots.
const (
	hasPrefetch     = false
	prefetchByStore = false
	prefetchBatch   = uint64(1)
)

// prefetchWrite does nothing: the core fetches the line when it stores to it.
func prefetchWrite(*atomic.Uint64) {}

// prefetchRead does nothing: the core fetches the line when it loads from it.
func prefetchRead(*atomic.Uint64) {}
