package ndtest_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/softnd/softnd/nd/ndtest"
)

// outside is the directory of a module with a provider that is independent of softnd's.
const outside = "testdata/outside"

// TestOutsideImports checks that a module that uses the suite builds the packages below nd, and no other
// part of this module.
func TestOutsideImports(t *testing.T) {
	const module = "github.com/softnd/softnd/"
	var parts []string
	list := string(output(t, goIn("list", "-deps", "-test", "-f", "{{if not .ForTest}}{{.ImportPath}}{{end}}", "./...")))
	for path := range strings.FieldsSeq(list) {
		if part, ok := strings.CutPrefix(path, module); ok {
			parts = append(parts, part)
		}
	}
	slices.Sort(parts)
	if want := []string{"nd", "nd/internal/flagnames", "nd/ndcompat", "nd/ndtest"}; !slices.Equal(parts, want) {
		t.Errorf("module %[3]s: its build includes packages %[1]v of softnd, want %[2]v", parts, want, outside)
	}
}

// TestOutside runs the suite with the provider of module outside. At most 10 scenarios of the model may be skipped. The
// provider has none of the requests of X001 and later.
func TestOutside(t *testing.T) {
	t.Parallel()
	before := files(t)
	ended := outcomes(t, output(t, goIn("test", "-json", "-count=1", "-timeout=5m", "./...")))
	passed, all := 0, 0
	for _, s := range ndtest.Scenarios() {
		how, isExtension := ended[s.ID], strings.HasPrefix(s.ID, "X")
		if !isExtension {
			all++
		}
		switch {
		case how == "pass" && !isExtension:
			passed++
		case how == "skip":
		default:
			t.Errorf("%s (%s): result %q, want pass or skip", s.ID, s.Title, how)
		}
	}
	if passed < all-10 || passed < 230 {
		t.Errorf("%d of %d scenarios passed and the others were skipped, want at most 10 skipped", passed, all)
	}
	if !maps.Equal(files(t), before) {
		t.Errorf("the run of the suite has changed files in %s", outside)
	}
}

// TestOutsideBroken runs two rows with a provider whose windows stay usable after Invalidate. C081, which
// checks that, must fail. C176, which invalidates nothing, must pass.
func TestOutsideBroken(t *testing.T) {
	t.Parallel()
	cmd := goIn("test", "-json", "-count=1", "-timeout=5m", "-run", "^TestConformance$/^(C081|C176)$", "./...")
	cmd.Env = append(cmd.Env, "TINY_BREAK=1")
	out, err := cmd.Output()
	if err == nil {
		t.Errorf("the run of a broken provider succeeded, want a failure:\n%s", out)
	}
	ended := outcomes(t, out)
	if ended["C081"] != "fail" || ended["C176"] != "pass" {
		t.Errorf("C081: result %q, want fail; C176: result %q, want pass:\n%s", ended["C081"], ended["C176"], out)
	}
}

// files returns the contents of the files of module outside. Because this test reads them, the go
// command does not use a cached result of this test after one of them has changed.
func files(t *testing.T) map[string]string {
	t.Helper()
	contents := make(map[string]string)
	err := filepath.WalkDir(outside, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		contents[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return contents
}

// goIn returns a go command that runs in module outside. Its environment does not depend on the flags of
// this test, and it changes no file of the module.
func goIn(args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Dir = outside
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly -buildvcs=false", "GOWORK=off", "TINY_BREAK=")
	return cmd
}

// output runs cmd, which must succeed, and returns its standard output.
func output(t *testing.T, cmd *exec.Cmd) []byte {
	t.Helper()
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v in %s: %v\n%s%s", cmd, outside, err, failures(out), complaints.Bytes())
	}
	return out
}

// event is a line of the output of go test -json.
type event struct{ Action, Test, Output string }

func events(out []byte) (list []event) {
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) == nil {
			list = append(list, e)
		}
	}
	return list
}

// outcomes returns the result of each scenario: pass, fail or skip.
func outcomes(t *testing.T, out []byte) map[string]string {
	t.Helper()
	ended := make(map[string]string)
	for _, e := range events(out) {
		id, ok := strings.CutPrefix(e.Test, "TestConformance/")
		if ok && (e.Action == "pass" || e.Action == "fail" || e.Action == "skip") {
			ended[id] = e.Action
		}
	}
	if len(ended) == 0 {
		t.Fatalf("no scenario has a result:\n%s", out)
	}
	return ended
}

// failures returns the output of the failed tests of a run, or out if no test has failed.
func failures(out []byte) []byte {
	printed, failed := make(map[string]string), false
	var text []byte
	for _, e := range events(out) {
		printed[e.Test] += e.Output
		if e.Action == "fail" && e.Test != "" {
			failed = true
			text = append(text, printed[e.Test]...)
		}
	}
	if !failed {
		return out
	}
	return text
}
