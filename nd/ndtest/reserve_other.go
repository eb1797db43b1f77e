//go:build !linux && !darwin

package ndtest

import "runtime"

// reserve skips the row: without it the bytes would take up memory.
func (s *side) reserve(n int) []byte {
	s.skipf("the suite cannot reserve address space (%d bytes) on %s", n, runtime.GOOS)
	return nil
}
