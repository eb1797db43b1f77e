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

// outside is a module of its own, with a provider that knows nothing of this module's.
const outside = "testdata/outside"

// TestOutsideImports: a module that uses the suite gets the packages below nd with it, and no other
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
		t.Errorf("the module outside is built from %v, want %v", parts, want)
	}
}

// TestOutside runs the suite over that provider. What it may leave out is few.
func TestOutside(t *testing.T) {
	before := files(t)
	ended := outcomes(t, output(t, goIn("test", "-json", "-count=1", "-timeout=5m", "./...")))
	passed := 0
	for _, s := range ndtest.Scenarios() {
		switch how := ended[s.ID]; how {
		case "pass":
			passed++
		case "skip":
		default:
			t.Errorf("%s (%s) ended with %q, want pass or skip", s.ID, s.Title, how)
		}
	}
	if all := len(ndtest.Scenarios()); passed < all-10 || passed < 230 {
		t.Errorf("%d of %d scenarios passed, the others were skipped", passed, all)
	}
	if !maps.Equal(files(t), before) {
		t.Errorf("the run has changed files in %s", outside)
	}
}

// TestOutsideBroken breaks that provider, so that windows stay usable after Invalidate. The row
// about that has to fail, and one that invalidates nothing has to pass as before.
func TestOutsideBroken(t *testing.T) {
	cmd := goIn("test", "-json", "-count=1", "-timeout=5m", "-run", "^TestConformance$/^(C081|C176)$", "./...")
	cmd.Env = append(cmd.Env, "TINY_BREAK=1")
	out, err := cmd.Output()
	if err == nil {
		t.Errorf("the run succeeded:\n%s", out)
	}
	ended := outcomes(t, out)
	if ended["C081"] != "fail" || ended["C176"] != "pass" {
		t.Errorf("C081 ended with %q, want fail, and C176 with %q, want pass:\n%s", ended["C081"], ended["C176"], out)
	}
}

// files returns the contents of the module's files. Since this test reads them, the go command
// does not take an earlier outcome for today's after one of them has changed.
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

// goIn returns a go command that runs in the module outside, in its usual way whatever flags this
// test was built with, and changes none of its files.
func goIn(args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Dir = outside
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly -buildvcs=false", "GOWORK=off", "TINY_BREAK=")
	return cmd
}

// output returns what cmd, which has to succeed, prints.
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

// event is what go test -json prints on a line.
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

// outcomes returns how each scenario ended: pass, fail or skip.
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
		t.Fatalf("no scenario has run:\n%s", out)
	}
	return ended
}

// failures returns what the failed tests of a run have printed, or out if it is of another kind.
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
