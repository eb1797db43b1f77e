//go:build linux || darwin

package ndtest

import "golang.org/x/sys/unix"

// reserve returns n bytes of zeros that take up address space and nothing else, as long as they
// are only read.
func (s *side) reserve(n int) []byte {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		s.fatalf("reserve %d bytes of address space: %v", n, err)
	}
	s.cleanup(func() { _ = unix.Munmap(b) }) // fails for no mapping of ours
	return b
}
