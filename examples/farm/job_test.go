package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// run runs the program as a job of four ranks with a fault plan. It returns the exit status and the output.
func run(t *testing.T, dir, plan string, options ...string) (int, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(file, []byte("rules:\n"+plan), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	args := append(options, "--faults", file, "-n", "4", filepath.Join(dir, "farm"), "-tasks", "60")
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "ndrun"), args...)
	cmd.Env = append(os.Environ(), "SOFTND_RECEIVE_TIMEOUT=1m") // a rank may be late
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		t.Fatalf("%q did not end:\n%s", args, out)
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// The farm gives the right answer, whichever worker dies at whichever request. It fails if all workers die.
func TestFarmSurvivesDeaths(t *testing.T) {
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", dir, ".", "../../cmd/ndrun")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	kill := func(rank, nth int, operation string) string {
		return fmt.Sprintf("  - {operation: %s, rank: %d, nth: %d, action: kill}\n", operation, rank, nth)
	}
	const answer = "[0] farm: 6057 primes below 60000\n"
	for _, plan := range []string{kill(2, 1, "send"), kill(3, 1, "receive"), kill(1, 1, "send") + kill(3, 1, "send")} {
		status, out := run(t, dir, plan, "--on-death", "continue")
		died := strings.Count(plan, "kill")
		if status != 128+9 || !strings.Contains(out, answer) || strings.Count(out, "; the other ranks go on\n") != died || strings.Count(out, "code 0 ") != 4-died {
			t.Errorf("%sexit status %d\n%s", plan, status, out)
		}
	}
	all := kill(1, 1, "send") + kill(2, 1, "send") + kill(3, 1, "send")
	if status, out := run(t, dir, all, "--on-death", "continue"); status != 128+9 || !strings.Contains(out, "farm: all workers are lost") || strings.Contains(out, answer) {
		t.Errorf("without workers: exit status %d\n%s", status, out)
	}
}
