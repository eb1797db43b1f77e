package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/scale"
)

// The tests named TestStress run ndrun as an installed program, with random decisions from a
// seed. They take seconds. With SOFTND_STRESS=1 they run at full scale and take minutes.
// SOFTND_SEED repeats a run.

// seeded returns the random source of a test, and its seed.
func seeded(t *testing.T) (*rand.Rand, uint64) {
	t.Helper()
	seed := scale.Seed(t)
	return rand.New(rand.NewPCG(seed, 0)), seed
}

// builtDir is the directory of the built ndrun. TestMain removes it.
var builtDir string

var build1 = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "ndrun")
	if err != nil {
		return "", err
	}
	builtDir = dir
	out, err := exec.Command("go", "build", "-o", dir+"/ndrun", ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return dir + "/ndrun", nil
})

// built returns a command that runs the built ndrun. Its processes inherit env, by which
// leftovers finds them.
func built(t testing.TB, env []string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := build1()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = 2 * proctest.Timeout
	return cmd
}

// leftovers checks for objects that jobs leave: processes that inherited mark, temporary files,
// cgroups, and descriptors of this process.
type leftovers struct {
	t      *testing.T
	mark   string
	temp   string
	cgroup string // in which the jobs run, if one could be made; else ""
	held   int
}

func watchLeftovers(t *testing.T) *leftovers {
	t.Helper()
	l := &leftovers{t: t, mark: fmt.Sprintf("NDRUN_TEST_MARK=%d.%s", os.Getpid(), t.Name()), temp: t.TempDir()}
	if _, err := build1(); err != nil { // before the descriptors are counted
		t.Fatal(err)
	}
	l.held = entries("/proc/self/fd")
	for _, m := range linux.OwnCgroups() {
		for _, root := range []string{linux.CgroupMount, linux.CgroupMount + "/unified"} {
			dir := filepath.Join(root, m.Path, "ndrun-test-"+strconv.Itoa(os.Getpid())+strings.ReplaceAll(t.Name(), "/", "."))
			if _, err := os.Stat(filepath.Join(root, m.Path, "cgroup.procs")); m.IsV2() && err == nil && os.Mkdir(dir, 0o755) == nil {
				l.cgroup = dir
				t.Cleanup(func() { os.Remove(dir) })
			}
		}
	}
	return l
}

// start starts a command in the checked cgroup.
func (l *leftovers) start(cmd *exec.Cmd) error {
	if l.cgroup == "" {
		return cmd.Start()
	}
	dir, err := os.Open(l.cgroup)
	if err != nil {
		return err
	}
	defer dir.Close()
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	return cmd.Start()
}

func entries(dir string) int {
	all, err := os.ReadDir(dir)
	if err != nil {
		return -1
	}
	return len(all)
}

func (l *leftovers) env() []string { return []string{l.mark, "TMPDIR=" + l.temp} }

// mustBeNone waits until no process is left, because a killed ndrun's job takes a moment to end,
// and then checks the other objects.
func (l *leftovers) mustBeNone() {
	l.t.Helper()
	var left []string
	proctest.Eventually(l.t, "no process is left", func() bool {
		left = marked(l.mark)
		return len(left) == 0
	}, &left)
	if n := entries(l.temp); n != 0 {
		l.t.Errorf("%d temporary files are left", n)
	}
	groups, _ := filepath.Glob(filepath.Join(l.cgroup, "*/cgroup.procs"))
	if l.cgroup != "" && len(groups) != 0 {
		l.t.Errorf("cgroups are left: %v", groups)
	}
	if n := entries("/proc/self/fd"); n > l.held {
		l.t.Errorf("this process has %d descriptors, before %d", n, l.held)
	}
}

// marked returns the processes that have mark in their environment.
func marked(mark string) (found []string) {
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, name := range environs {
		env, err := os.ReadFile(name)
		if err == nil && strings.Contains("\x00"+string(env), "\x00"+mark+"\x00") {
			args, _ := os.ReadFile(filepath.Dir(name) + "/cmdline")
			found = append(found, strings.TrimSuffix(name, "/environ")+" "+strings.ReplaceAll(string(args), "\x00", " "))
		}
	}
	return found
}

// status returns the exit status of a command that has ended, as in a shell.
func status(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}
