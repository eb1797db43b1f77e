package linux

// TWIN c/src/linux/memory_limit.c.

import (
	"fmt"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// AvailableMemory returns how many bytes of memory an arena can still reserve, and the limit that applies: the machine's
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

// CanReserve reports whether an arena can still reserve wanted bytes. If not, it returns how many it can, and the limit that applies.
//
// Most calls for little memory do not read the limits, which takes some ten system calls: they take from what the process has to spare.
func CanReserve(wanted uint64) (left uint64, limit string, ok bool) {
	now := time.Since(processStart)
	if spare.take(wanted, now) {
		return 0, "", true
	}
	left, limit = AvailableMemory()
	if limit == "" {
		return 0, "", true
	}
	spare.refill(left-min(wanted, left), now)
	return left, limit, wanted <= left
}

// spareMemory is what a process may reserve before it reads the limits again.
//
// Memory that a process takes from it is invisible to the checks of the other processes, which may reserve all memory that is left at the same time.
// So each process can take maxSpare of the margin, within spareAge of its last read. A limit that is lowered has its effect within spareAge. If
// less than 256 MiB are left, the share is less than a chunk of the heap, so a reservation in the heap reads the limits each time.
type spareMemory struct {
	bytes atomic.Uint64
	until atomic.Int64 // nanoseconds since processStart
}

// A process may reserve 1/spareShare of the memory that is left, and at most maxSpare, before it reads the limits again.
const (
	spareShare = 4096
	maxSpare   = 1 << 20
	spareAge   = 100 * time.Millisecond
)

var (
	processStart = time.Now()
	spare        spareMemory
)

// take takes wanted bytes, or none if there are fewer or they are too old.
func (s *spareMemory) take(wanted uint64, now time.Duration) bool {
	if int64(now) >= s.until.Load() {
		return false
	}
	for {
		have := s.bytes.Load()
		if wanted > have {
			return false
		}
		if s.bytes.CompareAndSwap(have, have-wanted) {
			return true
		}
	}
}

// refill takes the process's share of the memory that is left, at most maxSpare.
func (s *spareMemory) refill(left uint64, now time.Duration) {
	s.bytes.Store(min(left/spareShare, maxSpare))
	s.until.Store(int64(now + spareAge))
}

const machineMemory = "the machine's available memory"

// TotalMemory returns the size of the machine's memory in bytes; ok is false if /proc does not show
// it.
func TotalMemory() (bytes uint64, ok bool) {
	meminfo, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	return memoryLine(meminfo, "MemTotal")
}

// AddressSpaceInUse returns the size of this process's mappings in bytes, which the address space limit counts. It
// returns 0 if /proc does not show it.
func AddressSpaceInUse() (bytes uint64) {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(statm), " ")
	pages, _ := strconv.ParseUint(first, 10, 64) // 0 if the kernel writes anything else
	return pages * uint64(os.Getpagesize())
}

// memoryMargin returns the part of a limit that arenas must not reserve. The processes need it:
// their stacks and heaps grow, and the kernel needs page tables for them. Without a margin, the
// kernel would kill a process soon after an arena has reserved everything. Processes that reserve at
// the same time can use up part of the margin.
func memoryMargin(limit uint64) uint64 { return min(limit/16, 256<<20) }

// machineAvailable returns how much of the machine's memory can still be reserved.
func machineAvailable() (uint64, bool) {
	meminfo, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	left, ok := memoryLine(meminfo, "MemAvailable")
	total, _ := memoryLine(meminfo, "MemTotal")
	return left - min(memoryMargin(total), left), ok
}

// memoryLine returns the value of a line of /proc/meminfo, in bytes.
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
	for _, m := range OwnCgroups() {
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
func cgroupKindOf(m CgroupMembership) *cgroupKind {
	switch {
	case m.IsV2():
		return &cgroupKind{CgroupMount, "memory.max", "memory.current", "inactive_file"}
	case m.Has("memory"):
		return &cgroupKind{CgroupMount + "/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}
	}
	return nil
}

// available returns the limit minus the margin minus the usage. Page cache that the kernel can drop
// does not count as usage.
func (k *cgroupKind) available(dir string) (uint64, bool) {
	limit, ok := number(path.Join(dir, k.limit))
	if !ok || limit >= math.MaxInt64/2 { // version 1 writes "no limit" as a huge number
		return 0, false
	}
	used, ok := number(path.Join(dir, k.used))
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
