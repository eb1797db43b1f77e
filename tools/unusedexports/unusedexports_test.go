package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// files are a module with used and unused identifiers in package shm, and two packages that use it.
var files = map[string]string{
	"go.mod": "module example.com/m\n\ngo 1.26\n",
	"shm/shm.go": `package shm

import "encoding"

type Used struct {
	Mentioned, Unmentioned, Keyed int
	Tagged                        int ` + "`json:\"tagged\"`" + `
}

func (*Used) Called()                      {}
func (*Used) Uncalled()                    {}
func (*Used) String() string               { return "" }
func (*Used) MarshalText() ([]byte, error) { return nil, nil }
func (*Used) Close() error                 { return nil }
func (*Used) First()                       {}
func (*Used) Second()                      {}

type Unused struct{}

func (Unused) Method() {}

type InSignature int

func Returns() (InSignature, error) { return 0, nil }

func UsedByOwnTest() {}

type Backend interface{ Do() }

func Run(Backend) {}

const (
	UsedConst   = 1
	UnusedConst = 2
)

type Positional struct{ A, B int }

type Handle interface{ Open(); Shut() }

type File struct{}

func (*File) Open() {}

func (*File) Shut() {}

func (*File) Unused() {}

func NewFile() *File { return nil }

type hidden struct{}

func (hidden) Exported() {}

var _ encoding.TextMarshaler = (*Used)(nil)
`,
	"shm/shm_test.go":       "package shm\n\nfunc init() { UsedByOwnTest() }\n",
	"shm/other_test.go":     "package shm_test\n\nimport \"example.com/m/shm\"\n\nfunc init() { shm.UsedByOwnTest() }\n",
	"shm/internal/x/x.go":   "package x\n\nfunc Internal() {}\n",
	"bench/report/r.go":     "package report\n\nfunc OnlyInTest() {}\n\nfunc Nowhere() {}\n",
	"cmd/main_test.go":      "package main\n\nimport \"example.com/m/bench/report\"\n\nfunc init() { report.OnlyInTest() }\n",
	"nd/outside/outside.go": "package outside\n\nfunc NotCounted() {}\n",
	"cmd/main.go": `package main

import (
	"fmt"

	"example.com/m/shm"
)

type both interface {
	First()
	Second()
}

type backend struct{}

func (backend) Do() {}

func main() {
	var file shm.Handle = shm.NewFile()
	file.Open()
	u := &shm.Used{Keyed: shm.UsedConst}
	u.Called()
	fmt.Println(u.Mentioned)
	var _ both = u
	shm.Returns()
	shm.Run(backend{})
	_ = shm.Positional{1, 2}
}
`,
}

func writeModule(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestRunListsUnused(t *testing.T) {
	var out strings.Builder
	n, err := run(&out, writeModule(t), false, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Split(line, ": ")[1])
	}
	want := "bench/report.Nowhere shm.File.Unused shm.UnusedConst shm.Unused shm.Unused.Method shm.Used.Close shm.Used.Uncalled " +
		"shm.Used.Unmentioned shm.UsedByOwnTest"
	if !equalSets(got, strings.Fields(want)) || n != len(got) {
		t.Errorf("%d unused:\n%s\nwant %s", n, &out, want)
	}
	if !strings.Contains(out.String(), "shm/shm.go:18:6: shm.Unused: no other package uses it") {
		t.Errorf("no place of shm.Unused in\n%s", &out)
	}
}

func equalSets(a, b []string) bool {
	count := make(map[string]int)
	for _, s := range a {
		count[s]++
	}
	for _, s := range b {
		count[s]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

func TestRunCounts(t *testing.T) {
	var out strings.Builder
	if _, err := run(&out, writeModule(t), true, 0); err != nil {
		t.Fatal(err)
	}
	const want = `    2 example.com/m/bench/report
   27 example.com/m/shm
   29 exported identifiers: top level and methods, without fields
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
}

func TestRunRefusesBrokenModule(t *testing.T) {
	var out strings.Builder
	if _, err := run(&out, t.TempDir(), false, 0); err == nil {
		t.Error("a directory without a module is accepted")
	}
	dir := writeModule(t)
	if err := os.WriteFile(filepath.Join(dir, "shm/broken.go"), []byte("package shm\n\nvar x = undefined\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := run(&out, dir, false, 0); err == nil {
		t.Error("a module that does not compile is accepted")
	}
}

func TestRunLimitsTheCount(t *testing.T) {
	dir := writeModule(t)
	m, err := load(dir)
	if err != nil {
		t.Fatal(err)
	}
	have := m.count()
	for limit, want := range map[int]bool{0: true, have: true, have - 1: false} {
		if _, err := run(io.Discard, dir, false, limit); (err == nil) != want {
			t.Errorf("%d identifiers, limit %d: %v", have, limit, err)
		}
	}
}
