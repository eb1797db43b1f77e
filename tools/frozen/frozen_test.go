package main

import (
	"slices"
	"strings"
	"testing"
)

// Each way in which a fact can change has its word, and those that lose something make -since fail.
func TestChanges(t *testing.T) {
	const before = "test\tTestA\t\ta b\ntest\tTestB\t\ta\nmodel\tm\tnothing\t\nsize\tlines\t10\t\n"
	for _, c := range []struct {
		after, want string
		isLoss      bool
	}{
		{before, "", false},
		{strings.Replace(before, "TestB\t\ta", "TestB\t\tx/y", 1), "moved    test TestB: a -> x/y", false},
		{strings.Replace(before, "TestA\t\ta b", "TestA\t\ta", 1), "fewer    test TestA: a b -> a", true},
		{strings.Replace(before, "TestB\t\ta", "TestB\t\ta b", 1), "more     test TestB: a -> a b", false},
		{strings.Replace(before, "TestB", "TestC", 1), "lost     test TestB: a -> nothing\nnew      test TestC: nothing -> a", true},
		{strings.Replace(before, "nothing", "P1", 1), "changed  model m: nothing -> P1", true},
		{strings.Replace(before, "10", "9", 1), "size     size lines: 10 -> 9", false},
	} {
		var out strings.Builder
		isLoss := printChanges(&out, parse(before), parse(c.after))
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if got := strings.Join(lines[:len(lines)-1], "\n"); got != c.want || isLoss != c.isLoss {
			t.Errorf("%s\nis reported as %q, loss %t: want %q, loss %t", c.after, got, isLoss, c.want, c.isLoss)
		}
	}
}

// A test that has moved into another one is not lost, but the other one is missed if it is not there.
func TestRenamed(t *testing.T) {
	const before = "test in Go\tTestA\t\ta b\ntest in Go\tTestB\t\ta\n"
	for after, want := range map[string]string{
		"test in Go\tTestA\t\tb\ntest in Go\tTestB\t\ta\n": "0 lost, 0 changed, 0 fewer, 0 more, 0 moved, 0 new, 0 sizes\n",
		"test in Go\tTestA\t\tb\n":                         "lost     test in Go TestB: a -> nothing\n1 lost, 0 changed, 0 fewer, 0 more, 0 moved, 0 new, 0 sizes\n",
	} {
		var out strings.Builder
		printChanges(&out, rename(parse(before), "# a comment\nTestA\ta\tTestB\n"), parse(after))
		if out.String() != want {
			t.Errorf("%q is reported as %q, want %q", after, out.String(), want)
		}
	}
}

// The facts of the kept files can be read and printed again.
func TestKeptFacts(t *testing.T) {
	files, err := kept.ReadDir("kept")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		text, err := kept.ReadFile("kept/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, fact := range parse(string(text)) {
			lines = append(lines, fact.String()+"\n")
		}
		if strings.Join(lines, "") != string(text) {
			t.Errorf("%s: not as it is printed", f.Name())
		}
	}
}

func TestCollectsFromSources(t *testing.T) {
	s, all := newSources(), make(facts)
	for name, text := range map[string]string{
		"shm/a.go":                   "package shm\n\ntype A struct{ F, g int }\n\nfunc (a *A) M() {} // " + "ORDER one, two: x\n\nfunc x() { failpoint.Reach(failpoint.Dies) }\n",
		"shm/a_test.go":              "package shm\n\nfunc TestX(t *testing.T) { help() }\n\nfunc help() { testing.AllocsPerRun(1, nil) }\n\nfunc Testing() {}\n",
		"shm/internal/b/b.go":        "package b\n\nvar Hidden int\n",
		"shmx/c.go":                  "package shmx\n\nvar Other int\n",
		"internal/failpoint/s.go":    "package failpoint\n\nvar Steps = []Step{\n\tDies: {Name: \"dies\"},\n}\n",
		"docs/model/check.sh":        "<<END\na.pml\nrun a | safety | nothing | -\n\nEND\n",
		"docs/conformance.md":        "- auto/arena/goroutines\n```\nC001 passed; skipped in 1 of 2 runs (x): y\n```\n",
		"nd/ndtest/ROWS.txt":         "C001 a row\n",
		"docs/conformance-c.md":      "| C-C/auto/arena/threads | 1 | 0 |\n| C002 | no test in all runs | a reason |\n",
		"c/src/a.c":                  "int a; // " + "ORDER one: x\n",
		"internal/layout/LAYOUT.txt": "",
	} {
		all.labels(name, []byte(text))
		all.page(name, text)
		if err := s.read(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	s.facts(all)
	var got []string
	for _, f := range all.sorted() {
		got = append(got, f.String())
	}
	want := []string{
		"conformance\tC001\tpassed\t",
		"conformance\tauto/arena/goroutines\t\t",
		"conformance row\tC001\ta row\t",
		"conformance-c\tC-C/auto/arena/threads\t| 1 | 0 |\t",
		"conformance-c\tC002\tno test in all runs\t",
		"failpoint\tdies\t\tshm/a.go",
		"layout\thash\tef46db3751d8e999\t",
		"model\ta.pml\t1 runs\t",
		"model\ta.pml: run a\tsafety | nothing | -\t",
		"order in C\tone\t\tc/src/a.c",
		"order in Go\tone\t\tshm/a.go",
		"order in Go\ttwo\t\tshm/a.go",
		"test in Go\tTestX\t\tshm",
		"test of allocations\tTestX\t\tshm",
	}
	if !slices.Equal(got, want) {
		t.Errorf("collected\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if names := s.exported("shm", true); len(names) != 3 || s.exportedBelow("shm") != 2 {
		t.Errorf("exported: %q, %d without fields: want A, A.F and A.M", names, s.exportedBelow("shm"))
	}
}
