//go:build !linux && !darwin

package ndtest

import "runtime"

// reserve skips the row, because n bytes would use memory on this system.
func (s *side) reserve(n int) []byte {
	s.skipf("package ndtest cannot reserve address space on %[2]s (asked %[1]d bytes)", n, runtime.GOOS)
	return nil
}
