package main

import (
	"fmt"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/launcher"
)

// The minima are measured: below them, ndrun fails to start a single rank that returns from main
// at once. Below the recommended values, jobs start but are limited.
const (
	minMemory               = 8 << 20 // of ndrun, its watchdog and the rank, without their program files
	recommendedMemory       = 256 << 20
	minFileSize             = 87 << 20 // the tables of an arena and one chunk
	recommendedFileSize     = 1 << 30
	minAddressSpace         = 2304 << 20 // with less, some programs do not start
	recommendedAddressSpace = 4 << 30
)

// descriptorsFor returns how many descriptors a job needs: the larger of the needs of its supervisor
// and of ndrun. The supervisor closes inherited descriptors, and starts up to 16 ranks at the same
// time. ndrun keeps inherited descriptors.
func descriptorsFor(ranks, inherited uint64) uint64 {
	const atOnce = 16
	supervisor := 13 + ranks + 5*min(ranks, atOnce)
	return max(supervisor, inherited+10+3*ranks)
}

func checkMemory() check { return checkMemoryLeft(linux.AvailableMemory()) }

func checkMemoryLeft(left uint64, limit string) check {
	found := fmt.Sprintf("%s left under %s", mebibytes(left), limit)
	switch {
	case limit == "":
		return bad(warn, "memory", "unknown: /proc has no memory information", "mount /proc: softnd reads the free memory there")
	case left < minMemory:
		return bad(fail, "memory", found, "free memory or raise the limit: a job needs "+mebibytes(minMemory))
	case left < recommendedMemory:
		return bad(warn, "memory", found, "free memory or raise the limit for larger jobs: softnd refuses allocations beyond it")
	}
	return good("memory", "%s", found)
}

func mebibytes(n uint64) string { return fmt.Sprintf("%d MiB", n>>20) }

const processesCheck = "processes"

// checkProcesses recommends twice the tasks of a job with a rank for each core, because a Go program
// starts more threads as it runs. It requires 4 tasks more than the launcher does, as a reserve for
// processes that other programs start before the job.
func checkProcesses() check {
	t, limited := linux.TightestTaskLimit()
	return checkTaskLimit(t, limited, launcher.MinTasks(trialRanks)+4, 2*launcher.MinTasks(max(trialRanks, runtime.NumCPU())))
}

func checkTaskLimit(t linux.TaskLimit, limited bool, required, recommended uint64) check {
	const name = processesCheck
	switch {
	case !limited:
		return good(name, "no limit below the machine's")
	case t.Left() < required:
		return bad(fail, name, t.String(), fmt.Sprintf("raise it by %d or more: a job of %d ranks takes %d processes and threads", required-t.Left(), trialRanks, required))
	case t.Left() < recommended:
		return bad(warn, name, t.String(), fmt.Sprintf("raise it by %d for a job with a rank on each core", recommended-t.Left()))
	}
	return good(name, "%v", t)
}

func checkAddressSpace() check {
	return checkLimit("address space", unix.RLIMIT_AS, minAddressSpace, recommendedAddressSpace, "ulimit -v", mebibytes)
}

func checkFileSize() check {
	return checkLimit("file size", unix.RLIMIT_FSIZE, minFileSize, recommendedFileSize, "ulimit -f", mebibytes)
}

// checkDescriptors recommends the number for a job with a rank for each core. It sees the hard
// limit, because the Go runtime raises the soft limit to it at start.
func checkDescriptors() check {
	open, cores := inherited(), uint64(runtime.NumCPU())
	decimal := func(n uint64) string { return strconv.FormatUint(n, 10) }
	return checkLimit("descriptors", unix.RLIMIT_NOFILE, descriptorsFor(trialRanks, open), descriptorsFor(cores, open), "ulimit -Hn", decimal)
}

// inherited returns the number of descriptors that ndinfo has inherited from its parent process, up
// to 1024. ndrun inherits the same ones.
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

// checkLimit checks a resource limit: below required no job starts, below recommended no large one.
func checkLimit(name string, resource int, required, recommended uint64, option string, show func(uint64) string) check {
	var l unix.Rlimit
	if err := unix.Getrlimit(resource, &l); err != nil {
		return bad(warn, name, err.Error(), "allow the system call (seccomp profile?)")
	}
	remedy := fmt.Sprintf("raise it with %s to %s or more", option, show(recommended))
	switch {
	case l.Cur == unix.RLIM_INFINITY:
		return good(name, "unlimited")
	case l.Cur < required:
		return bad(fail, name, "at most "+show(l.Cur), remedy)
	case l.Cur < recommended:
		return bad(warn, name, "at most "+show(l.Cur), remedy)
	}
	return good(name, "at most %s", show(l.Cur))
}
