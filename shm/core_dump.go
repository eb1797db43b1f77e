package shm

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// envDumpArena is the variable whose value 1 includes the allocated parts of arenas in core dumps.
const envDumpArena = "SOFTND_DUMP_ARENA"

// dumpsArena reports what envDumpArena asks for.
func dumpsArena() (bool, error) {
	switch value := os.Getenv(envDumpArena); value {
	case "1":
		return true, nil
	case "", "0":
		return false, nil
	default:
		return false, fmt.Errorf("%s: invalid value %q: want 0 or 1", envDumpArena, value)
	}
}

// ownProcessOnly excludes a mapping of the arena from forked children and from core dumps. The kernel
// writes a page for each hole of the file, too, and allocates it in the arena before. A dump would
// therefore take as much time, disk and memory as the size of the arena, not as its use.
func ownProcessOnly(mem []byte) error {
	if err := notInherited(mem); err != nil {
		return err
	}
	if err := unix.Madvise(mem, unix.MADV_DONTDUMP); err != nil {
		return fmt.Errorf("madvise(MADV_DONTDUMP): %w", err)
	}
	return nil
}

// dump includes a range of the arena in core dumps, if envDumpArena asks for that, or excludes it again. The pages of an
// included range are allocated. If the process has no mapping left for it, the range is not in the dump.
func (a *Arena) dump(off Offset, n uint64, included bool) {
	if !a.dumps || len(a.mem) == 0 || n == 0 {
		return
	}
	advice := unix.MADV_DONTDUMP
	if included {
		advice = unix.MADV_DODUMP
	}
	page := Offset(os.Getpagesize())
	first, last := off/page*page, min((off+Offset(n)+page-1)/page*page, Offset(len(a.mem)))
	_ = unix.Madvise(a.mem[first:last], advice)
}

// dumpTables includes the tables that the creator of the arena has reserved.
func (a *Arena) dumpTables() {
	for _, t := range a.tables() {
		a.dump(t.off, t.n, true)
	}
}
