package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/goruntime"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

// envConstraint has the constraint of a process with roleNdinfo.
const envConstraint = "NDINFO_TEST_CONSTRAINT"

// constraint restricts a process: "limit resource value", "cgroup directory", "no proc",
// "refuse call", or "none".
type constraint string

func limitOf(resource int, value uint64) constraint {
	return constraint(fmt.Sprint("limit ", resource, " ", value))
}

// envTrialTimeout has another trialTimeout for ndinfo and its ranks.
const envTrialTimeout = "NDINFO_TEST_TIMEOUT"

func TestMain(m *testing.M) {
	if limit, err := time.ParseDuration(os.Getenv(envTrialTimeout)); err == nil {
		trialTimeout = limit
	}
	serveChild()
	proctest.Main()
	proctest.SideBySide(8)
	os.Exit(m.Run())
}

// roleNdinfo is ndinfo, or ndrun if the arguments are its command line, under a constraint.
var roleNdinfo = proctest.Role("ndinfo", func(self *proctest.Self) error {
	if err := constraint(os.Getenv(envConstraint)).enter(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitUnsupported)
	}
	if len(self.Args) > 0 && path.Base(self.Args[0]) == "ndrun" {
		os.Unsetenv(proctest.RoleEnv) // for the ranks, which are this binary too
		return unix.Exec(self.Args[0], self.Args, os.Environ())
	}
	os.Exit(run(self.Args, os.Stdout, os.Stderr))
	return nil
})

const exitUnsupported = 3 // exit status: the constraint cannot be set up on this machine

func (s constraint) enter() error {
	f := strings.Fields(string(s))
	switch f[0] {
	case "limit":
		resource, _ := strconv.Atoi(f[1])
		value, _ := strconv.ParseUint(f[2], 10, 64)
		return unix.Setrlimit(resource, &unix.Rlimit{Cur: value, Max: value})
	case "cgroup":
		return os.WriteFile(f[1]+"/cgroup.procs", []byte(strconv.Itoa(os.Getpid())), 0)
	case "refuse":
		call, _ := strconv.ParseUint(f[1], 10, 32)
		return refuse(uint32(call))
	case "no":
		return unix.Mount("none", "/proc", "tmpfs", 0, "")
	}
	return nil
}

// ndinfo runs ndinfo --json in a process of its own. It skips the test if the machine does not allow
// the constraint.
func ndinfo(t *testing.T, s constraint, attr *syscall.SysProcAttr, env ...string) (r report, exit int) {
	t.Helper()
	cmd := proctest.Command(roleNdinfo, "--json")
	cmd.Env = append(append(cmd.Env, envConstraint+"="+string(s), envTrialTimeout+"=1m"), env...)
	cmd.SysProcAttr = attr
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	switch exit := cmd.ProcessState.ExitCode(); {
	case attr != nil && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC)):
		t.Skipf("this machine allows no user namespaces: %v", err)
	case exit == exitUnsupported:
		t.Skipf("this machine does not allow %q: %s", s, &errs)
	case err != nil && exit != 1:
		t.Fatalf("%v: %s", err, &errs)
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%v in %s", err, &out)
	}
	return r, cmd.ProcessState.ExitCode()
}

// mustStart checks the report of a machine that can start jobs.
func mustStart(t *testing.T, r report, exit int) {
	t.Helper()
	if exit != 0 || !r.Starts {
		t.Errorf("exit status %d, %+v", exit, r.Checks)
	}
	if len(r.Adapters) != 1 || len(r.Adapters[0].Addresses) != 1 || r.Adapters[0].Limits.MaxTransferLength == 0 {
		t.Errorf("adapters %+v", r.Adapters)
	}
	for _, c := range r.Checks {
		if c.Name == "" || c.Found == "" || c.Status == fail || c.Status == warn && c.Remedy == "" {
			t.Errorf("%+v", c)
		}
	}
}

func TestThisMachine(t *testing.T) {
	r, exit := ndinfo(t, "none", nil)
	mustStart(t, r, exit)
}

// The ranks of the trial job check the variables that users set.
func TestVariablesAreChecked(t *testing.T) {
	for _, name := range []string{softnd.EnvExec, softnd.EnvReceiveTimeout, softnd.EnvIntegrity, softnd.EnvWeakOrder, softnd.EnvCheck, softnd.EnvCheckIgnore, softnd.EnvDebug} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(softnd.EnvCheck, "1") // else nothing reads the rules
			t.Setenv(name, "nonsense")
			r, exit := ndinfo(t, "none", nil)
			if job := r.check(jobCheck); exit != 1 || r.Starts || !strings.Contains(job.Found, name) {
				t.Errorf("exit status %d, starts %v, %+v", exit, r.Starts, job)
			}
		})
	}
}

// An unprivileged user in namespaces of its own can start jobs.
func TestUnprivilegedContainer(t *testing.T) {
	r, exit := ndinfo(t, "none", &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getgid(), Size: 1}},
	})
	mustStart(t, r, exit)
}

func TestReportPrint(t *testing.T) {
	r := &report{Ranks: 2, Checks: []check{good("cores", "2 usable"), bad(warn, "memory", "little", "free some"), bad(fail, "job", "broken", "repair it")}}
	var out bytes.Buffer
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ok    cores   2 usable\n", "warn  memory  little; free some\n", "fail  job     broken; repair it\n", "A job of 2 ranks does not start here"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

func TestArguments(t *testing.T) {
	for _, tc := range []struct {
		args []string
		exit int
		text string
	}{
		{[]string{"-h"}, 0, "usage: ndinfo"},
		{[]string{"--jsn"}, 2, "ndinfo: flag provided but not defined: -jsn: ndinfo -h lists the options\n"},
		{[]string{"all"}, 2, `unexpected argument "all"`},
	} {
		var out, errs bytes.Buffer
		if exit := run(tc.args, &out, &errs); exit != tc.exit || !strings.Contains(errs.String(), tc.text) || out.Len() > 0 {
			t.Errorf("%v: exit status %d, %s%s", tc.args, exit, &out, &errs)
		}
	}
}

// --version names the program and its build.
func TestVersion(t *testing.T) {
	var out, errOut bytes.Buffer
	if status := run([]string{"--version"}, &out, &errOut); status != 0 || out.String() != "ndinfo (softnd) "+goruntime.BuildName()+"\n" {
		t.Errorf("exit status %d, %s%s", status, out.String(), errOut.String())
	}
}
