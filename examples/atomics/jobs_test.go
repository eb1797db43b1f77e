// Package atomics has examples of atomics and of Writes with immediate data.
package atomics

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Each example gives its answer, also with the checker and with a weak order.
func TestJobs(t *testing.T) {
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", dir, "./counter", "./lock", "./queue", "../../cmd/ndrun")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	for program, answer := range map[string]string{
		"counter": "counter: each task was done once\n",
		"lock":    "lock: 600 increments, and none was lost\n",
		"queue":   "queue: 1500 numbers arrived\n",
	} {
		for _, options := range [][]string{nil, {"--check"}, {"--weak-order", "1"}, {"--weak-order", "2"}} {
			args := append(options, "-n", "4", filepath.Join(dir, program))
			cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "ndrun"), args...)
			cmd.WaitDelay = 10 * time.Second
			end := time.AfterFunc(time.Minute, func() { _ = cmd.Cancel() })
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), answer) {
				t.Errorf("ndrun %q: %v\n%s", args, err, out)
			}
			end.Stop()
		}
	}
}
