package main

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/softnd/softnd/bench/report"
	"github.com/softnd/softnd/bench/suite"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

// suiteRuns returns the jobs of the first round of a suite.
func suiteRuns(t *testing.T, quick bool) (runs []suite.Run) {
	t.Helper()
	_, err := suite.Measure(quick, func(round int, r suite.Run) ([]report.Result, error) {
		if round == 1 {
			runs = append(runs, r)
		}
		return nil, nil
	}, func() []report.Result { return nil })
	if err != nil || len(runs) == 0 {
		t.Fatalf("%d runs, %v", len(runs), err)
	}
	return runs
}

// TestSuiteArguments: the command line of a run results in its options.
func TestSuiteArguments(t *testing.T) {
	for _, r := range append(suiteRuns(t, true), suiteRuns(t, false)...) {
		args := arguments(r)
		var o options
		f := pflag.NewFlagSet(r.Test, pflag.ContinueOnError)
		o.addFlags(f)
		if err := f.Parse(args[1:]); err != nil {
			t.Fatal(err)
		}
		if err := o.check(); err != nil {
			t.Fatal(err)
		}
		got := o.Options
		got.Pinned = o.pinned(r.Ranks)
		if args[0] != r.Test || o.ranks != r.Ranks || !reflect.DeepEqual(got, r.Options) {
			t.Errorf("%s\ngives %s with %d ranks: %+v\nand not %s with %d ranks: %+v", args, args[0], o.ranks, got, r.Test, r.Ranks, r.Options)
		}
	}
}

// TestSuiteMeasuresEveryBar runs the suite with few operations, and checks that each bar
// has a figure.
func TestSuiteMeasuresEveryBar(t *testing.T) {
	if testing.Short() {
		t.Skip("each test of the suite has processes of its own, which takes seconds")
	}
	var found []report.Result
	for _, r := range suiteRuns(t, true) {
		o := &r.Options
		o.WarmUp, o.Repeats, o.Pinned = 2, 5, false
		if r.Test == "blocked" { // which lasts for a time
			o.Duration = 10 * time.Millisecond
		} else {
			o.Duration, o.Iterations = 0, 5
		}
		status, out, errOut := proctest.Run(t, command(t, "ndbench", arguments(r)...))
		if status != 0 || errOut != "" {
			t.Fatalf("%s: exit status %d\n%s", arguments(r), status, errOut)
		}
		rep, err := report.ReadJSON(strings.NewReader(out))
		if err != nil {
			t.Fatal(err)
		}
		for k := range rep.Results {
			x := &rep.Results[k]
			for i := range x.Drifts {
				x.Drifts[i] = 1 // the tests that run beside this one are not what is tested
			}
			x.Widths = nil // nor the programs on the other thread of the core
		}
		found = report.Pool(found, rep.Results)
	}
	var table strings.Builder
	suite.Check(&table, &report.Report{Results: found}) // so few operations need not meet any bar
	for line := range strings.Lines(table.String()) {
		if strings.Contains(line, "NOT MEASURED") {
			t.Error(line)
		}
	}
}

// TestSuiteChecksAnEarlierReport: the table has a line for every bar, and a report without figures is a failure.
func TestSuiteChecksAnEarlierReport(t *testing.T) {
	rep := &report.Report{Time: time.Now(), Command: []string{"ndbench"}, Machine: report.ThisMachine()}
	var text bytes.Buffer
	if err := rep.WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "old.json")
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	if status := run([]string{"suite", "--check", "--from", path}, &stdout, &stderr); status != exitFailure {
		t.Errorf("exit status %d, want %d", status, exitFailure)
	}
	bars := strings.Count(stdout.String(), "\n") - 1 // below the names of the columns
	if got := strings.Count(stdout.String(), "NOT MEASURED"); got != bars || bars < 10 {
		t.Errorf("%d of %d bars were not measured:\n%s", got, bars, stdout.String())
	}
	if stderr.Len() == 0 {
		t.Error("nothing says why")
	}
}

func TestSuiteRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"--from", "x"},
		{"--from", "x", "--check", "--quick"},
		{"--nothing"},
		{"write_lat"},
	} {
		var stdout, stderr bytes.Buffer
		if status := run(append([]string{"suite"}, args...), &stdout, &stderr); status != exitUsage || stderr.Len() == 0 {
			t.Errorf("%q: exit status %d (%s), want %d", args, status, stderr.String(), exitUsage)
		}
	}
}
