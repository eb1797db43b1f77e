package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/softnd/softnd/nd/ndtest"
)

const root = "../.."

// allPassed is a run in which everything passed.
func allPassed(name string) Run {
	r := &ndtest.Report{Outcomes: make(map[string]ndtest.Outcome), Reasons: make(map[string]string)}
	for _, id := range ids() {
		r.Outcomes[id] = ndtest.Passed
	}
	return Run{name, r}
}

func render(t *testing.T, runs ...Run) string {
	t.Helper()
	if testing.Short() {
		t.Skip("it checks the types of all packages, which takes seconds")
	}
	text, err := Render(root, runs, []Table{
		{Test: "endpoint.TestTable", Names: []string{"NoMemory", "Canceled"}, Without: map[string]string{"DataError": "not | here"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// line returns the line of a list that begins with cell, with two spaces between the columns.
func line(t *testing.T, text, cell string) string {
	t.Helper()
	_, after, found := strings.Cut(text, "\n"+cell+" ")
	if !found {
		t.Fatalf("no line of %s", cell)
	}
	l, _, _ := strings.Cut(after, "\n")
	return regexp.MustCompile("  +").ReplaceAllString(l, "  ")
}

func TestPageIsDeterministic(t *testing.T) {
	first, second := render(t, allPassed("one")), render(t, allPassed("one"))
	if first != second {
		t.Error("two pages of the same runs differ")
	}
}

func TestPageTellsOutcomes(t *testing.T) {
	one, two := allPassed("one"), allPassed("two")
	one.Report.Outcomes["C227"], one.Report.Reasons["C227"] = ndtest.Skipped, "lonely"
	two.Report.Outcomes["R007"] = ndtest.Failed
	text := render(t, one, two)
	for cell, want := range map[string]string{
		"C227":                          "passed; skipped in 1 of 2 runs (one): lonely",
		"C001":                          "passed, adapted",
		"C170":                          "passed",
		"R007":                          "failed",
		"R008":                          "passed",
		"OpenAddress":                   "; R007: failed)",
		"NotifyErrors":                  "C196",
		"NoMemory":                      "ND_NO_MEMORY  endpoint.TestTable/NoMemory",
		"Canceled":                      "CANCELED  C",
		"DataError":                     "STATUS_DATA_ERROR  not | here",
		"SharedAddress.LocalAddress":    "endpoint.TestSharedAddress",
		"CountingCompletionQueue.Stats": "(endpoint.",
	} {
		if got := line(t, text, cell); !strings.Contains(got, want) {
			t.Errorf("%s:%s, want %q in it", cell, got, want)
		}
	}
	if strings.Contains(text, "stress") {
		t.Error("the stress test is no row")
	}
	if !strings.Contains(text, "248 rows pass: 247 in every run, 1 in") {
		t.Error("the count of passes is wrong")
	}
}

func TestRenderWantsEveryOutcome(t *testing.T) {
	missing, empty := allPassed("missing"), allPassed("empty")
	delete(missing.Report.Outcomes, "C017")
	empty.Report.Outcomes["R035"] = ""
	for want, runs := range map[string][]Run{
		"no runs":                     nil,
		"silent: no report":           {{Name: "silent"}},
		"missing: no outcome of C017": {allPassed("good"), missing},
		"empty: no outcome of R035":   {empty},
		"no such file or directory":   {allPassed("good")},
	} {
		if page, err := Render("/nonexistent", runs, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %d bytes and %v, want %q", len(page), err, want)
		}
	}
}

func TestNoEmptyResult(t *testing.T) {
	for l := range bytes.Lines([]byte(render(t, allPassed("one")))) {
		if bytes.HasSuffix(l, []byte(" \n")) || bytes.HasSuffix(l, []byte(":\n")) && !bytes.HasSuffix(l, []byte("processes:\n")) {
			t.Errorf("an empty result: %s", l)
		}
	}
}
