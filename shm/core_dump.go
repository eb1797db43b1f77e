package shm

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// envDumpArena is the variable whose value 1 includes arenas in core dumps.
const envDumpArena = "SOFTND_DUMP_ARENA"

// ownProcessOnly excludes a mapping of the arena from forked children and from core dumps.
func ownProcessOnly(mem []byte) error {
	if err := notInherited(mem); err != nil {
		return err
	}
	return notDumped(mem)
}

// notDumped excludes a mapping of the arena from core dumps, unless envDumpArena is 1. The kernel
// writes a page for each hole of the file, too, and allocates it in the arena before. A dump would
// therefore take as much time, disk and memory as the size of the arena, not as its use.
func notDumped(mem []byte) error {
	switch value := os.Getenv(envDumpArena); value {
	case "1":
		return nil
	case "", "0":
	default:
		return fmt.Errorf("%s: invalid value %q: want 0 or 1", envDumpArena, value)
	}
	if err := unix.Madvise(mem, unix.MADV_DONTDUMP); err != nil {
		return fmt.Errorf("madvise(MADV_DONTDUMP): %w", err)
	}
	return nil
}
