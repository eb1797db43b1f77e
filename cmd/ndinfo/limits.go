package main

import (
	"fmt"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/syslimit"
	"github.com/softnd/softnd/launcher"
	"github.com/softnd/softnd/shm"
)

// The least values of these checks are measured: ndrun fails below them with a single rank that
// does nothing but start.
const (
	leastMemory       = 8 << 20 // of ndrun, its watchdog and the rank, without their program files
	fairMemory        = 256 << 20
	leastFileSize     = 67 << 20 // the tables of an arena and one chunk
	fairFileSize      = 1 << 30
	leastAddressSpace = 2304 << 20 // with less it depends on how a program was built, and on chance
	fairAddressSpace  = 4 << 30
)

// descriptorsFor returns how many descriptors a job needs. Its supervisor, which closes what it
// inherits, needs at most the first number, and exactly that for up to 16 ranks, which it
// starts at once; ndrun, which keeps what it inherits, needs at most the second.
func descriptorsFor(ranks, inherited uint64) uint64 {
	const atOnce = 16
	supervisor := 13 + ranks + 5*min(ranks, atOnce)
	return max(supervisor, inherited+10+3*ranks)
}

func checkMemory() check { return judgeMemory(shm.AvailableMemory()) }

func judgeMemory(left uint64, limit string) check {
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

const processesCheck = "processes"

// checkProcesses finds fair twice what a job takes with a rank for each core: a Go program has
// more threads than at its start when it works. The launcher refuses a job with less than the
// least; the reserve is for processes that others start between this check and the job.
func checkProcesses() check {
	t, limited := syslimit.TightestTaskLimit()
	return judgeProcesses(t, limited, launcher.MinTasks(trialRanks)+4, 2*launcher.MinTasks(max(trialRanks, runtime.NumCPU())))
}

func judgeProcesses(t syslimit.TaskLimit, limited bool, least, fair uint64) check {
	const name = processesCheck
	switch {
	case !limited:
		return good(name, "no limit below the machine's")
	case t.Left() < least:
		return bad(fail, name, t.String(), fmt.Sprintf("raise it by %d or more: a job of %d ranks takes %d processes and threads", least-t.Left(), trialRanks, least))
	case t.Left() < fair:
		return bad(warn, name, t.String(), fmt.Sprintf("raise it by %d for a job with a rank on each core", fair-t.Left()))
	}
	return good(name, "%v", t)
}

func checkAddressSpace() check {
	return checkLimit("address space", unix.RLIMIT_AS, leastAddressSpace, fairAddressSpace, "ulimit -v", mebibytes)
}

func checkFileSize() check {
	return checkLimit("file size", unix.RLIMIT_FSIZE, leastFileSize, fairFileSize, "ulimit -f", mebibytes)
}

// checkDescriptors finds fair what a job with a rank for each core needs. It sees the hard limit:
// Go programs raise the soft one to it when they start.
func checkDescriptors() check {
	open, cores := inherited(), uint64(runtime.NumCPU())
	decimal := func(n uint64) string { return strconv.FormatUint(n, 10) }
	return checkLimit("descriptors", unix.RLIMIT_NOFILE, descriptorsFor(trialRanks, open), descriptorsFor(cores, open), "ulimit -Hn", decimal)
}

// inherited counts the descriptors within the limit that whoever started ndinfo left open; ndrun
// would have them too.
func inherited() (n uint64) {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return 0
	}
	for fd := range min(l.Cur, 1024) {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 {
			n++
		}
	}
	return n
}

// checkLimit looks at a resource limit: below least nothing starts, below fair large jobs do not.
func checkLimit(name string, resource int, least, fair uint64, option string, show func(uint64) string) check {
	var l unix.Rlimit
	if err := unix.Getrlimit(resource, &l); err != nil {
		return bad(warn, name, err.Error(), "allow the system call (seccomp profile?)")
	}
	remedy := fmt.Sprintf("raise it with %s to %s or more", option, show(fair))
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
