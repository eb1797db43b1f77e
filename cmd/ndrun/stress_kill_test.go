package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/scale"
	"github.com/softnd/softnd/nd"
)

// runWorking is a rank with memory in use that makes collective calls until they fail.
func runWorking([]string) error {
	ctx := context.Background()
	j, err := softnd.Init(ctx)
	if err != nil {
		return err
	}
	if _, err := j.Adapter().Allocate(ctx, 1<<20, nd.AllowLocalWrite); err != nil {
		return err
	}
	for {
		if _, err := j.Exchange(ctx, make([]byte, 1000)); err != nil {
			return err
		}
	}
}

// ranksWith returns the ranks among the processes that have mark in their environment.
func ranksWith(mark string) (pids []int) {
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, name := range environs {
		env, err := os.ReadFile(name)
		all := strings.Split(string(env), "\x00")
		if err != nil || !slices.Contains(all, mark) || !slices.ContainsFunc(all, func(v string) bool { return strings.HasPrefix(v, softnd.EnvRank+"=") }) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// sharedObjects lists the objects of this machine that processes can leave behind: files in /dev/shm and System V IPC.
// Without SOFTND_STRESS it lists only what has softnd's name, because other tests may run at the same time.
func sharedObjects() (all []string) {
	names, _ := filepath.Glob("/dev/shm/*")
	for _, name := range names {
		if scale.Of(0, 1) == 1 || strings.Contains(name, "softnd") || strings.Contains(name, "ndrun") {
			all = append(all, name)
		}
	}
	if scale.Of(0, 1) == 1 {
		for _, kind := range []string{"shm", "sem", "msg"} {
			text, _ := os.ReadFile("/proc/sysvipc/" + kind)
			for line := range strings.Lines(string(text)) {
				if fields := strings.Fields(line); len(fields) > 1 {
					all = append(all, kind+" "+fields[0]+" "+fields[1])
				}
			}
		}
	}
	return all
}

// A signal ends a job at any moment: SIGINT, SIGTERM or SIGKILL, to a rank, to ndrun, or to both. With SOFTND_STRESS a process
// that is left two seconds later is an error.
func TestStressSignaledJobs(t *testing.T) {
	const promised = 2 * time.Second
	jobs := scale.Of(30, 1000)
	r, _ := seeded(t)
	left := watchLeftovers(t)
	before := sharedObjects()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	withRanks, late, longest := 0, 0, time.Duration(0)
	for job := range jobs {
		cmd := built(t, append(left.env(), proctest.RoleEnv+"=rank"), "-n", "3", self, "working")
		if err := left.start(cmd); err != nil {
			t.Fatal(err)
		}
		sig := []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL}[r.IntN(3)]
		target := r.IntN(3) // a rank, ndrun, both
		time.Sleep(time.Duration(r.IntN(150)) * time.Millisecond)
		var ranks []int
		if target != 1 {
			ranks = ranksWith(left.mark)
			if target == 0 && len(ranks) == 0 {
				proctest.Eventually(t, "the job has a rank", func() bool {
					ranks = ranksWith(left.mark)
					return len(ranks) > 0
				})
			}
		}
		if len(ranks) > 0 {
			withRanks++
			_ = syscall.Kill(ranks[r.IntN(len(ranks))], sig) // it may have ended
		}
		if target != 0 {
			_ = cmd.Process.Signal(sig)
		}
		began := time.Now()
		cmd.Wait()
		left.mustBeNone()
		took := time.Since(began)
		if longest = max(longest, took); took > promised {
			late++
			report := t.Logf // this machine may be busy with other tests
			if scale.Of(0, 1) == 1 {
				report = t.Errorf
			}
			report("job %d: %v to %d (0 a rank, 1 ndrun, 2 both): the last process has ended after %v", job, sig, target, took)
		}
	}
	for _, object := range sharedObjects() {
		if !slices.Contains(before, object) {
			t.Errorf("%s is left", object)
		}
	}
	t.Logf("%d jobs, a rank got the signal in %d; no process was left after %v at most; later than %v: %d", jobs, withRanks, longest, promised, late)
	if withRanks == 0 {
		t.Error("no rank got a signal: this test tries too little")
	}
}
