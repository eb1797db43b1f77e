package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/meet/unixsock"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/shm"
)

// Users of TestOtherUserCannotReachJob. No account needs to exist.
const (
	victimUser   = 64201
	intruderUser = 64202
)

// runShared is a rank of a job. Rank 0 also has a named fabric.
func runShared(args []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*proctest.Timeout)
	defer cancel()
	job, err := softnd.Init(ctx)
	if err != nil {
		return err
	}
	if job.Rank() == 0 {
		if _, err := shm.OpenFabric(ctx, args[0], shm.Config{Size: 256 << 20}); err != nil {
			return err
		}
	}
	if err := job.Barrier(ctx); err != nil {
		return err
	}
	control, _, _ := strings.Cut(os.Getenv(softnd.EnvControl), ":") // without the secret
	fmt.Println("shared", control)
	<-ctx.Done() // the test stops the job
	return ctx.Err()
}

// roleIntruder tries to reach the processes of a user and a named fabric of theirs. It says in how many ways it can.
var roleIntruder = proctest.Role("intruder", func(self *proctest.Self) error {
	user, err := strconv.Atoi(self.Args[0])
	if err != nil {
		return err
	}
	var ways []string
	try := func(what string, err error) {
		if err == nil {
			ways = append(ways, what)
		}
	}
	victims := processesOf(user)
	if len(victims) == 0 {
		return errors.New("the user has no process")
	}
	for _, pid := range victims {
		for what, attempt := range intrusions {
			try(what, attempt(pid))
		}
	}
	sockets := socketsOf(user, self.Args[2])
	if len(sockets) < 2 {
		return fmt.Errorf("sockets of the job: %q, want that of ndrun and that of the fabric", sockets)
	}
	for _, name := range sockets {
		try("descriptors through a socket", dialForDescriptors(name))
	}
	f, err := shm.FindFabric(self.Ctx, self.Args[1])
	try("fabric by name", err)
	if err == nil {
		f.Close()
	}
	self.Say("%d processes, %d sockets: %q", len(victims), len(sockets), ways)
	return nil
})

// intrusions are ways into a process. Signal 0 is a check of the permission only.
var intrusions = map[string]func(pid int) error{
	"signal": func(pid int) error { return unix.Kill(pid, 0) },
	"signal by pidfd": func(pid int) error {
		return withPidfd(pid, func(pidfd int) error { return unix.PidfdSendSignal(pidfd, 0, nil, 0) })
	},
	"descriptor by pidfd": func(pid int) error {
		return withPidfd(pid, func(pidfd int) error {
			fd, err := unix.PidfdGetfd(pidfd, 0, 0)
			if err == nil {
				unix.Close(fd)
			}
			return err
		})
	},
	"arena in /proc/PID/fd": func(pid int) error {
		for fd := range 64 { // by number, for the directory cannot be read
			name := fmt.Sprintf("/proc/%d/fd/%d", pid, fd)
			if to, err := os.Readlink(name); err == nil && !strings.Contains(to, "softnd-arena") {
				continue
			}
			if f, err := os.OpenFile(name, os.O_RDWR, 0); err == nil {
				return f.Close()
			}
		}
		return fs.ErrPermission
	},
	"/proc/PID/fd":        func(pid int) error { return readable(pid, "fd") },
	"/proc/PID/map_files": func(pid int) error { return readable(pid, "map_files") },
	"/proc/PID/environ":   func(pid int) error { return readable(pid, "environ") },
	"/proc/PID/mem":       func(pid int) error { return openable(pid, "mem") },
	"memory of a process": func(pid int) error {
		local := []unix.Iovec{{Base: new(byte), Len: 1}}
		_, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: 0, Len: 1}}, 0)
		if err == unix.EFAULT { // permitted, but nothing is there
			return nil
		}
		return err
	},
}

func withPidfd(pid int, f func(pidfd int) error) error {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(pidfd)
	return f(pidfd)
}

func openable(pid int, name string) error {
	f, err := os.Open(fmt.Sprintf("/proc/%d/%s", pid, name))
	if err == nil {
		f.Close()
	}
	return err
}

// readable reads a file or a directory of a process.
func readable(pid int, name string) error {
	path := fmt.Sprintf("/proc/%d/%s", pid, name)
	if _, err := os.ReadDir(path); err == nil {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Read(make([]byte, 1))
	return err
}

// processesOf returns the processes of a user.
func processesOf(user int) (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if info, errInfo := e.Info(); err == nil && errInfo == nil && int(info.Sys().(*syscall.Stat_t).Uid) == user && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// socketsOf returns the addresses of the sockets of a job, which are that of its control channel and those of named fabrics of its user.
// Each process can see them.
func socketsOf(user int, control string) (names []string) {
	b, _ := os.ReadFile("/proc/net/unix")
	seen := map[string]bool{}
	for field := range strings.FieldsSeq(string(b)) {
		ofJob := field == "@"+control || strings.HasPrefix(field, fmt.Sprintf("@softnd-fabric-%d-", user))
		if ofJob && !seen[field] {
			seen[field] = true
			names = append(names, field)
		}
	}
	return names
}

// dialForDescriptors says several things to a socket. It fails unless descriptors come back.
func dialForDescriptors(name string) error {
	for _, hello := range []string{`{"kind":"hello","version":1,"rank":0,"file":true,"secret":""}`, "SOFTNDFB" + strings.Repeat("\x01\x00\x00\x00", 14)} {
		c, err := unixsock.Dial(name)
		if err != nil {
			continue
		}
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		_, _ = c.Write([]byte(hello))
		oob := make([]byte, unix.CmsgSpace(4*16))
		_, n, _, _ := c.Receive(make([]byte, 1<<12), oob)
		c.Close()
		if n > 0 {
			return nil
		}
	}
	return fs.ErrPermission
}

// asUser makes a command run as another user, from a copy of the test binary that this user can read.
func asUser(cmd *exec.Cmd, binary string, user uint32) *exec.Cmd {
	cmd.Path = binary
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: user, Gid: user}
	cmd.Dir = "/"
	return cmd
}

// readableBinary copies the test binary to where every user can execute it.
func readableBinary(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "ndrun-users") // only this user may be able to reach TMPDIR
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	from, err := os.Open(testBinary(t))
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(filepath.Join(dir, "test"), os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(to, from)
	if err := errors.Join(err, to.Close(), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	return to.Name()
}

// filesOf lists what a user has in the directories that all users can write.
func filesOf(user uint32) (names []string) {
	for _, dir := range []string{"/dev/shm", "/tmp", os.TempDir(), "/var/tmp", "/run/lock"} {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if info, err := e.Info(); err == nil && info.Sys().(*syscall.Stat_t).Uid == user {
				names = append(names, filepath.Join(dir, e.Name()))
			}
		}
	}
	return names
}

// A process of another user cannot signal a process of a job, nor get its memory or its descriptors, nor join it. The same
// attempts succeed as the job's user, or they would show nothing.
func TestOtherUserCannotReachJob(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skipf("only root can start processes of two other users, this is user %d", os.Geteuid())
	}
	binary := readableBinary(t)
	name := fmt.Sprintf("ndrun-users-%d", os.Getpid())
	job := proctest.Start(t, asUser(ndrun(t, "-n", "2", binary, "shared", name), binary, victimUser))
	var control string
	for range 2 {
		line := job.Hear()
		if _, control, _ = strings.Cut(line, " shared "); control == "" {
			t.Fatalf("a rank says %q", line)
		}
	}
	intrude := func(user uint32) string {
		status, out, errs := proctest.Run(t, asUser(proctest.Command(roleIntruder, fmt.Sprint(victimUser), name, control), binary, user))
		if status != 0 {
			t.Fatalf("the intruder: exit status %d: %s", status, errs)
		}
		return out
	}
	if out := intrude(intruderUser); !strings.HasSuffix(out, ": []\n") {
		t.Errorf("user %d reaches user %d: %s", intruderUser, victimUser, out)
	}
	out := intrude(victimUser)
	for _, way := range []string{"signal", "signal by pidfd", "arena in /proc/PID/fd", "/proc/PID/fd", "/proc/PID/environ", "fabric by name"} {
		if !strings.Contains(out, fmt.Sprintf("%q", way)) {
			t.Errorf("the job's own user: no %s in %s", way, out)
		}
	}
	t.Log(out)
	// Nothing has a name in a file system, so that there is nothing to take before, or to replace by a link.
	if names := filesOf(victimUser); len(names) > 0 {
		t.Errorf("the job has files: %q", names)
	}
	job.Signal(unix.SIGTERM)
	_ = job.End()
	proctest.Eventually(t, "no process of the job is left", func() bool { return len(processesOf(victimUser)) == 0 })
}
