package ndcheck

import (
	"strings"
	"testing"
)

// Sites name files by paths that code hosts can map to files of the repository.
func TestSiteIsRelativeToModule(t *testing.T) {
	defer func(b func() (string, string)) { build = b }(build)
	for _, test := range []struct{ module, program, function, file, want string }{
		{"example.com/grid", "example.com/grid/cmd/run", "main.send", "/home/u/grid/cmd/run/rank.go", "cmd/run/rank.go"},
		{"example.com/grid", "example.com/grid/cmd/run", "main.send", "example.com/grid/cmd/run/rank.go", "cmd/run/rank.go"}, // -trimpath
		{"example.com/grid", "example.com/grid", "main.(*T).send", "/home/u/grid/rank.go", "rank.go"},
		{"example.com/grid", "example.com/grid", "example.com/grid/solve.Run[...]", "/home/u/grid/solve/run.go", "solve/run.go"},
		{"example.com/grid", "example.com/grid/solve.test", "example.com/grid/solve_test.TestRun.func1", "/home/u/grid/solve/run_test.go", "solve/run_test.go"},
		{"example.com/grid", "example.com/grid", "example.com/other.Run", "example.com/other@v1.2.3/run.go", "example.com/other/run.go"},
		{"example.com/grid", "example.com/grid", "example.com/v%2e2.Run", "/mod/v.2@v1.0.0/run.go", "example.com/v.2/run.go"},
		{"example.com/grid", "command-line-arguments", "main.main", "/tmp/x/main.go", "main.go"},
		{"", "", "main.main", "/tmp/x/main.go", "main.go"},
	} {
		build = func() (string, string) { return test.module, test.program }
		if got := fileOf(test.function, test.file); got != test.want {
			t.Errorf("%s in %s: %s, want %s", test.function, test.file, got, test.want)
		}
	}
}

func TestSiteFitsJournal(t *testing.T) {
	const rest = ":42 (main.send)"
	long := strings.Repeat("directory/", 20) + "rank.go"
	got := fitSite(long, rest)
	if len(got) >= siteSize || len(got) < siteSize-len("directory/")-1 || !strings.HasSuffix(got, "/rank.go"+rest) {
		t.Errorf("%q has %d bytes", got, len(got))
	}
	if got := fitSite("cmd/rank.go", rest); got != "cmd/rank.go"+rest {
		t.Error(got)
	}
}

// A report has short names, but tells two files of one name apart.
func TestReportShortensSites(t *testing.T) {
	f := Finding{Rule: neverSynchronised, Site: "a/x.go:1 (main.f)", Other: "also", OtherSite: "a/x.go:2 (main.g)"}
	if s := f.String(); strings.Contains(s, "a/x.go") {
		t.Error(s)
	}
	f.OtherSite = "b/x.go:2 (main.g)"
	if s := f.String(); !strings.Contains(s, ", at a/x.go:1") || !strings.Contains(s, ", at b/x.go:2") {
		t.Error(s)
	}
}
