package shm

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/linux"
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
		if total, ok := linux.TotalMemory(); ok {
			size = min(max(total, least), most)
		}
	}
	size = roundUp(size, chunkSize)
	for _, l := range sizeLimits {
		allowed, ok := l.allowed(asked == 0)
		if !ok || size <= allowed {
			continue
		}
		if _, err := geometryFor(allowed); asked != 0 || err != nil {
			return 0, &NoMemoryError{Requested: size, Available: allowed, Limit: l.name, Hint: "raise the limit or ask for a smaller arena"}
		}
		size = allowed
	}
	return size, nil
}

// sizeLimit is a resource limit on the size of the arenas that a process creates.
type sizeLimit struct {
	resource int
	share    uint64 // the arena may take 1/share of the limit
	kept     uint64 // of the limit; an arena of the default size takes at most half of the rest
	name     string
}

// keptAddressSpace is what a Go process has mapped soon after its start: 1.2 GiB, or 1.5 GiB with cgo. The Go runtime ends the process if
// it finds no room for its heap.
const keptAddressSpace = 1536 << 20

var sizeLimits = []sizeLimit{
	{unix.RLIMIT_FSIZE, 1, 0, "the file size limit (ulimit -f)"},
	{unix.RLIMIT_AS, 4, keptAddressSpace, "the part of the address space limit (ulimit -v) that arenas may take"},
}

// allowed returns the size of the largest arena under the limit, or of one of the default size, and whether there is a limit.
func (l sizeLimit) allowed(byDefault bool) (size uint64, ok bool) {
	var lim unix.Rlimit
	if unix.Getrlimit(l.resource, &lim) != nil || lim.Cur == unix.RLIM_INFINITY {
		return 0, false
	}
	size = lim.Cur / l.share
	if byDefault && l.kept > 0 {
		size = min(size, (lim.Cur-min(lim.Cur, l.kept))/2)
	}
	return size / chunkSize * chunkSize, true
}

// limitOf returns the name of the limit that allows no larger arena than one of size bytes, and ""
// if there is none. A rank inherits the limits under which its launcher created the arena.
func limitOf(size uint64) string {
	for _, l := range sizeLimits {
		if allowed, ok := l.allowed(true); ok && allowed == size {
			return l.name
		}
	}
	return ""
}

// fileError adds the remedy to the error of a call that opens a descriptor.
func fileError(err error) error {
	if errors.Is(err, unix.EMFILE) {
		return fmt.Errorf("%w: raise the limit of open files (ulimit -Hn)", err)
	}
	return err
}

// mmapError is the error of an mmap of size bytes. The kernel says ENOMEM if the address space limit does not allow them.
//
// Errors: [NoMemoryError].
func mmapError(size uint64, err error) error {
	var lim unix.Rlimit
	if !errors.Is(err, unix.ENOMEM) || unix.Getrlimit(unix.RLIMIT_AS, &lim) != nil || lim.Cur == unix.RLIM_INFINITY {
		return fmt.Errorf("mmap of %d bytes: %w (too many mappings? see vm.max_map_count)", size, err)
	}
	left := lim.Cur - min(lim.Cur, linux.AddressSpaceInUse())
	return &NoMemoryError{Requested: size, Available: min(left, size-1), Limit: "the address space limit (ulimit -v)",
		Hint: "raise the limit, or use a smaller arena (ndrun --arena-size)"}
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
	err := a.useFile(func(fd int) error { return reserveIn(fd, off, n) })
	if err == nil {
		a.dump(off, n, true)
	}
	return err
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
			left, _ := linux.AvailableMemory()
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
	a.dump(off, n, false)
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
	if left, limit, ok := linux.CanReserve(wanted); !ok {
		return &NoMemoryError{Requested: wanted, Available: left, Limit: limit, Hint: "free memory, raise the limit, or ask for less"}
	}
	return nil
}
