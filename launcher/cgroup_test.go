package launcher

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

// needCgroups skips a test if this user may not create cgroups.
func needCgroups(t *testing.T) {
	t.Helper()
	g := cgroupDirNamed(newCgroupName())
	g.make()
	defer g.destroy()
	if fd := g.open(); fd >= 0 {
		syscall.Close(fd)
		return
	}
	t.Skipf("no cgroup can be made at %q", g)
}

// cgroupOf returns the directory of a process's cgroup.
func cgroupOf(t *testing.T, pid int) string {
	t.Helper()
	memberships, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range linux.ParseCgroups(string(memberships)) {
		if m.IsV2() {
			name := filepath.Base(m.Path)
			if !strings.HasPrefix(name, "softnd-") {
				t.Fatalf("process %d is in cgroup %q", pid, m.Path)
			}
			return filepath.Join(linux.OwnCgroupDir(), name)
		}
	}
	t.Fatalf("process %d is in none of the cgroups of version 2", pid)
	return ""
}

// mustVanish waits until a directory is removed.
func mustVanish(t *testing.T, dir string) {
	t.Helper()
	proctest.Eventually(t, dir+" is removed", func() bool {
		_, err := os.Stat(dir)
		return errors.Is(err, fs.ErrNotExist)
	})
}

// If watchdog and supervisor are killed at once, the front end kills processes that have left the
// ranks' sessions.
func TestGrandchildrenDieWithBothHelpers(t *testing.T) {
	needCgroups(t)
	bystander(t)
	front := startFrontEnd(t, "family", 3)
	f := parseFamily(t, front.out.await(3, "grandchild"))
	dir := cgroupOf(t, f.grandchildren[0].PID)
	p, err := linux.ReadProcess(f.supervisor.PID)
	if err != nil {
		t.Fatal(err)
	}
	supervisors := []proctest.Watched{f.supervisor, proctest.Watch(t, p.PPID)}
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		for _, w := range supervisors {
			w.Signal(sig)
		}
	}
	f.mustEnd()
	if got := front.wait(); got != 72 {
		t.Errorf("the front ended with %d, want 72", got)
	}
	mustVanish(t, dir)
}

// The cgroup is removed at the end of the job, also if one of its processes is killed.
func TestCgroupIsRemoved(t *testing.T) {
	t.Parallel()
	needCgroups(t)
	for _, victim := range []string{"none", "rank", "front", "watchdog", "supervisor", "front and watchdog", "front and supervisor"} {
		t.Run(victim, func(t *testing.T) {
			front := startFrontEnd(t, "plan", 2, "PLAN_0=gate exit 0", "PLAN_1=gate exit 0")
			var rank, supervisor int
			fmt.Sscan(front.out.await(2, "ready")[1], &rank, &supervisor)
			dir := cgroupOf(t, rank)
			p, err := linux.ReadProcess(supervisor)
			if err != nil {
				t.Fatal(err)
			}
			processes := map[string]proctest.Watched{"rank": proctest.Watch(t, rank), "front": front.Watched, "watchdog": proctest.Watch(t, p.PPID), "supervisor": proctest.Watch(t, supervisor)}
			if victim == "none" {
				front.Signal(syscall.SIGTERM)
			}
			for name, w := range processes {
				if strings.Contains(victim, name) {
					w.Signal(syscall.SIGSTOP)
				}
			}
			for name, w := range processes {
				if strings.Contains(victim, name) {
					w.Signal(syscall.SIGKILL)
				}
			}
			for _, w := range processes {
				w.MustEnd()
			}
			front.wait() // the status depends on the victim
			mustVanish(t, dir)
		})
	}
}

// A rank may have created groups below its own, as a nested job does.
func TestCgroupIsRemovedWithSubgroups(t *testing.T) {
	needCgroups(t)
	g := cgroupDirNamed(newCgroupName())
	g.make()
	below := g + "/softnd-below"
	below.make()
	fd := below.open()
	defer syscall.Close(fd)
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w := proctest.Watch(t, cmd.Process.Pid)
	g.destroy()
	w.MustEnd()
	cmd.Wait()
	if _, err := os.Stat(string(g)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there: %v", g, err)
	}
}

// Without permission to create cgroups, all methods return at once and do nothing.
func TestWithoutCgroup(t *testing.T) {
	for _, g := range []cgroupDir{"", "/proc/softnd-none"} {
		g.make()
		if fd := g.open(); fd != -1 {
			t.Errorf("%q opens as %d", g, fd)
		}
		g.kill()
		g.destroy()
	}
}

// destroy tries again only while processes hold the group. Any other error ends it at once, such as that
// of a read-only mount, which rmdir returns for any name.
func TestDestroyGivesUpAtOnce(t *testing.T) {
	dir := t.TempDir() // no cgroup: rmdir fails with ENOTEMPTY
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cgroupDir(dir).destroy()
	if _, err := os.Stat(filepath.Join(dir, "cgroup.kill")); !errors.Is(err, fs.ErrNotExist) { // kill creates it here
		t.Errorf("destroy has tried again: %v", err)
	}
}
