package shm

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// arenaSize chooses the address space of an arena: as much as the machine has
// memory, since it can never hold more, within what this process may map and
// what size of file it may make.
func arenaSize(asked uint64) (uint64, error) {
	const least, most = 1 << 28, 1 << 36
	size := asked
	if size > maxSize {
		return size, nil // geometryFor refuses it
	}
	if size == 0 {
		size = most
		if total, ok := meminfo("MemTotal"); ok {
			size = min(max(total, least), most)
		}
	}
	size = roundUp(size, ChunkSize)
	for _, l := range []struct {
		resource int
		share    uint64 // the arena may take 1/share of it
		name     string
	}{
		{unix.RLIMIT_FSIZE, 1, "the file size limit (ulimit -f)"},
		{unix.RLIMIT_AS, 4, "a quarter of the address space limit (ulimit -v)"},
	} {
		var lim unix.Rlimit
		if unix.Getrlimit(l.resource, &lim) != nil || lim.Cur == unix.RLIM_INFINITY {
			continue
		}
		allowed := lim.Cur / l.share / ChunkSize * ChunkSize
		if size <= allowed {
			continue
		}
		if _, err := geometryFor(allowed); asked != 0 || err != nil {
			return 0, &ShortageError{Wanted: size, Left: allowed, Limit: l.name, Next: "raise the limit or ask for a smaller arena"}
		}
		size = allowed
	}
	return size, nil
}

// reserveStep is how many bytes are reserved at once. A signal interrupts a
// fallocate and undoes it, so one that takes longer than a profiler's tick
// would never end; and between steps there is time to look what is left.
const reserveStep = 4 << 20

// reserve makes sure that the pages of a range exist, so that touching them
// later can neither fail nor kill the process. After an error, part of them
// may exist.
func (a *Arena) reserve(off Offset, n uint64) error {
	return a.useFile(func(fd int) error { return reserveIn(fd, off, n) })
}

func reserveIn(fd int, off Offset, n uint64) error {
	for done := uint64(0); done < n; {
		if err := memoryLeft(n - done); err != nil {
			return wanting(n, err)
		}
		step := min(n-done, reserveStep)
		err := unix.Fallocate(fd, 0, int64(off)+int64(done), int64(step))
		switch {
		case err == nil:
			done += step
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.ENOMEM):
			left, _ := machineLeft()
			return &ShortageError{Wanted: n, Left: left, Limit: "the kernel's limit on shared memory (fallocate: " + err.Error() + ")",
				Next: "free memory or raise the limit"}
		default:
			return fmt.Errorf("shm: reserving %d bytes: fallocate: %w", n, err)
		}
	}
	return nil
}

// wanting makes a shortage that was met half way speak of the whole range.
func wanting(n uint64, err error) error {
	if s, ok := errors.AsType[*ShortageError](err); ok {
		s.Left += n - s.Wanted
		s.Wanted = n
	}
	return err
}

// release gives the pages of a range back to the system; they read as zero
// afterwards, and touching them by mistake is harmless. Where the kernel refuses to
// punch a hole, release clears the range, whose pages then stay.
func (a *Arena) release(off Offset, n uint64) error {
	err := a.punch(off, n)
	if err == nil {
		return nil
	}
	b, outside := a.Bytes(off, n)
	if outside != nil {
		return outside
	}
	if e := a.reserve(off, n); e != nil { // some pages may not exist
		return fmt.Errorf("shm: releasing %d bytes: fallocate: %w; clearing them: %w", n, err, e)
	}
	clear(b)
	return nil
}

func (a *Arena) punch(off Offset, n uint64) error {
	return a.useFile(func(fd int) error {
		for {
			err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(off), int64(n))
			if !errors.Is(err, unix.EINTR) {
				return err
			}
		}
	})
}

// memoryLeft refuses a reservation that the machine or the memory cgroup could
// only meet by killing somebody: the kernel answers a fallocate beyond the
// cgroup's limit with its out-of-memory killer, not with an error.
func memoryLeft(wanted uint64) error {
	if left, ok := machineLeft(); ok && wanted > left {
		return &ShortageError{Wanted: wanted, Left: left, Limit: machineMemory, Next: "free memory or ask for less"}
	}
	if left, name, ok := cgroupLeft(); ok && wanted > left {
		return &ShortageError{Wanted: wanted, Left: left, Limit: name, Next: "raise the cgroup's limit or ask for less"}
	}
	return nil
}

// MemoryLeft returns how many bytes can be reserved before the machine or a memory cgroup
// above this process has nothing left but a margin, a sixteenth of its limit and at most
// 256 MiB, and which of them that would be; 0 and "" where /proc tells
// neither.
func MemoryLeft() (bytes uint64, limit string) {
	if left, ok := machineLeft(); ok {
		bytes, limit = left, machineMemory
	}
	if left, name, ok := cgroupLeft(); ok && (limit == "" || left < bytes) {
		bytes, limit = left, name
	}
	return bytes, limit
}

const machineMemory = "the machine's available memory"

// margin is the part of a limit that the arena leaves to the processes themselves: their
// stacks and heaps grow, and the kernel needs page tables for what they touch. Without
// it, the kernel would kill one of them soon after an arena has taken all that was
// left. Several processes that reserve at the same time may use some of it up.
func margin(limit uint64) uint64 { return min(limit/16, 256<<20) }

// machineLeft returns how much of the machine's memory the arena may still take.
func machineLeft() (uint64, bool) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	left, ok := memoryLine(b, "MemAvailable")
	total, _ := memoryLine(b, "MemTotal")
	return left - min(margin(total), left), ok
}

// meminfo returns a line of /proc/meminfo in bytes.
func meminfo(key string) (uint64, bool) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	return memoryLine(b, key)
}

func memoryLine(meminfo []byte, key string) (uint64, bool) {
	for line := range strings.Lines(string(meminfo)) {
		name, rest, _ := strings.Cut(line, ":")
		if name != key {
			continue
		}
		kib, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		return kib << 10, err == nil
	}
	return 0, false
}

// cgroupLeft returns the least that any memory cgroup above this process has
// left for the arena, and that limit's name.
func cgroupLeft() (left uint64, name string, ok bool) {
	f, err := os.Open("/proc/self/cgroup")
	if err != nil {
		return 0, "", false
	}
	defer f.Close()
	left = math.MaxUint64
	for s := bufio.NewScanner(f); s.Scan(); {
		parts := strings.SplitN(s.Text(), ":", 3)
		if len(parts) != 3 {
			continue
		}
		kind := cgroupKindOf(parts[1])
		if kind == nil {
			continue
		}
		for dir := path.Clean("/" + parts[2]); ; dir = path.Dir(dir) {
			if l, found := kind.left(kind.root + dir); found && l < left {
				left, ok = l, true
				name = fmt.Sprintf("the memory cgroup's limit (%s in %s)", kind.limit, path.Join(kind.root, dir))
			}
			if dir == "/" {
				break
			}
		}
	}
	return left, name, ok
}

// cgroupKind names the files of one version of the memory controller.
type cgroupKind struct{ root, limit, used, cache string }

func cgroupKindOf(controllers string) *cgroupKind {
	if controllers == "" {
		return &cgroupKind{"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"}
	}
	for c := range strings.SplitSeq(controllers, ",") {
		if c == "memory" {
			return &cgroupKind{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}
		}
	}
	return nil
}

// left returns limit minus margin minus use, where page cache that can be dropped
// does not count as used.
func (k *cgroupKind) left(dir string) (uint64, bool) {
	limit, ok := readNumber(path.Join(dir, k.limit))
	if !ok || limit >= math.MaxInt64/2 { // version 1 writes "no limit" as a huge number
		return 0, false
	}
	used, ok := readNumber(path.Join(dir, k.used))
	if !ok {
		return 0, false
	}
	stat, _ := os.ReadFile(path.Join(dir, "memory.stat"))
	for line := range strings.Lines(string(stat)) {
		if v, found := strings.CutPrefix(line, k.cache+" "); found {
			cache, _ := strconv.ParseUint(strings.TrimSpace(v), 10, 64)
			used -= min(cache, used)
		}
	}
	limit -= margin(limit)
	return limit - min(used, limit), true
}

func readNumber(file string) (uint64, bool) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64) // "max" is no number: no limit
	return n, err == nil
}
