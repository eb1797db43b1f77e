package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// refuse makes a system call fail with EPERM in this process and in its children, from now on.
func refuse(call uint32) error {
	const number = 0 // in struct seccomp_data
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: number},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&filter)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return errno
	}
	return nil
}

// refusable are system calls without which this binary itself still runs.
var refusable = map[string]uint32{
	"accept4": unix.SYS_ACCEPT4, "bind": unix.SYS_BIND, "connect": unix.SYS_CONNECT, "dup3": unix.SYS_DUP3,
	"fallocate": unix.SYS_FALLOCATE, "fstat": unix.SYS_FSTAT, "ftruncate": unix.SYS_FTRUNCATE, "getdents64": unix.SYS_GETDENTS64,
	"getsockopt": unix.SYS_GETSOCKOPT, "kill": unix.SYS_KILL, "listen": unix.SYS_LISTEN, "membarrier": unix.SYS_MEMBARRIER,
	"memfd_create": unix.SYS_MEMFD_CREATE, "mkdirat": unix.SYS_MKDIRAT, "pidfd_open": unix.SYS_PIDFD_OPEN,
	"pidfd_send_signal": unix.SYS_PIDFD_SEND_SIGNAL, "pipe2": unix.SYS_PIPE2, "prlimit64": unix.SYS_PRLIMIT64,
	"recvmsg": unix.SYS_RECVMSG, "sched_getaffinity": unix.SYS_SCHED_GETAFFINITY, "sched_setaffinity": unix.SYS_SCHED_SETAFFINITY,
	"sendmsg": unix.SYS_SENDMSG, "setpgid": unix.SYS_SETPGID, "setsid": unix.SYS_SETSID, "socket": unix.SYS_SOCKET,
	"socketpair": unix.SYS_SOCKETPAIR, "wait4": unix.SYS_WAIT4, "waitid": unix.SYS_WAITID,
}

// For each refused system call, ndinfo reports that a job starts only if ndrun can start one.
func TestRefusedSystemCalls(t *testing.T) {
	if testing.Short() {
		t.Skip("some refusals end in a time limit")
	}
	dir := t.TempDir()
	ndrun := filepath.Join(dir, "ndrun")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", ndrun, "../ndrun").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(dir, rankName)); err != nil {
		t.Fatal(err)
	}
	var agreed atomic.Int32
	t.Cleanup(func() { expectNoProcesses(t, self, ndrun) }) // when all have ended
	t.Cleanup(func() { t.Logf("%d of %d system calls could be refused here", agreed.Load(), len(refusable)) })
	for name, call := range refusable {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // one waits for a time limit
			s := constraint(fmt.Sprint("refuse ", call))
			var r report
			var out []byte
			var job sync.WaitGroup // of ndrun, which runs beside ndinfo, because each may wait for a time limit
			defer job.Wait()
			for limit := range proctest.Limits(t, "both jobs end, or none does", 20*time.Second) {
				cmd := proctest.Command(roleNdinfo, ndrun, "--timeout", limit.String(), "-n", "2", rankName)
				cmd.Env = append(cmd.Env, envConstraint+"="+string(s), envTrialTimeout+"="+limit.String(), "PATH="+dir+":"+os.Getenv("PATH"))
				var err error
				job.Go(func() { out, err = cmd.CombinedOutput() })
				var exit int
				r, exit = ndinfo(t, s, nil, envTrialTimeout+"="+limit.String())
				job.Wait()
				hangs := strings.Contains(r.check(jobCheck).Found, "not ended in") || strings.Contains(r.check(jobCheck).Found, "deadline exceeded")
				if hangs != (cmd.ProcessState.ExitCode() == 124) {
					continue
				}
				if r.Starts != (err == nil) {
					t.Errorf("ndinfo exits with %d, ndrun: %v %s, ndinfo's check: %+v", exit, err, out, r.check(jobCheck))
				}
				break
			}
			if strings.Count(string(out), "\n") > 40 {
				t.Errorf("ndrun says too much: %s", out)
			}
			for _, c := range r.Checks {
				if c.Status == fail && (c.Found == "" || c.Remedy == "") {
					t.Errorf("%+v", c)
				}
			}
			agreed.Add(1)
		})
	}
}

// expectNoProcesses fails the test if a process of the given programs still runs, apart from this one.
func expectNoProcesses(t *testing.T, programs ...string) {
	t.Helper()
	var left []string
	proctest.Eventually(t, "no process runs", func() bool { // the end of a killed process takes some time
		left = nil
		exes, _ := filepath.Glob("/proc/[0-9]*/exe")
		for _, exe := range exes {
			program, err := os.Readlink(exe)
			if pid := filepath.Base(filepath.Dir(exe)); err == nil && pid != strconv.Itoa(os.Getpid()) && slices.Contains(programs, program) {
				left = append(left, pid+" "+program)
			}
		}
		return len(left) == 0
	}, &left)
}
