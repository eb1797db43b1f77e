package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/scale"
)

// fate is a shell command of a rank in a stress job, with its exit status; 0 if it does not fail
// by itself.
type fate struct {
	script string
	status int
}

// drawFates draws the commands of the ranks of a job. At most two of them fail by themselves.
func drawFates(r *rand.Rand) []fate {
	fates := make([]fate, 1+r.IntN(4))
	failing := r.IntN(3)
	for i := range fates {
		if i < failing {
			fates[i] = drawFailure(r)
		} else if failing == 0 {
			fates[i] = fate{"exit 0", 0}
		} else {
			fates[i] = []fate{
				{"exit 0", 0},
				{"exec sleep 1000", 0},
				{"trap 'exit 77' TERM; sleep 1000 & wait", 0},
				{"trap '' TERM; exec sleep 1000", 0},
				{"setsid sleep 1000 & exec sleep 1000", 0},
			}[r.IntN(5)]
		}
	}
	r.Shuffle(len(fates), func(i, j int) { fates[i], fates[j] = fates[j], fates[i] })
	return fates
}

// Without SIGQUIT, which a shell ignores.
func drawFailure(r *rand.Rand) fate {
	if r.IntN(2) == 0 {
		code := 1 + r.IntN(255)
		return fate{fmt.Sprintf("exit %d", code), code}
	}
	signals := []int{1, 2, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 31, 40}
	sig := signals[r.IntN(len(signals))]
	return fate{fmt.Sprintf("ulimit -c 0; kill -%d $$", sig), 128 + sig}
}

// runFates runs a job and compares its report with the fates of its ranks.
func runFates(t *testing.T, left *leftovers, fates []fate, report string) error {
	args := []string{"-n", strconv.Itoa(len(fates)), "--quiet", "--report", report}
	for rank, f := range fates {
		args = append(args, "-env", fmt.Sprintf("FATE_%d=%s", rank, f.script))
	}
	cmd := built(t, left.env(), append(args, "/bin/bash", "-c", `v=FATE_$SOFTND_RANK; eval "${!v}"`)...)
	if err := left.start(cmd); err != nil {
		return err
	}
	got := status(cmd.Wait())
	text, err := os.ReadFile(report)
	if err != nil {
		return err
	}
	var told struct {
		ExitStatus   int  `json:"exit_status"`
		FirstFailure *int `json:"first_failure"`
		Errors       []string
		Ranks        []struct {
			End          string
			Stopped      bool
			ExitCode     int `json:"exit_code"`
			SignalNumber int `json:"signal_number"`
		}
	}
	if err := json.Unmarshal(text, &told); err != nil {
		return fmt.Errorf("%w in %q", err, text)
	}
	fails := slices.ContainsFunc(fates, func(f fate) bool { return f.status != 0 })
	want := 0
	if told.FirstFailure != nil {
		want = fates[*told.FirstFailure].status
	}
	switch {
	case got != told.ExitStatus, got != want, fails != (told.FirstFailure != nil), len(told.Errors) != 0, len(told.Ranks) != len(fates):
		return fmt.Errorf("exit status %d, want %d; report %s", got, want, text)
	}
	for rank, r := range told.Ranks {
		code := r.ExitCode
		if r.End == "killed" {
			code = 128 + r.SignalNumber
		}
		ended := r.End == "exited" || r.End == "killed"
		if ended && !r.Stopped && code != fates[rank].status || (r.Stopped || !ended) && !fails || r.End == "unknown" {
			return fmt.Errorf("rank %d: %+v; report %s", rank, r, text)
		}
	}
	return nil
}

func TestStressExitStatus(t *testing.T) {
	jobs := scale.Of(60, 9000)
	_, seed := seeded(t)
	left := watchLeftovers(t)
	reports := t.TempDir()
	var workers sync.WaitGroup
	next := make(chan int)
	for w := range 3 {
		workers.Go(func() {
			for job := range next {
				fates := drawFates(rand.New(rand.NewPCG(seed, uint64(job))))
				if err := runFates(t, left, fates, filepath.Join(reports, strconv.Itoa(w))); err != nil {
					t.Errorf("job %d, %+v: %v", job, fates, err)
				}
			}
		})
	}
	for job := range jobs {
		next <- job
	}
	close(next)
	workers.Wait()
	left.mustBeNone()
	t.Logf("%d jobs", jobs)
}

// ndrun is killed at any time of a job: while it starts, while it starts ranks, and when ranks
// run.
func TestStressKilledLauncher(t *testing.T) {
	jobs := scale.Of(20, 1000)
	r, _ := seeded(t)
	left := watchLeftovers(t)
	running := 0
	for job := range jobs {
		cmd := built(t, left.env(), "-n", "4", "/bin/bash", "-c", "trap '' TERM; echo here; setsid sleep 1000 & (sleep 1000 &) & sleep 1000")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := left.start(cmd); err != nil {
			t.Fatal(err)
		}
		if job%2 == 0 {
			if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
				t.Fatalf("no rank has said that it runs: %v", err)
			}
			running++
		}
		time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond)
		if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		left.mustBeNone()
	}
	t.Logf("%d jobs, of which at least %d had ranks when their launcher was killed", jobs, running)
}

// If the supervisor is killed while ranks start, the output of the ranks still arrives. In every other job a rank has written
// before.
func TestStressKilledSupervisor(t *testing.T) {
	jobs := scale.Of(8, 200)
	r, _ := seeded(t)
	left := watchLeftovers(t)
	lines := 0
	for job := range jobs {
		dir := t.TempDir()
		// A rank notes in a file that it has written, so what has a file has to come.
		cmd := built(t, left.env(), "-n", "48", "/bin/sh", "-c", "echo line$SOFTND_RANK; : > "+dir+"/$SOFTND_RANK; exec sleep 1000")
		var out bytes.Buffer
		cmd.Stdout = &out
		if err := left.start(cmd); err != nil {
			t.Fatal(err)
		}
		supervisor := 0
		proctest.Eventually(t, "ndrun has a supervisor", func() bool {
			supervisor = supervisorOf(cmd.Process.Pid)
			return supervisor != 0
		})
		if job%2 == 0 {
			proctest.Eventually(t, "a rank has written", func() bool {
				written, err := os.ReadDir(dir)
				return err == nil && len(written) > 0
			})
		}
		time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond)
		if err := syscall.Kill(supervisor, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		written, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range written {
			if line := "[" + file.Name() + "] line" + file.Name() + "\n"; !strings.Contains("\n"+out.String(), "\n"+line) {
				t.Errorf("%q is lost; there are\n%s", line, &out)
			}
		}
		lines += len(written)
		left.mustBeNone()
	}
	t.Logf("%d jobs, %d lines", jobs, lines)
	if lines == 0 {
		t.Error("no rank has come to write anything: this test tries too little")
	}
}

// supervisorOf finds the supervisor of an ndrun, 0 if it is not there yet: the child of its child.
func supervisorOf(ndrun int) int {
	child := func(of int) int {
		lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", of)) // of each thread its own
		for _, list := range lists {
			b, _ := os.ReadFile(list)
			if first, _, _ := strings.Cut(string(b), " "); first != "" {
				pid, _ := strconv.Atoi(first)
				return pid
			}
		}
		return 0
	}
	if watchdog := child(ndrun); watchdog > 0 {
		return child(watchdog)
	}
	return 0
}
