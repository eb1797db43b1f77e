package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// machineChecks are run in this order. Each checks one feature. If a job needs a missing feature, its
// check names the cause of the trial job's failure.
var machineChecks = []func() check{
	checkKernel, checkCores, checkMemory, checkAddressSpace, checkFileSize, checkDescriptors, checkProcesses,
	checkProc, checkNull, checkMemfd, checkLocks, checkPidfd, checkFutex, checkSubreaper,
	checkUserNamespaces, checkHugePages, checkNodes, checkIOUring,
}

func checkKernel() check {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return bad(warn, "kernel", err.Error(), "use Linux 5.10 or newer")
	}
	return checkRelease(unix.ByteSliceToString(u.Release[:]))
}

// checkRelease warns, and never fails: distributions backport features to older kernels, and the
// other checks test each feature.
func checkRelease(release string) check {
	var major, minor int
	fmt.Sscanf(release, "%d.%d", &major, &minor)
	if major < 5 || major == 5 && minor < 10 {
		return bad(warn, "kernel", fmt.Sprintf("Linux %s, %s", release, runtime.GOARCH), "use Linux 5.10 or newer: softnd is not tested on older kernels")
	}
	return good("kernel", "Linux %s, %s", release, runtime.GOARCH)
}

func checkProc() check {
	for _, path := range []string{"/proc/self/exe", "/proc/self/fd"} {
		if _, err := os.Stat(path); err != nil {
			return bad(fail, "/proc", err.Error(), "mount it: mount -t proc proc /proc")
		}
	}
	return good("/proc", "mounted")
}

// checkNull opens /dev/null, the standard input of ndrun's helper processes and of most ranks.
func checkNull() check {
	f, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return bad(fail, os.DevNull, err.Error(), "make it: mknod -m 666 /dev/null c 1 3")
	}
	f.Close()
	return good(os.DevNull, "opens")
}

// checkMemfd makes the system calls of an arena: it creates a memory file, seals it, and reserves and
// releases a page. The size of /dev/shm does not limit memory files.
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
		return bad(warn, name, "freed memory is not released before the job ends: fallocate: "+err.Error(), "allow fallocate(FALLOC_FL_PUNCH_HOLE)")
	}
	return good(name, "memory files can be created, sealed, reserved and released")
}

// checkLocks tries the locks by which processes of a job detect each other's death.
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
		return bad(warn, "pidfd", err.Error(), "allow the system call: without it, softnd detects the death of a rank within 100 ms instead of at once")
	}
	unix.Close(fd)
	return good("pidfd", "the death of a rank is detected at once")
}

func checkFutex() check {
	if err := probeFutex(); err != nil {
		return bad(fail, "futex", err.Error(), "allow the system call (seccomp profile?)")
	}
	if !hasFutexWaitv() {
		return good("futex", "processes can sleep on a word of shared memory; not on several words, which softnd does not need")
	}
	return good("futex", "processes can sleep on one or several words of shared memory")
}

// checkSubreaper tries the system call that the launcher needs to find orphaned descendants of ranks.
func checkSubreaper() check {
	if err := probeSubreaper(); err != nil {
		return bad(warn, "subreaper", err.Error(), "allow the system call: without it, ndrun may miss processes that a rank leaves behind")
	}
	return good("subreaper", "ndrun finds the processes that a rank leaves behind")
}

func checkUserNamespaces() check {
	b, err := os.ReadFile("/proc/sys/user/max_user_namespaces")
	if err != nil {
		return good("user namespaces", "unknown; softnd needs none")
	}
	return good("user namespaces", "at most %s; softnd needs none", strings.TrimSpace(string(b)))
}

func checkIOUring() check {
	b, err := os.ReadFile("/proc/sys/kernel/io_uring_disabled")
	switch {
	case err != nil:
		return good("io_uring", "unknown; softnd does not use it")
	case strings.TrimSpace(string(b)) == "0":
		return good("io_uring", "allowed; softnd does not use it")
	}
	return good("io_uring", "restricted; softnd does not use it")
}
