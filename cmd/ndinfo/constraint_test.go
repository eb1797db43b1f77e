package main

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

// mustFail checks the report of a machine that cannot start jobs. The named check must have failed.
func mustFail(t *testing.T, r report, exit int, name string) {
	t.Helper()
	if exit != 1 || r.Starts {
		t.Errorf("exit status %d, starts %v", exit, r.Starts)
	}
	if c := r.check(name); c.Status != fail || c.Remedy == "" {
		t.Errorf("%+v", c)
	}
	if job := r.check("job"); job.Found == "" || job.Status == fail && job.Remedy == "" {
		t.Errorf("%+v", job)
	}
}

func TestFileSizeLimit(t *testing.T) {
	r, exit := ndinfo(t, limitOf(unix.RLIMIT_FSIZE, 1<<20), nil)
	mustFail(t, r, exit, "file size")
	if job := r.check("job"); !strings.Contains(job.Remedy, "raise the limit") || strings.Contains(job.Found, job.Remedy) {
		t.Errorf("the advice of the error is not the remedy, or also in the text: %+v", job)
	}
}

// For each number of descriptors, ndinfo reports that a job starts only if ndrun can start one.
func TestDescriptors(t *testing.T) {
	ndrun := filepath.Join(t.TempDir(), "ndrun")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", ndrun, "../ndrun").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, tt := range []struct {
		name      string
		inherited int
		first     uint64 // not enough
		exact     bool   // false: the minimum varies between runs
	}{{"none inherited", 0, 16, true}, {"many inherited", 14, 26, false}} {
		t.Run(tt.name, func(t *testing.T) {
			inheritOnly(t, tt.inherited)
			const last = 64 // more than enough
			for limit, started := tt.first, 0; started < 2; limit++ {
				r, exit := ndinfo(t, limitOf(unix.RLIMIT_NOFILE, limit), nil)
				if limit == tt.first || exit != 0 {
					mustFail(t, r, exit, "descriptors")
				} else {
					mustStart(t, r, exit)
					started++
				}
				script := fmt.Sprintf("ulimit -n %d; exec %s -n 2 true", limit, ndrun)
				out, err := exec.CommandContext(t.Context(), "sh", "-c", script).CombinedOutput()
				starts := err == nil
				if r.Starts && !starts || tt.exact && r.Starts != starts || limit == last {
					t.Fatalf("%d descriptors: ndinfo starts %v, ndrun: %v %s", limit, r.Starts, err, out)
				}
				if tt.exact && !starts && !strings.Contains(string(out), "too many open files: raise") {
					t.Errorf("%d descriptors: %s", limit, out)
				}
			}
		})
	}
}

// inheritOnly makes programs that a test starts inherit n descriptors besides the standard three.
func inheritOnly(t *testing.T, n int) {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range open {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	for range n {
		fd, err := unix.Dup(2)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
	}
}

func TestNoProc(t *testing.T) {
	r, exit := ndinfo(t, "no proc", &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	})
	mustFail(t, r, exit, "/proc")
	if c := r.check("memory"); c.Status != warn {
		t.Errorf("%+v", c)
	}
}

func TestLittleMemory(t *testing.T) {
	const limit = memoryFactor * 64 << 20
	dir := memoryCgroup(t, limit)
	r, exit := ndinfo(t, constraint("cgroup "+dir), nil)
	mustStart(t, r, exit)
	if c := r.check("memory"); c.Status != warn || !strings.Contains(c.Found, dir) {
		t.Errorf("%+v", c)
	}
}

// memoryCgroup creates a memory cgroup below that of this process. It skips the test if that is not allowed.
func memoryCgroup(t *testing.T, limit int) string {
	t.Helper()
	var err error
	for _, m := range linux.OwnCgroups() {
		if !m.Has("memory") {
			continue
		}
		parent, file := path.Join(linux.CgroupMount, m.Path), "memory.max"
		if !m.IsV2() {
			parent, file = path.Join(linux.CgroupMount, "memory", m.Path), "memory.limit_in_bytes"
		}
		dir := path.Join(parent, fmt.Sprintf("ndinfo-test-%d", os.Getpid()))
		if err = os.Mkdir(dir, 0o755); err != nil {
			continue
		}
		t.Cleanup(func() { removeCgroup(t, dir) })
		if err = os.WriteFile(path.Join(dir, file), fmt.Append(nil, limit), 0); err == nil {
			return dir
		}
	}
	t.Skipf("no memory cgroup can be made here: %v", err)
	return ""
}

// removeCgroup tries again if the kernel has not removed dead processes from the cgroup yet.
func removeCgroup(t *testing.T, dir string) {
	proctest.Eventually(t, dir+" is empty and removed", func() bool { return unix.Rmdir(dir) == nil })
}
