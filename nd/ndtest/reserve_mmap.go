//go:build linux || darwin

package ndtest

import "golang.org/x/sys/unix"

// reserve returns n bytes of zeros that may only be read. They use address space, but no memory.
func (s *side) reserve(n int) []byte {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		s.fatalf("mmap: reserve %d bytes of address space: %v", n, err)
	}
	s.cleanup(func() { _ = unix.Munmap(b) }) // cannot fail for a mapping of Mmap
	return b
}
