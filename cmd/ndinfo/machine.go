package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// machineChecks look at one thing each. What a job cannot do without fails here as well as in
// the trial, so that the reader learns why.
var machineChecks = []func() check{
	checkKernel, checkCores, checkMemory, checkAddressSpace, checkFileSize, checkDescriptors, checkProcesses,
	checkProc, checkNull, checkMemfd, checkLocks, checkPidfd, checkFutex, checkSubreaper,
	checkUserNamespaces, checkHugePages, checkIOUring,
}

func checkKernel() check {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return bad(warn, "kernel", err.Error(), "softnd needs Linux 5.10 or newer")
	}
	return judgeKernel(unix.ByteSliceToString(u.Release[:]))
}

// judgeKernel only warns: distributions carry features into kernels of older numbers, and the
// other checks try what is needed.
func judgeKernel(release string) check {
	var major, minor int
	fmt.Sscanf(release, "%d.%d", &major, &minor)
	if major < 5 || major == 5 && minor < 10 {
		return bad(warn, "kernel", fmt.Sprintf("Linux %s, %s", release, runtime.GOARCH), "softnd is made for 5.10 or newer")
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

// checkNull opens what ndrun gives its helpers and most ranks as standard input.
func checkNull() check {
	f, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return bad(fail, os.DevNull, err.Error(), "make it: mknod -m 666 /dev/null c 1 3")
	}
	f.Close()
	return good(os.DevNull, "opens")
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
