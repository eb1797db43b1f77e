package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/shm"
)

// machineChecks look at one thing each. What a job cannot do without fails here as well as in
// the trial, so that the reader learns why.
var machineChecks = []func() check{
	checkKernel, checkCores, checkMemory, checkAddressSpace, checkFileSize, checkDescriptors,
	checkProc, checkMemfd, checkLocks, checkPidfd, checkFutex, checkSubreaper,
	checkUserNamespaces, checkHugePages, checkIOUring,
}

func checkKernel() check {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return bad(warn, "kernel", err.Error(), "")
	}
	return good("kernel", "%s %s, %s", unix.ByteSliceToString(u.Sysname[:]), unix.ByteSliceToString(u.Release[:]), runtime.GOARCH)
}

// checkCores compares the cores that may be used with the time that a cgroup grants on them.
func checkCores() check {
	cores := runtime.NumCPU()
	if quota, ok := cpuQuota(); ok && quota < float64(cores) {
		return bad(warn, "cores", fmt.Sprintf("%d usable, but the cgroup grants the time of %.1f", cores, quota),
			"start at most that many ranks, or raise cpu.max")
	}
	if cores == 1 {
		return bad(warn, "cores", "1 usable", "ranks take turns on it; use 2 cores or more for speed")
	}
	return good("cores", "%d usable", cores)
}

// cpuQuota returns how many cores' worth of time version 2 of the cpu controller grants at the
// top that this process sees, which in a container is its own group.
func cpuQuota() (cores float64, limited bool) {
	b, err := os.ReadFile("/sys/fs/cgroup/cpu.max")
	f := strings.Fields(string(b))
	if err != nil || len(f) != 2 {
		return 0, false
	}
	quota, err := strconv.ParseFloat(f[0], 64) // "max" is no number
	period, err2 := strconv.ParseFloat(f[1], 64)
	return quota / period, err == nil && err2 == nil && period > 0
}

const (
	leastMemory = 16 << 20 // below it not even the tables of an arena are sure to fit
	fairMemory  = 256 << 20
)

func checkMemory() check {
	left, limit := shm.MemoryLeft()
	found := fmt.Sprintf("%s left under %s", mebibytes(left), limit)
	switch {
	case limit == "":
		return bad(warn, "memory", "/proc tells nothing about it", "mount /proc; shortage cannot be foreseen without it")
	case left < leastMemory:
		return bad(fail, "memory", found, "free memory or raise the limit: a job needs "+mebibytes(leastMemory))
	case left < fairMemory:
		return bad(warn, "memory", found, "enough for a small job; what ranks allocate beyond it is refused")
	}
	return good("memory", "%s", found)
}

func mebibytes(n uint64) string { return fmt.Sprintf("%d MiB", n>>20) }

func checkAddressSpace() check {
	return checkLimit("address space", unix.RLIMIT_AS, 2<<30, 4<<30, "ulimit -v", mebibytes)
}

func checkFileSize() check {
	return checkLimit("file size", unix.RLIMIT_FSIZE, 64<<20, 1<<30, "ulimit -f", mebibytes)
}

func checkDescriptors() check {
	// A rank needs a dozen and one for each peer; a launcher, some for each rank.
	return checkLimit("descriptors", unix.RLIMIT_NOFILE, 64, 512, "ulimit -n", func(n uint64) string { return strconv.FormatUint(n, 10) })
}

// checkLimit looks at a resource limit: below least nothing starts, below fair large jobs do not.
func checkLimit(name string, resource int, least, fair uint64, option string, show func(uint64) string) check {
	var l unix.Rlimit
	if err := unix.Getrlimit(resource, &l); err != nil {
		return bad(warn, name, err.Error(), "")
	}
	remedy := fmt.Sprintf("raise it with %s to %s", option, show(fair))
	switch {
	case l.Cur == unix.RLIM_INFINITY:
		return good(name, "unlimited")
	case l.Cur < least:
		return bad(fail, name, "at most "+show(l.Cur), remedy)
	case l.Cur < fair:
		return bad(warn, name, "at most "+show(l.Cur), remedy)
	}
	return good(name, "at most %s", show(l.Cur))
}

func checkProc() check {
	if _, err := os.Readlink("/proc/self/fd/0"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return bad(fail, "/proc", err.Error(), "mount it: mount -t proc proc /proc")
	}
	if _, err := os.Stat("/proc/self/exe"); err != nil {
		return bad(fail, "/proc", err.Error(), "mount it: mount -t proc proc /proc")
	}
	return good("/proc", "mounted")
}

// checkMemfd makes what arenas are made of: a file without a name, sealed, with pages that are
// reserved and given back. The size of /dev/shm does not matter to it.
func checkMemfd() check {
	const name = "shared memory"
	fd, err := unix.MemfdCreate("ndinfo", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return bad(fail, name, "memfd_create: "+err.Error(), "allow the system call (seccomp profile?)")
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, 1<<20); err != nil {
		return bad(fail, name, "ftruncate: "+err.Error(), "raise the file size limit")
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		return bad(fail, name, "sealing: "+err.Error(), "allow fcntl(F_ADD_SEALS)")
	}
	if err := unix.Fallocate(fd, 0, 0, 4096); err != nil {
		return bad(fail, name, "fallocate: "+err.Error(), "free memory, or allow the system call")
	}
	if err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096); err != nil {
		return bad(warn, name, "memory cannot be given back: fallocate: "+err.Error(), "allow FALLOC_FL_PUNCH_HOLE")
	}
	return good(name, "nameless files can be made, sealed, reserved and given back")
}

// checkLocks tries the locks by which members see each other's death.
func checkLocks() check {
	const name = "file locks"
	fd, err := unix.MemfdCreate("ndinfo", unix.MFD_CLOEXEC)
	if err != nil {
		return bad(fail, name, "memfd_create: "+err.Error(), "allow the system call (seccomp profile?)")
	}
	defer unix.Close(fd)
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: 0, Len: 1}
	if err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &lock); err != nil {
		return bad(fail, name, "open-file-description locks: "+err.Error(), "allow fcntl(F_OFD_SETLK)")
	}
	return good(name, "open-file-description locks work")
}

func checkPidfd() check {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return bad(warn, "pidfd", err.Error(), "deaths of ranks are noticed within 100 ms instead of at once")
	}
	unix.Close(fd)
	return good("pidfd", "deaths are noticed at once")
}

func checkFutex() check {
	if err := futexWorks(); err != nil {
		return bad(fail, "futex", err.Error(), "allow the system call (seccomp profile?)")
	}
	if !waitsOnMany() {
		return good("futex", "waits on shared memory sleep; none on several words, which softnd does not need")
	}
	return good("futex", "waits on shared memory sleep, also on several words")
}

// checkSubreaper asks for what the launcher needs to find grandchildren.
func checkSubreaper() check {
	if err := subreaperKnown(); err != nil {
		return bad(warn, "subreaper", err.Error(), "ndrun may not find processes that a rank leaves behind")
	}
	return good("subreaper", "ndrun finds the processes that a rank leaves behind")
}

func checkUserNamespaces() check {
	b, err := os.ReadFile("/proc/sys/user/max_user_namespaces")
	if err != nil {
		return good("user namespaces", "not known; softnd needs none")
	}
	return good("user namespaces", "at most %s; softnd needs none", strings.TrimSpace(string(b)))
}

func checkHugePages() check {
	b, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
	if err != nil {
		return good("huge pages", "not available for shared memory; softnd does not need them")
	}
	chosen := string(b)
	if _, after, found := strings.Cut(chosen, "["); found {
		chosen, _, _ = strings.Cut(after, "]")
	}
	return good("huge pages", "%s for shared memory; softnd does not need them", strings.TrimSpace(chosen))
}

func checkIOUring() check {
	b, err := os.ReadFile("/proc/sys/kernel/io_uring_disabled")
	switch {
	case err != nil:
		return good("io_uring", "not known; softnd does not use it")
	case strings.TrimSpace(string(b)) == "0":
		return good("io_uring", "allowed; softnd does not use it")
	}
	return good("io_uring", "restricted; softnd does not use it")
}
