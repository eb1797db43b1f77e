package shm

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/cgroup"
)

// arenaSize returns the size of an arena. asked is the size that the caller wants; 0 means the size
// of the machine's memory, since an arena can never hold more. The size stays within this process's
// limits on address space and file size.
func arenaSize(asked uint64) (uint64, error) {
	const least, most = 1 << 28, 1 << 36
	size := asked
	if size > maxSize {
		return size, nil // geometryFor returns an error
	}
	if size == 0 {
		size = most
		if total, ok := meminfo("MemTotal"); ok {
			size = min(max(total, least), most)
		}
	}
	size = roundUp(size, chunkSize)
	for _, l := range []struct {
		resource int
		share    uint64 // the arena may take 1/share of the limit
		name     string
	}{
		{unix.RLIMIT_FSIZE, 1, "the file size limit (ulimit -f)"},
		{unix.RLIMIT_AS, 4, "a quarter of the address space limit (ulimit -v)"},
	} {
		var lim unix.Rlimit
		if unix.Getrlimit(l.resource, &lim) != nil || lim.Cur == unix.RLIM_INFINITY {
			continue
		}
		allowed := lim.Cur / l.share / chunkSize * chunkSize
		if size <= allowed {
			continue
		}
		if _, err := geometryFor(allowed); asked != 0 || err != nil {
			return 0, &NoMemoryError{Requested: size, Available: allowed, Limit: l.name, Hint: "raise the limit or ask for a smaller arena"}
		}
		size = allowed
	}
	return size, nil
}

// reserveStep is how many bytes one fallocate reserves. A signal interrupts a fallocate and undoes
// it, so a call that takes longer than the interval of a profiler's signals would never succeed.
// Between two steps, reserveIn checks how much memory is left.
const reserveStep = 4 << 20

// reserve allocates the pages of a range, so that a later access can neither fail nor kill the
// process. After an error, some of the pages may be allocated.
//
// Errors: [NoMemoryError].
func (a *Arena) reserve(off Offset, n uint64) error {
	return a.useFile(func(fd int) error { return reserveIn(fd, off, n) })
}

func reserveIn(fd int, off Offset, n uint64) error {
	for done := uint64(0); done < n; {
		if err := checkAvailable(n - done); err != nil {
			return forWholeRange(n, err)
		}
		step := min(n-done, reserveStep)
		err := unix.Fallocate(fd, 0, int64(off)+int64(done), int64(step))
		switch {
		case err == nil:
			done += step
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.ENOMEM):
			left, _ := machineAvailable()
			return &NoMemoryError{Requested: n, Available: left, Limit: "the kernel's limit on shared memory (fallocate: " + err.Error() + ")",
				Hint: "free memory or raise the limit"}
		default:
			return fmt.Errorf("shm: reserve %d bytes: fallocate: %w", n, err)
		}
	}
	return nil
}

// forWholeRange adapts a NoMemoryError from one step of a reservation to the whole range of n bytes.
func forWholeRange(n uint64, err error) error {
	if s, ok := errors.AsType[*NoMemoryError](err); ok {
		s.Available += n - s.Requested
		s.Requested = n
	}
	return err
}

// release returns the pages of a range to the system. The range reads as zero afterwards, and an
// access by mistake is harmless. If the kernel refuses to punch a hole, release stores zeros into
// the range and keeps its pages.
func (a *Arena) release(off Offset, n uint64) error {
	err := a.punch(off, n)
	if err == nil {
		return nil
	}
	b, outside := a.Bytes(off, n)
	if outside != nil {
		return outside
	}
	if e := a.reserve(off, n); e != nil { // some pages may not be allocated
		return fmt.Errorf("shm: release %d bytes: fallocate: %w; clear them: %w", n, err, e)
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

// checkAvailable fails if the machine or a memory cgroup has less memory available than wanted. The
// kernel would answer a fallocate beyond a cgroup's limit with its out-of-memory killer, not with an
// error.
func checkAvailable(wanted uint64) error {
	if left, ok := machineAvailable(); ok && wanted > left {
		return &NoMemoryError{Requested: wanted, Available: left, Limit: machineMemory, Hint: "free memory or ask for less"}
	}
	if left, name, ok := cgroupAvailable(); ok && wanted > left {
		return &NoMemoryError{Requested: wanted, Available: left, Limit: name, Hint: "raise the cgroup's limit or ask for less"}
	}
	return nil
}

// AvailableMemory returns how many bytes can be reserved, and the limit that applies: the machine's
// memory, or that of a memory cgroup above this process. It keeps back a margin of a sixteenth of
// the limit, at most 256 MiB. It returns 0 and "" if /proc shows neither limit.
func AvailableMemory() (bytes uint64, limit string) {
	if left, ok := machineAvailable(); ok {
		bytes, limit = left, machineMemory
	}
	if left, name, ok := cgroupAvailable(); ok && (limit == "" || left < bytes) {
		bytes, limit = left, name
	}
	return bytes, limit
}

const machineMemory = "the machine's available memory"

// memoryMargin returns the part of a limit that arenas must not reserve. The processes need it:
// their stacks and heaps grow, and the kernel needs page tables for them. Without a margin, the
// kernel would kill a process soon after an arena has reserved everything. Processes that reserve at
// the same time can use up part of the margin.
func memoryMargin(limit uint64) uint64 { return min(limit/16, 256<<20) }

// machineAvailable returns how much of the machine's memory can still be reserved.
func machineAvailable() (uint64, bool) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	left, ok := memoryLine(b, "MemAvailable")
	total, _ := memoryLine(b, "MemTotal")
	return left - min(memoryMargin(total), left), ok
}

// meminfo returns the value of a line of /proc/meminfo, in bytes.
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

// cgroupAvailable returns the least memory that any memory cgroup above this process has available,
// and the name of that limit.
func cgroupAvailable() (left uint64, name string, ok bool) {
	left = math.MaxUint64
	for _, m := range cgroup.Self() {
		kind := cgroupKindOf(m)
		if kind == nil {
			continue
		}
		for _, dir := range m.Ancestors() {
			if l, found := kind.available(kind.root + dir); found && l < left {
				left, ok = l, true
				name = fmt.Sprintf("the memory cgroup's limit (%s in %s)", kind.limit, path.Join(kind.root, dir))
			}
		}
	}
	return left, name, ok
}

// cgroupKind holds the file names of one version of the memory controller.
type cgroupKind struct{ root, limit, used, cache string }

// cgroupKindOf returns the kind of a membership, nil if it has no memory controller.
func cgroupKindOf(m cgroup.Membership) *cgroupKind {
	switch {
	case m.IsV2():
		return &cgroupKind{cgroup.Mount, "memory.max", "memory.current", "inactive_file"}
	case m.Has("memory"):
		return &cgroupKind{cgroup.Mount + "/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}
	}
	return nil
}

// available returns the limit minus the margin minus the usage. Page cache that the kernel can drop
// does not count as usage.
func (k *cgroupKind) available(dir string) (uint64, bool) {
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
	limit -= memoryMargin(limit)
	return limit - min(used, limit), true
}

func readNumber(file string) (uint64, bool) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64) // "max" is not a number: there is no limit
	return n, err == nil
}
