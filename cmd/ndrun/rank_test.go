package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/launcher"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// runJob is a rank of softnd that meets the others and ends as its argument says.
func runJob() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*proctest.Timeout)
	defer cancel()
	job, err := softnd.Init(ctx)
	if err != nil {
		if os.Args[1] == "linger" {
			err = errors.Join(err, os.WriteFile(os.Args[2], nil, 0o600))
		}
		return err
	}
	if err := job.Barrier(ctx); err != nil {
		return err
	}
	fmt.Println("met", job.Size())
	how := os.Args[1]
	if how == "measure" && job.Rank() == 0 {
		var st unix.Stat_t
		if err := unix.Fstat(launcher.FirstFile, &st); err != nil {
			return err
		}
		fmt.Println("arena takes", st.Blocks*512)
	}
	for how == "linger" { // until the process that finds its rank taken has ended
		if _, err := os.Stat(os.Args[2]); err == nil {
			return job.Close()
		}
		time.Sleep(time.Millisecond)
	}
	closes := how == "close" || how == "measure"
	if closes || job.Rank() != 1 && how != "unclosed" {
		if !closes {
			return lament(job.Barrier(ctx)) // rank 1 does not come
		}
		return job.Close()
	}
	switch how {
	case "abort":
		softnd.Abort(7, "the disk is full")
	case "abort at length":
		softnd.Abort(300, "two\nlines")
	case "panic":
		panic("no way out")
	case "panic before a deferred Close":
		defer job.Close()
		panic("no way out")
	}
	os.Exit(0) // "unclosed"
	return nil
}

// lament waits to be stopped if err reports the loss of a rank.
func lament(err error) error {
	if !errors.Is(err, nd.ConnectionAborted) {
		return fmt.Errorf("barrier without rank 1: %w", err)
	}
	forever()
	return nil
}

// runWrapper starts its arguments with another arena instead of the job's.
func runWrapper() error {
	other, err := shm.Create(shm.Config{Ranks: 2})
	if err != nil {
		return err
	}
	if err := unix.Dup3(int(other.File().Fd()), launcher.FirstFile, 0); err != nil {
		return err
	}
	os.Setenv(proctest.RoleEnv, "job")
	return unix.Exec("/proc/self/exe", os.Args, os.Environ())
}

// jobs returns a command that runs ndrun with ranks of softnd behind a wrapper.
func jobs(t *testing.T, role string, wrapper []string, how string) *exec.Cmd {
	args := append([]string{"-n", "2", "-env", proctest.RoleEnv + "=" + role}, wrapper...)
	return ndrun(t, append(args, testBinary(t), how)...)
}

const closing = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"

func TestWrappers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		role    string
		wrapper []string
		found   string
	}{
		{"none", "job", nil, "started by ndrun\n"},
		{"shell", "job", []string{"sh", "-c", `"$@"; exit $?`, "sh"}, "started by ndrun\n"},
		{"closed", "job", []string{"sh", "-c", `exec 3<&-; exec "$@"`, "sh"}, "started by ndrun behind a wrapper, arena from ndrun\n"},
		{"replaced", "job", []string{"sh", "-c", `exec 3</dev/null; exec "$@"`, "sh"}, "started by ndrun behind a wrapper, arena from ndrun\n"},
		{"another arena", "wrapper", nil, "started by ndrun behind a wrapper, arena from ndrun\n"},
		{"no variable", "job", []string{"env", "-u", softnd.EnvArenaFD}, "started by ndrun behind a wrapper, arena from ndrun\n"},
		{"PMI alone", "job", []string{"env", "-u", softnd.EnvArenaFD, "-u", softnd.EnvControl}, "started by a launcher that speaks PMI (job softnd-"},
		{"Python", "job", []string{"python3", "-c", closing}, "started by ndrun behind a wrapper, arena from ndrun\n"},
		{"numactl", "job", []string{"numactl", "--all"}, "started by ndrun\n"},
		{"valgrind", "job", []string{"env", "GODEBUG=cpu.rdtscp=off", "valgrind", "-q", "--tool=none", "--fair-sched=yes"}, "started by ndrun\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if len(tc.wrapper) > 0 {
				if _, err := exec.LookPath(tc.wrapper[0]); err != nil {
					t.Skip("not installed: ", err)
				}
			}
			if info, ok := debug.ReadBuildInfo(); tc.name == "valgrind" && ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
				t.Skip("valgrind runs no program with the race detector")
			}
			cmd := jobs(t, tc.role, tc.wrapper, "close")
			cmd.Env = append(cmd.Env, softnd.EnvDebug+"=1")
			status, out, errOut := proctest.Run(t, cmd)
			for rank := range 2 {
				if want := fmt.Sprintf("[%d] softnd: rank %d of 2, %s", rank, rank, tc.found); !strings.Contains(errOut, want) {
					t.Errorf("no line %q in\n%s", want, errOut)
				}
			}
			if status != 0 || strings.Count(out, "met 2\n") != 2 || strings.Contains(errOut, "ndrun: ") {
				t.Errorf("exit status %d, %s%s", status, out, errOut)
			}
		})
	}
}

// Without the secret, a rank does not get the memory.
func TestWrongSecret(t *testing.T) {
	const change = `exec 3<&-; SOFTND_CONTROL=${SOFTND_CONTROL%%:*}:00000000000000000000000000000000:${SOFTND_CONTROL##*:}; exec "$@"`
	status, _, errOut := proctest.Run(t, jobs(t, "job", []string{"sh", "-c", change, "sh"}, "close"))
	if status == 0 || !strings.Contains(errOut, "SOFTND_CONTROL: connect to launcher: wrong secret") || !strings.Contains(errOut, "descriptor 3 (SOFTND_ARENA_FD; did a wrapper close") {
		t.Errorf("exit status %d, %s", status, errOut)
	}
}

func TestRankEnds(t *testing.T) {
	t.Parallel()
	shell := []string{"sh", "-c", `"$@"; true`, "sh"} // hides the code
	python := []string{"python3", "-c", closing + "; sys.exit(0)"}
	const why = "aborted the job with code 7: the disk is full; the other rank was stopped\n"
	for _, tc := range []struct {
		how     string
		wrapper []string
		status  int
		want    []string
	}{
		{"abort", nil, 7, []string{why, "ndrun: 1     code 7, aborted the job  "}},
		{"abort", shell, 7, []string{why}},
		{"abort", python, 7, []string{why}},
		{"abort at length", nil, 1, []string{"[1] softnd: rank 1 of 2 aborts the job with code 1: two\n[1] lines\n", "aborted the job with code 1: the rank has printed the reason; the other rank was stopped\n"}},
		{"panic", nil, 2, []string{"[1] panic: no way out\n", "exited with code 2; the other rank was stopped\n",
			"ndrun: rank 1 exited with code 2 without calling Job.Close, as after a Go panic: see its output above, labelled [1]\n"}},
		{"panic before a deferred Close", nil, 2, []string{"[1] panic: no way out", "exited with code 2; the other rank was stopped\n"}},
		{"unclosed", nil, 0, []string{"ndrun: rank 0 (", "ndrun: rank 1 (", ") exited without calling Job.Close (in C snd_job_close): its peers take it for dead\n"}},
	} {
		t.Run(fmt.Sprint(tc.how, len(tc.wrapper)), func(t *testing.T) {
			if len(tc.wrapper) > 0 {
				if _, err := exec.LookPath(tc.wrapper[0]); err != nil {
					t.Skip("not installed: ", err)
				}
			}
			status, out, errOut := proctest.Run(t, jobs(t, "job", tc.wrapper, tc.how))
			if status != tc.status {
				t.Errorf("exit status %d, want %d", status, tc.status)
			}
			for _, want := range tc.want {
				if !strings.Contains(errOut, want) {
					t.Errorf("no %q in\n%s%s", want, out, errOut)
				}
			}
		})
	}
}
