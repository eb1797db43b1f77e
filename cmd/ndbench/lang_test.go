package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/softnd/softnd/bench/report"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

// TestLanguagesSideBySide: results of the same test and settings follow each other, in the order of the languages.
func TestLanguagesSideBySide(t *testing.T) {
	one := func(provider string, depth, iterations int) report.Result {
		return report.Result{Test: "posted", Provider: provider, Settings: report.Settings{Size: 8, Depth: depth, Iterations: iterations}}
	}
	var order []string
	for _, r := range sideBySide([]report.Result{one("softnd", 1, 5), one("softnd", 16, 6), one("softnd-c", 1, 7), one("softnd-c", 16, 8)}) {
		order = append(order, r.Provider, report.Figure(float64(r.Depth), "ratio"))
	}
	if got, want := strings.Join(order, " "), "softnd 1.00 softnd-c 1.00 softnd 16.0 softnd-c 16.0"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestLanguageMistakes(t *testing.T) {
	// A program that exits at once, as one that cannot join does.
	broken := filepath.Join(t.TempDir(), perfName)
	if err := os.WriteFile(broken, []byte("#!/bin/sh\necho 'cannot join' >&2\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args   string
		status int
		want   string
	}{
		{"write_lat --lang c --perf /no/such", exitUsage, `build it with "cmake -S c`},
		{"write_lat --lang c++", exitUsage, "want some of go, c, go-c, c-go"},
		{"write_lat --lang go,go", exitUsage, "given twice"},
		{"barrier --lang c --perf " + broken, exitUsage, "use --lang go"},
		{"write_lat --lang go-c --server x --perf " + broken, exitUsage, "the ranks exist already"},
		{"write_lat --lang c -c --perf " + broken, exitUsage, "omit --validate"},
		{"write_lat --lang c --perf " + broken, exitFailure, "cannot join\n"},
		{"write_lat --lang go-c --perf " + broken, exitFailure, "cannot join\n"},
		{"write_lat --lang c,c-go --perf " + broken, exitFailure, "write_lat with --lang c: "},
		{"peers --lang c --perf /no/such", exitUsage, "ranks in C: "},
	} {
		status, out, errOut := proctest.Run(t, command(t, "ndbench", strings.Fields(tc.args)...))
		if status != tc.status || out != "" || !strings.Contains(errOut, tc.want) {
			t.Errorf("%s: exit status %d, %s%s\nwant %d and %q", tc.args, status, out, errOut, tc.status, tc.want)
		}
	}
}
