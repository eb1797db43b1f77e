package failpoint

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../../.."

// section returns the part of a page between two marks.
func section(t *testing.T, page, from, to string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok1 := strings.Cut(string(b), from)
	text, _, ok2 := strings.Cut(text, to)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no part from %q to %q", page, from, to)
	}
	return text
}

// Each order of two processes in the table of docs/shared-memory.md has a point after the step that it orders, and each
// label of the guarded access in docs/architecture.md has one. No point names an order or a label that is not there.
func TestEachStepHasPoint(t *testing.T) {
	const page, guarded = "docs/shared-memory.md", "docs/architecture.md"
	wanted := make(map[string]bool)
	table := section(t, page, "\n## Orders\n", "\nThese pairs are between goroutines")
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)`").FindAllStringSubmatch(table, -1) {
		wanted[m[1]] = true
	}
	for _, label := range regexp.MustCompile(`\b(ENTRY|HAZARD)-[A-Z]+\b|\bCOPY\b`).FindAllString(section(t, guarded, "\n## The guarded access\n", "as are `ENTRY-FIELDS`"), -1) {
		wanted[label] = true
	}
	wanted["ENTRY-BIND"] = true                                      // the page writes it in words
	for _, name := range []string{"number-ready", "receive-waits"} { // only the C library has them: see c/tests/numbers_kill.c
		delete(wanted, name)
	}
	has := make(map[string]bool)
	for _, step := range Steps {
		for _, name := range strings.Fields(step.Orders + " " + step.Labels) {
			has[name] = true
			if !wanted[name] {
				t.Errorf("point %s is of %s, which is not in %s and %s", step.Name, name, page, guarded)
			}
		}
	}
	for name := range wanted {
		if !has[name] {
			t.Errorf("%s has no point, but is in %s or %s", name, page, guarded)
		}
	}
	if len(wanted) < 35 {
		t.Errorf("%d orders and labels found: the test reads the page wrongly", len(wanted))
	}
}

// Each point is in the code, and has a name of its own.
func TestEachPointIsInTheCode(t *testing.T) {
	names := make(map[string]bool)
	for i, step := range Steps {
		if step.Name == "" || names[step.Name] {
			t.Errorf("point %d has no name, or one that another has: %q", i, step.Name)
		}
		names[step.Name] = true
	}
	reached := make(map[string]bool)
	call := regexp.MustCompile(`failpoint\.Reach\(failpoint\.(\w+)\)`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range call.FindAllSubmatch(b, -1) {
			reached[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("steps.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^\t(\w+):\s+\{Name: `).FindAllSubmatch(b, -1) {
		if !reached[string(m[1])] {
			t.Errorf("no code reaches %s", m[1])
		}
		delete(reached, string(m[1]))
	}
	if len(reached) > 0 {
		t.Errorf("points that are not in Steps: %v", reached)
	}
}

// A build without the tag has no trace of the points: a program is the same without the calls of Reach.
func TestPointCostsNothing(t *testing.T) {
	if Enabled {
		t.Skip("this build has the points")
	}
	if testing.Short() {
		t.Skip("it compiles a package twice, which takes seconds")
	}
	with, without := disassemble(t, nil), disassemble(t, withoutPoints(t))
	if !slices.Equal(with, without) {
		for i := range min(len(with), len(without)) {
			if with[i] != without[i] {
				t.Fatalf("instruction %d is %q, and %q without the points", i, with[i], without[i])
			}
		}
		t.Errorf("%d instructions, and %d without the points", len(with), len(without))
	}
	if len(with) < 1000 {
		t.Errorf("only %d instructions found", len(with))
	}
}

var hotPackages = []string{"window", "endpoint/internal/ring", "internal/doorbell", "endpoint"}

// withoutPoints returns an overlay of the hot packages in which the lines that call Reach are empty.
func withoutPoints(t *testing.T) (args []string) {
	t.Helper()
	dir := t.TempDir()
	var replace []string
	line := regexp.MustCompile(`(?m)^\t+if failpoint\.Enabled {\n\t+failpoint\.Reach\(failpoint\.\w+\)\n\t+}$|^\t+failpoint\.Reach\(failpoint\.\w+\)$`)
	for _, p := range hotPackages {
		files, err := filepath.Glob(filepath.Join(root, p, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for i, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			stripped := line.ReplaceAll(b, nil)
			if bytes.Equal(b, stripped) {
				continue
			}
			stripped = bytes.Replace(stripped, []byte("\t\"github.com/softnd/softnd/internal/testkit/failpoint\"\n"), []byte("\t_ \"github.com/softnd/softnd/internal/testkit/failpoint\"\n"), 1)
			to := filepath.Join(dir, fmt.Sprintf("%s-%d.go", strings.ReplaceAll(p, "/", "-"), i))
			if err := os.WriteFile(to, stripped, 0o600); err != nil {
				t.Fatal(err)
			}
			from, err := filepath.Abs(file)
			if err != nil {
				t.Fatal(err)
			}
			replace = append(replace, fmt.Sprintf("%q: %q", from, to))
		}
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, []byte(`{"Replace": {`+strings.Join(replace, ", ")+`}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"-overlay", overlay}
}

var address = regexp.MustCompile(`0x[0-9a-f]{3,}`)

// disassemble returns the instructions of the hot packages.
func disassemble(t *testing.T, args []string) (instructions []string) {
	t.Helper()
	for _, p := range hotPackages {
		object := filepath.Join(t.TempDir(), "object")
		build := exec.Command("go", append(append([]string{"build", "-o", object}, args...), "./"+p)...)
		build.Dir = root
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		out, err := exec.Command("go", "tool", "objdump", object).Output()
		if err != nil {
			t.Fatal(err)
		}
		function := ""
		for l := range strings.Lines(string(out)) {
			if name, ok := strings.CutPrefix(l, "TEXT "); ok {
				function, _, _ = strings.Cut(name, "(SB)")
			}
			// File and line, address, code, instruction. Only the last is compared, without the addresses in it.
			if fields := strings.Fields(l); len(fields) > 3 && strings.Contains(fields[0], ".go:") {
				instructions = append(instructions, function+": "+address.ReplaceAllString(strings.Join(fields[3:], " "), "0x"))
			}
		}
	}
	return instructions
}
