package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

func TestOutputFormats(t *testing.T) {
	const stamp = `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z`
	for _, tc := range []struct {
		args []string
		want string // expression for all of standard output
	}{
		{nil, `\[0\] a\n\[0\] b\n`},
		{[]string{"--label"}, `\[0\] a\n\[0\] b\n`},
		{[]string{"--no-label", "--label"}, `\[0\] a\n\[0\] b\n`},
		{[]string{"--no-label"}, `a\nb`},
		{[]string{"-no-label"}, `a\nb`},
		{[]string{"--timestamps"}, `\[0\] ` + stamp + ` a\n\[0\] ` + stamp + ` b\n`},
		{[]string{"--timestamps", "--no-label"}, stamp + ` a\n` + stamp + ` b\n`},
		{[]string{"--json-lines"}, `{"rank":0,"stream":"stdout","time":"` + stamp + `","text":"a"}\n` +
			`{"rank":0,"stream":"stdout","time":"` + stamp + `","text":"b","partial":true}\n`},
	} {
		status, out, errOut := proctest.Run(t, ndrun(t, append(tc.args, "printf", `a\nb`)...))
		if status != 0 || errOut != "" || !regexp.MustCompile("^"+tc.want+"$").MatchString(out) {
			t.Errorf("%v: exit status %d, %q, %q", tc.args, status, out, errOut)
		}
	}
}

// --quiet does not suppress errors of ndrun itself.
func TestQuietPrintsErrors(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/nowhere\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	status, _, errOut := proctest.Run(t, ndrun(t, "--quiet", script))
	if status != 1 || !strings.HasPrefix(errOut, "ndrun: start rank 0 of 1 (script): no such file or directory") {
		t.Errorf("exit status %d, %q", status, errOut)
	}
}

func TestQuiet(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	const script = "echo out; echo err >&2; exit 3"
	for _, tc := range []struct {
		args        []string
		out, errOut string // the latter from its start on
		table       bool
	}{
		{nil, "[0] out\n", "[0] err\nndrun: rank 0 (sh, pid ", true},
		{[]string{"--quiet"}, "[0] out\n", "[0] err\n", false},
		{[]string{"--output", dir}, "[0] out\n", "[0] err\nndrun: rank 0 (sh, pid ", true},
		{[]string{"--output", dir, "--quiet"}, "", "", false},
	} {
		status, out, errOut := proctest.Run(t, ndrun(t, append(tc.args, "sh", "-c", script)...))
		table := regexp.MustCompile(`(?m)^ndrun: 0     code 3, first to fail  \S+ s  \S+ s  \S+ MiB$`).MatchString(errOut)
		if status != 3 || out != tc.out || !strings.HasPrefix(errOut, tc.errOut) || table != tc.table || !tc.table && errOut != tc.errOut {
			t.Errorf("%v: exit status %d, %q, %q", tc.args, status, out, errOut)
		}
		if len(tc.args) == 0 || tc.args[0] != "--output" {
			continue
		}
		for name, want := range map[string]string{"rank.0.out": "out\n", "rank.0.err": "err\n"} {
			if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
				t.Errorf("%s holds %q, %v", name, got, err)
			}
		}
	}
}

// The report conforms to its schema, after success and after failure.
func TestReportFile(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile("../../launcher/report.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "report.json")
	for _, tc := range []struct {
		program []string
		status  int
	}{
		{[]string{"true"}, 0},
		{[]string{"sh", "-c", "echo dying >&2; kill -9 $$"}, 137},
		{[]string{"sh", "-c", "setsid sleep 1000 &"}, 0},
		{[]string{"./no-such-interpreter"}, 1},
	} {
		cmd := ndrun(t, append([]string{"-n", "2", "--report", file}, tc.program...)...)
		cmd.Dir = t.TempDir()
		if err := os.WriteFile(filepath.Join(cmd.Dir, "no-such-interpreter"), []byte("#!/nowhere\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		status, _, _ := proctest.Run(t, cmd)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
		if err != nil {
			t.Fatalf("%v: %v in %q", tc.program, err, text)
		}
		if err := schema.Validate(doc); err != nil {
			t.Errorf("%v: %v in %s", tc.program, err, text)
		}
		var told struct {
			ExitStatus int `json:"exit_status"`
		}
		if err := json.Unmarshal(text, &told); err != nil || told.ExitStatus != tc.status || status != tc.status {
			t.Errorf("%v: exit status %d, reported %d, want %d; %v", tc.program, status, told.ExitStatus, tc.status, err)
		}
	}
}

// If ndrun cannot start the job, the report and the findings say so.
func TestReportOfJobThatIsNotStarted(t *testing.T) {
	t.Parallel()
	broken := goPackage(t, "package main\n\nfunc main() { nonsense }\n")
	dir := t.TempDir()
	file, findings := filepath.Join(dir, "report.json"), filepath.Join(dir, "findings.json")
	schema, err := jsonschema.NewCompiler().Compile("../../launcher/report.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args   []string
		status int
		err    string // how it begins
	}{
		"build":    {[]string{"--check=" + findings, broken}, 1, "build " + broken + ": go build failed"},
		"arena":    {[]string{"--check=" + findings, "--arena-size", "1K", "true"}, 1, "create shared memory: "},
		"findings": {[]string{"--check=" + dir + "/none/findings.json", "true"}, 2, "create report of the checker: "},
	} {
		os.Remove(findings)
		cmd := ndrun(t, append([]string{"-n", "2", "--on-death", "continue", "--report", file}, tc.args...)...)
		inEmptyTemp(t, cmd)
		status, _, errOut := proctest.Run(t, cmd)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
		if err != nil {
			t.Errorf("%s: %v in %q", name, err, text)
			continue
		}
		if err := schema.Validate(doc); err != nil {
			t.Errorf("%s: %v in %s", name, err, text)
		}
		var told struct {
			Began      time.Time
			ExitStatus int    `json:"exit_status"`
			OnDeath    string `json:"on_death"`
			Errors     []string
			Ranks      []struct{ Program, End string }
		}
		if err := json.Unmarshal(text, &told); err != nil {
			t.Fatal(err)
		}
		if status != tc.status || told.ExitStatus != tc.status || len(told.Errors) == 0 || !strings.HasPrefix(told.Errors[0], tc.err) {
			t.Errorf("%s: exit status %d, reported %d, want %d; errors %q, want %q; %s", name, status, told.ExitStatus, tc.status, told.Errors, tc.err, errOut)
		}
		if time.Since(told.Began) > time.Hour || told.OnDeath != "continue" || len(told.Ranks) != 2 || told.Ranks[1].End != "not started" || told.Ranks[1].Program == "" {
			t.Errorf("%s: %+v", name, told)
		}
		if tc.status == 2 { // there is no file for findings
			continue
		}
		var checked struct {
			Unwatched []int
			Findings  []any
		}
		text, err = os.ReadFile(findings)
		if err == nil {
			err = json.Unmarshal(text, &checked)
		}
		if err != nil || len(checked.Unwatched) != 2 || checked.Findings == nil || len(checked.Findings) > 0 {
			t.Errorf("%s: %v in the findings %q", name, err, text)
		}
	}
}

func TestInputOptions(t *testing.T) {
	for _, tc := range []struct {
		ranks, want string // ranks that read
	}{{"", "0"}, {"0", "0"}, {"2", "2"}, {"0,2-3", "0 2 3"}, {"3,1", "1 3"}, {"0-1,1", "0 1"}, {"all", "0 1 2 3"}, {"none", ""}} {
		args := []string{"-n", "4", "sh", "-c", "cat"}
		if tc.ranks != "" {
			args = append([]string{"--stdin", tc.ranks}, args...)
		}
		cmd := ndrun(t, args...)
		cmd.Stdin = strings.NewReader("x\n")
		status, out, errOut := proctest.Run(t, cmd)
		var readers []string
		for rank := range "0123" {
			if strings.Contains(out, "["+string(rune('0'+rank))+"] x\n") {
				readers = append(readers, string(rune('0'+rank)))
			}
		}
		if status != 0 || strings.Join(readers, " ") != tc.want {
			t.Errorf("--stdin %s: %v read it; exit status %d, %s", tc.ranks, readers, status, errOut)
		}
	}
}

func TestOutputUsageErrors(t *testing.T) {
	dir := t.TempDir()
	const read = "ndrun: parse command line: "
	for _, tc := range []struct {
		args []string
		want string // how it begins
	}{
		{[]string{"--stdin", "1"}, read + "option --stdin 1: rank 1 does not exist: want some of 0"},
		{[]string{"-n", "4", "--stdin", "0,3-1"}, read + `option --stdin: invalid value "0,3-1": range 3-1 is descending: want 1-3`},
		{[]string{"--output", ""}, read + `option --output: invalid value "": want a directory`},
		{[]string{"--json-lines", "--no-label"}, read + "option --json-lines: includes rank and time: remove --no-label and --timestamps"},
		{[]string{"--json-lines", "--timestamps"}, read + "option --json-lines: includes rank and time: remove --no-label and --timestamps"},
		{[]string{"--report", dir + "/none/r.json"}, "ndrun: create report: open " + dir + "/none/r.json: no such file or directory: change --report"},
	} {
		status, out, errOut := proctest.Run(t, ndrun(t, append(tc.args, "true")...))
		if status != 2 || out != "" || !strings.HasPrefix(errOut, tc.want) {
			t.Errorf("%v: exit status %d, %q\n%s want\n%s", tc.args, status, out, errOut, tc.want)
		}
	}
}
