package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/scale"
)

// launch returns a function that runs the program as a job of that many ranks, and returns what
// it printed and whether it exited with 0.
func launch(t *testing.T) func(ranks int, env string, args ...string) (string, bool) {
	t.Helper()
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", dir, ".", "../../cmd/ndrun")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	return func(ranks int, env string, args ...string) (string, bool) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		args = append([]string{"-n", strconv.Itoa(ranks), filepath.Join(dir, "revoke")}, args...)
		cmd := exec.CommandContext(ctx, filepath.Join(dir, "ndrun"), args...)
		cmd.Env = append(os.Environ(), env)
		cmd.WaitDelay = 10 * time.Second
		out, err := cmd.CombinedOutput()
		if ctx.Err() != nil {
			t.Errorf("%v %s did not end:\n%s", args, env, out)
		}
		return string(out), err == nil
	}
}

// runLongEnough runs a job for a second, and again for longer if the machine was too busy to interrupt a transfer.
func runLongEnough(run func(int, string, ...string) (string, bool), ranks int, env string, args ...string) (out string, ok bool) {
	for _, seconds := range []string{"1", "5", "20"} {
		if out, ok = run(ranks, env, append(args, "-seconds", seconds)...); !strings.Contains(out, "no transfer failed in flight") {
			break
		}
	}
	return out, ok
}

func TestJob(t *testing.T) {
	run := launch(t)
	for _, tc := range []struct {
		ranks int
		env   string
		args  []string
	}{
		{2, "SOFTND_EXEC=auto", nil},
		{4, "SOFTND_EXEC=target", nil},
		{3, "SOFTND_EXEC=", []string{"-private"}},
	} {
		out, ok := runLongEnough(run, tc.ranks, tc.env, tc.args...)
		if !ok || strings.Count(out, "; 0 bytes changed after an invalidation completed") != 1 {
			t.Errorf("%+v: exit 0 is %v\n%s", tc, ok, out)
		}
	}
	for seed := range scale.Of(1, 100) {
		out, ok := runLongEnough(run, 3, "SOFTND_WEAK_ORDER="+strconv.Itoa(seed))
		if !ok || strings.Count(out, "; 0 bytes changed after an invalidation completed") != 1 {
			t.Errorf("weak order with seed %d: exit 0 is %v\n%s", seed, ok, out)
		}
	}
	out, ok := run(1, "")
	if ok || !strings.Contains(out, "revoke: needs at least 2 ranks") {
		t.Errorf("alone: exit 0 is %v\n%s", ok, out)
	}
}
