package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

// limitedTo makes cmd run in its own control group whose file has limit. It skips the test if the
// group cannot be created.
func limitedTo(t *testing.T, cmd *exec.Cmd, controller, files, limit string) (dir string) {
	t.Helper()
	err := errors.New("no control group has that file")
	for _, parent := range linux.CgroupDirs(controller) {
		dir = filepath.Join(parent, fmt.Sprintf("ndrun-test-%d", os.Getpid()))
		if e := os.Mkdir(dir, 0o755); e != nil {
			continue
		}
		t.Cleanup(func() {
			proctest.Eventually(t, dir+" is empty and removed", func() bool { return unix.Rmdir(dir) == nil })
		})
		for file := range strings.FieldsSeq(files) {
			if err = os.WriteFile(filepath.Join(dir, file), []byte(limit), 0); err == nil {
				script := `echo $$ >"$0/cgroup.procs" && exec "$@"`
				cmd.Args = slices.Concat([]string{"sh", "-c", script, dir, cmd.Path}, cmd.Args[1:])
				cmd.Path = "/bin/sh"
				return dir
			}
		}
		break
	}
	t.Skipf("no control group for %s can be made here: %v", controller, err)
	return ""
}

// If a limit allows too few processes and threads for a job, ndrun names the limit and prints
// nothing else.
func TestFewProcesses(t *testing.T) {
	for _, limit := range []string{"26", "37"} {
		t.Run(limit, func(t *testing.T) {
			cmd := ndrun(t, "-n", "2", "-env", proctest.RoleEnv+"=job", testBinary(t), "close")
			dir := limitedTo(t, cmd, "pids", "pids.max", limit)
			status, out, errOut := proctest.Run(t, cmd)
			if status != 1 || out != "" || strings.Count(errOut, "\n") != 1 || !strings.Contains(errOut, "pids.max of "+dir+" is "+limit) {
				t.Errorf("exit status %d, %s%s", status, out, errOut)
			}
		})
	}
}

// If a rank cannot create processes, ndrun names the limit, also if the limit stays reached for
// some time.
func TestRankReachesLimitOfProcesses(t *testing.T) {
	// Before the job, the launcher may use more than a third of the limit; with the ranks' processes, it needs more than all of it.
	const limit = "64"
	fork := "for i in" + strings.Repeat(" x", 40) + "; do sleep 100 & done"
	for _, c := range []struct {
		name, script string
		status       int
	}{
		{"and fails", fork + "; wait", 2},
		{"and waits", "(" + fork + "); echo forked; exec sleep 100", 128 + int(unix.SIGTERM)},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := ndrun(t, "-n", "1", "sh", "-c", c.script)
			dir := limitedTo(t, cmd, "pids", "pids.max", limit)
			p := proctest.Start(t, cmd)
			if c.status > 128 {
				p.Expect("[0] forked")
				time.Sleep(time.Second) // the limit stays reached
				p.Signal(unix.SIGTERM)
			}
			status, errOut := status(p.End()), p.Err.String()
			if want := "ndrun: limit of processes and threads reached: pids.max of " + dir + " is " + limit + ": raise it or start fewer ranks\n"; status != c.status || !strings.Contains(errOut, want) {
				t.Errorf("exit status %d, want %d and %q: %s", status, c.status, want, errOut)
			}
			if strings.Contains(errOut, "supervisor") || strings.Contains(errOut, "goroutine") {
				t.Errorf("a process of ndrun has ended: %s", errOut)
			}
		})
	}
}

// If the Go runtime of a rank cannot create a thread, ndrun names the limit.
func TestRankCannotCreateThread(t *testing.T) {
	for _, message := range []string{"runtime: failed to create new OS thread (have 5 already; errno=11)", "runtime/cgo: pthread_create failed: Resource temporarily unavailable"} {
		status, _, errOut := proctest.Run(t, ndrun(t, "-n", "1", "sh", "-c", `echo "$0" >&2; exit 2`, message))
		if status != 2 || !strings.Contains(errOut, "\nndrun: limit of processes and threads reached: ") {
			t.Errorf("%s: exit status %d, %s", message, status, errOut)
		}
	}
}

// ndrun reports that the out-of-memory killer killed a rank or a process that a rank has started.
func TestOutOfMemory(t *testing.T) {
	const eat = "tail /dev/zero"
	for name, script := range map[string]string{"a rank": "exec " + eat, "its child": eat + "; exit $?"} {
		t.Run(name, func(t *testing.T) {
			cmd := ndrun(t, "-n", "1", "sh", "-c", script)
			limitedTo(t, cmd, "memory", "memory.max memory.limit_in_bytes", strconv.Itoa(memoryFactor*64<<20))
			status, _, errOut := proctest.Run(t, cmd)
			if status != 137 || !strings.Contains(errOut, "ndrun: out-of-memory killer of the kernel killed 1 process during the job (oom_kill in /") {
				t.Errorf("exit status %d, %s", status, errOut)
			}
			if rank := strings.Contains(errOut, "SIGKILL (killed), probably by the kernel's out-of-memory killer"); rank != (name == "a rank") {
				t.Errorf("the message about the rank is wrong: %s", errOut)
			}
		})
	}
}
