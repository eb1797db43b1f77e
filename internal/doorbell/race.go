//go:build race

package doorbell

import "sync/atomic"

// raceFence keeps the caller's atomic stores before its later loads. In a program built with the
// race detector an atomic store is only a release, so the processor may do a later load first. An
// atomic addition is a full barrier.
func raceFence(word *atomic.Uint32) { word.Add(0) }
