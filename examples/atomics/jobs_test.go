// Package atomics has examples of atomics and of Writes with immediate data.
package atomics

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// build builds programs in dir.
func build(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"build", "-o", dir}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
}

// Each example gives its answer, also with the checker and with a weak order.
func TestJobs(t *testing.T) {
	dir := t.TempDir()
	build(t, dir, "./counter", "./lock", "./queue", "../../cmd/ndrun")
	for program, answer := range map[string]string{
		"counter": "counter: each task was done once\n",
		"lock":    "lock: 600 increments, and none was lost\n",
		"queue":   "queue: 1500 numbers arrived\n",
	} {
		for _, options := range [][]string{nil, {"--check"}, {"--weak-order", "1"}, {"--weak-order", "2"}} {
			args := append(options, "-n", "4", filepath.Join(dir, program))
			cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "ndrun"), args...)
			cmd.WaitDelay = 10 * time.Second
			end := time.AfterFunc(5*time.Minute, func() { _ = cmd.Cancel() })
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), answer) {
				t.Errorf("ndrun %q: %v\n%s", args, err, out)
			}
			end.Stop()
		}
	}
}

// mistakes are changes of the examples, each with the rule by which the checker finds it. The checker cannot see that a program
// changes or reads its memory without an atomic instruction, only what it does with requests.
var mistakes = []struct{ program, name, right, wrong, rule string }{
	{"counter", "a rank steals with a Write",
		"ep.FetchAndAdd(0, old, counters[victim].Address, counters[victim].Token, 1, 0); err",
		`func() error {
					if job.Rank() != 0 {
						return ep.FetchAndAdd(0, old, counters[victim].Address, counters[victim].Token, 1, 0)
					}
					binary.NativeEndian.PutUint64(old.Buffer, done)
					return ep.Write(0, nd.One(old), counters[victim].Address, counters[victim].Token, 0)
				}(); err`, "N103"},
	{"lock", "unlock with a Write", "	_, err = l.add(serving, 1)",
		`	binary.NativeEndian.PutUint64(l.word.Buffer, ticket+1)
	err = l.wait(l.ep.Write(0, nd.One(l.word), l.far.Address+serving, l.far.Token, 0))`, "N305"},
	{"queue", "prepare the next item while a request sends", `uint32(ticket), 0); err != nil {
			return err
		}`, `uint32(ticket), 0); err != nil {
			return err
		}
		binary.NativeEndian.PutUint64(item.Buffer, i+2)`, "N201"},
}

func TestCheckerFindsMistakes(t *testing.T) {
	dir := t.TempDir()
	build(t, dir, "../../cmd/ndrun")
	for i, m := range mistakes {
		t.Run(m.program+"/"+m.name, func(t *testing.T) {
			source := filepath.Join(m.program, "main.go")
			text, err := os.ReadFile(source)
			if err != nil || strings.Count(string(text), m.right) != 1 {
				t.Fatalf("%s: %v, or the text to change is not in it once", source, err)
			}
			changed := filepath.Join(dir, strconv.Itoa(i)+".go")
			overlay := changed + ".json"
			replaced, err := json.Marshal(map[string]any{"Replace": map[string]string{source: changed}})
			if err := errors.Join(err, os.WriteFile(changed, []byte(strings.Replace(string(text), m.right, m.wrong, 1)), 0o600), os.WriteFile(overlay, replaced, 0o600)); err != nil {
				t.Fatal(err)
			}
			build(t, dir, "-overlay", overlay, "./"+m.program)
			ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
			defer cancel()
			run := exec.CommandContext(ctx, filepath.Join(dir, "ndrun"), "--check", "--timeout", "300", "-n", "4", filepath.Join(dir, m.program))
			run.WaitDelay = 10 * time.Second
			out, err := run.CombinedOutput()
			if err == nil || !strings.Contains(string(out), m.rule+" error") {
				t.Errorf("no %s: %v\n%s", m.rule, err, out)
			}
		})
	}
}
