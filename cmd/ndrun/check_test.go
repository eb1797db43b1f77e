package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndcheck"
)

func init() { plays["check"] = runCheck }

// runCheck is a rank that rank 0 gives a window. Rank 1 writes to it. The argument is the mistake, if any.
func runCheck(args []string) error {
	ctx := context.Background()
	job, err := softnd.Init(ctx)
	if err != nil {
		return err
	}
	how := args[0]
	if how == "fail" && job.Rank() == 1 {
		os.Exit(9)
	}
	if job.Rank() > 1 {
		_, err := job.ExchangeWindows(ctx, nd.WindowDescriptor{})
		return errors.Join(err, job.Barrier(ctx), job.Barrier(ctx), job.Close())
	}
	q, err := job.Adapter().CreateCompletionQueue(ctx, 16)
	if err != nil {
		return err
	}
	mr, err := job.Adapter().Allocate(ctx, 4096, nd.AllowLocalWrite)
	if err != nil {
		return err
	}
	ep, err := job.Connect(ctx, 1-job.Rank(), nd.EndpointConfig{ReceiveCQ: q, InitiatorCQ: q})
	if err != nil {
		return err
	}
	result := func() (r [1]nd.Result, err error) {
		_, err = q.Wait(ctx, r[:])
		return r, err
	}
	if job.Rank() == 0 {
		err = grant(ctx, job, ep, mr, how, result)
	} else {
		switch how {
		case "expect", "expect in vain":
			nd.Expect(ep, "the test wants it", "N101", "N107")
		case "full":
			for n := 1 << 16; n > 0; n /= 2 { // fill the report, down to a gap that no finding fits into
				for i := range 17 {
					nd.Expect(job.Adapter(), strings.Repeat(string(rune('a'+i)), n), "N802")
				}
			}
		}
		err = use(ctx, job, ep, mr, result)
	}
	if err != nil {
		return err
	}
	if err := job.Barrier(ctx); err != nil {
		return err
	}
	return job.Close()
}

func grant(ctx context.Context, job *softnd.Job, ep nd.Endpoint, mr nd.MemoryRegion, how string, result func() ([1]nd.Result, error)) error {
	w, err := job.Adapter().CreateMemoryWindow(ctx)
	if err != nil {
		return err
	}
	if err := ep.Bind(1, mr, w, mr.Bytes()[:64], nd.AllowWrite); err != nil {
		return err
	}
	if _, err := result(); err != nil {
		return err
	}
	if _, err := job.ExchangeWindows(ctx, w.Descriptor()); err != nil {
		return err
	}
	if how == "invalidate" || how == "expect" || how == "full" {
		if err := ep.Invalidate(2, w, 0); err != nil {
			return err
		}
		if _, err := result(); err != nil {
			return err
		}
	}
	return job.Barrier(ctx)
}

func use(ctx context.Context, job *softnd.Job, ep nd.Endpoint, mr nd.MemoryRegion, result func() ([1]nd.Result, error)) error {
	all, err := job.ExchangeWindows(ctx, nd.WindowDescriptor{})
	if err != nil {
		return err
	}
	if err := job.Barrier(ctx); err != nil {
		return err
	}
	if err := nd.WriteTo(ep, 7, nd.One(nd.SGEOf(mr, 0, 8)), all[0], 0); err != nil {
		return err
	}
	_, err = result()
	return err
}

func validate(t *testing.T, report []byte) {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile("../../nd/ndcheck/findings.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(report))
	if err != nil {
		t.Fatalf("%v: %s", err, report)
	}
	if err := schema.Validate(doc); err != nil {
		t.Error(err)
	}
}

// A finding about two processes names both lines, and sets the exit status.
func TestCheckNamesBothLines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "findings.json")
	status, out, errOut := proctest.Run(t, ndrun(t, "-n", "2", "--check="+file, testBinary(t), "check", "invalidate"))
	if status != exitCheck {
		t.Errorf("exit status %d, want %d\n%s%s", status, exitCheck, out, errOut)
	}
	for _, want := range []string{"[1] softnd check: N101 error: ", "[1]   rank 0: ended the token", "ndrun: check: 1 finding: N101 (1)\n"} {
		if !strings.Contains(errOut, want) {
			t.Errorf("no %q in\n%s", want, errOut)
		}
	}
	report, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	validate(t, report)
	var r struct{ Findings []ndcheck.Finding }
	if err := json.Unmarshal(report, &r); err != nil || len(r.Findings) != 1 {
		t.Fatalf("%v: %s", err, report)
	}
	f := r.Findings[0]
	if f.Rule.ID != "N101" || f.Rank != 1 || f.OtherRank != 0 || !strings.Contains(f.Site, "(ndrun.use)") || !strings.Contains(f.OtherSite, "(ndrun.grant)") || f.Length != 8 {
		t.Errorf("%s", report)
	}
}

func TestCheckWithoutFindings(t *testing.T) {
	status, out, errOut := proctest.Run(t, ndrun(t, "-n", "2", "--check=json", testBinary(t), "check", "correct"))
	if status != 0 || errOut != "ndrun: check: no findings\n" {
		t.Errorf("exit status %d\n%s", status, errOut)
	}
	validate(t, []byte(out))
}

// Expected findings are counted apart, in each format. An expectation that was not met is reported.
func TestCheckExpectations(t *testing.T) {
	t.Parallel()
	status, out, errOut := proctest.Run(t, ndrun(t, "-n", "2", "--check=json", testBinary(t), "check", "expect"))
	if status != 0 || errOut != "ndrun: check: no findings; 1 expected: N101 (1)\n" {
		t.Errorf("exit status %d\n%s", status, errOut)
	}
	validate(t, []byte(out))
	if !strings.Contains(out, `"reason": "the test wants it"`) {
		t.Error(out)
	}
	_, out, _ = proctest.Run(t, ndrun(t, "-n", "2", "--check=sarif", testBinary(t), "check", "expect"))
	if !strings.Contains(out, `"kind": "inSource"`) || !strings.Contains(out, `"justification": "the test wants it"`) {
		t.Error(out)
	}
	status, out, errOut = proctest.Run(t, ndrun(t, "-n", "2", "--check=json", testBinary(t), "check", "expect in vain"))
	if status != 0 || strings.Count(errOut, "N901 note: rank 1 expects N101 or N107 (the test wants it), which did not occur, at check_test.go:") != 1 || !strings.Contains(errOut, "check: 1 finding: N901 (1)\n") {
		t.Errorf("exit status %d\n%s", status, errOut)
	}
	validate(t, []byte(out))
	status, _, errOut = proctest.Run(t, ndrun(t, "-n", "2", "--check", "--check-ignore", "N901", testBinary(t), "check", "expect in vain"))
	if status != 0 || errOut != "ndrun: check: no findings\n" {
		t.Errorf("exit status %d\n%s", status, errOut)
	}
}

func TestCheckIgnore(t *testing.T) {
	t.Parallel()
	status, _, errOut := proctest.Run(t, ndrun(t, "-n", "2", "--check", "--check-ignore", "N303,N101", testBinary(t), "check", "invalidate"))
	if status != 0 || errOut != "ndrun: check: no findings\n" {
		t.Errorf("exit status %d\n%s", status, errOut)
	}
	for _, args := range [][]string{{"--check-ignore", "N303", "--check-ignore", "N101"}, {"--check-ignore", "N101", "--check-ignore", "N303"}} {
		status, _, errOut := proctest.Run(t, ndrun(t, append(append([]string{"-n", "2", "--check"}, args...), testBinary(t), "check", "invalidate")...))
		if status != 0 || errOut != "ndrun: check: no findings\n" {
			t.Errorf("%q: exit status %d\n%s", args, status, errOut)
		}
	}
	cmd := ndrun(t, "-n", "2", "--check", testBinary(t), "check", "expect in vain")
	cmd.Env = append(cmd.Env, softnd.EnvCheckIgnore+"=N901")
	if status, _, errOut := proctest.Run(t, cmd); status != 0 || errOut != "ndrun: check: no findings\n" {
		t.Errorf("rules in the environment: exit status %d\n%s", status, errOut)
	}
	for list, want := range map[string]string{"N999": `no rule has the identifier "N999"`, "": "no rule has the identifier"} {
		status, _, errOut := proctest.Run(t, ndrun(t, "--check", "--check-ignore", list, "true"))
		if status != exitUsage || !strings.Contains(errOut, want) {
			t.Errorf("%q: exit status %d\n%s", list, status, errOut)
		}
	}
	status, _, errOut = proctest.Run(t, ndrun(t, "--check-ignore", "N101", "true"))
	if status != exitUsage || !strings.Contains(errOut, "add --check") {
		t.Errorf("exit status %d\n%s", status, errOut)
	}
}

// With --json-lines, the findings are one more line.
func TestCheckJSONLines(t *testing.T) {
	_, out, _ := proctest.Run(t, ndrun(t, "-n", "2", "--check=json", "--json-lines", testBinary(t), "check", "invalidate"))
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	for _, line := range lines {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}
	validate(t, []byte(lines[len(lines)-1]))
}

// If the job fails by itself, its own status counts.
func TestCheckKeepsTheStatusOfTheJob(t *testing.T) {
	status, _, errOut := proctest.Run(t, ndrun(t, "-n", "2", "--check", testBinary(t), "check", "fail"))
	if status != 9 || !strings.Contains(errOut, "check: ") {
		t.Errorf("exit status %d\n%s", status, errOut)
	}
}

func TestCheckCountsTheWatchedRanks(t *testing.T) {
	const said = "ndrun: check: rank 0 was not watched: "
	const rest = "ndrun: check: in the 0 of 1 ranks that were watched: no findings\n"
	status, out, errOut := proctest.Run(t, ndrun(t, "--check=json", "-n", "1", "true"))
	if status != exitUnwatched || !strings.HasPrefix(errOut, said) || !strings.HasSuffix(errOut, rest) {
		t.Errorf("exit status %d\n%s", status, errOut)
	}
	validate(t, []byte(out))
	var report struct{ Unwatched []int }
	if err := json.Unmarshal([]byte(out), &report); err != nil || !slices.Equal(report.Unwatched, []int{0}) {
		t.Errorf("%v: %s", err, out)
	}
	status, out, errOut = proctest.Run(t, ndrun(t, "--check=partial", "--check=sarif", "-n", "1", "true"))
	if status != 0 || !strings.HasPrefix(errOut, said) || !strings.Contains(out, `"executionSuccessful": false`) || !strings.Contains(out, "rank 0 was not watched") {
		t.Errorf("exit status %d\n%s%s", status, out, errOut)
	}
	// A rank that is watched has made a mistake. That counts more than the rank that is not watched.
	status, _, errOut = proctest.Run(t, ndrun(t, "--check", "-n", "2", testBinary(t), "check", "invalidate", ":",
		"-n", "1", "bash", "-c", fmt.Sprintf("unset SOFTND_CHECK; exec %s check invalidate", testBinary(t))))
	if status != exitCheck || !strings.Contains(errOut, "check: rank 2 was not watched") || !strings.Contains(errOut, "in the 2 of 3 ranks that were watched: 1 finding: N101 (1)\n") {
		t.Errorf("exit status %d\n%s", status, errOut)
	}
}

// An error that does not fit into the report sets the exit status, and the reports say that they are not complete.
func TestCheckReportIsFull(t *testing.T) {
	status, out, errOut := proctest.Run(t, ndrun(t, "-n", "2", "--check=json", testBinary(t), "check", "full"))
	if status != exitCheck || !strings.Contains(errOut, "[1] softnd check: N101 error: ") || !strings.Contains(errOut, "did not fit into the report, 1 of them errors\n") {
		t.Errorf("exit status %d\n%s", status, errOut)
	}
	if strings.Contains(errOut, "N901") {
		t.Error("an expectation is said to be in vain, although the finding that meets it may be lost")
	}
	validate(t, []byte(out))
	var report struct{ Lost int }
	if err := json.Unmarshal([]byte(out), &report); err != nil || report.Lost == 0 {
		t.Errorf("%v: %d lost", err, report.Lost)
	}
	status, out, _ = proctest.Run(t, ndrun(t, "-n", "2", "--check=sarif", testBinary(t), "check", "full"))
	if status != exitCheck || !strings.Contains(out, `"executionSuccessful": false`) || !strings.Contains(out, "did not fit into the report") {
		t.Errorf("exit status %d\n%s", status, out)
	}
}

func TestRanksAreDescribed(t *testing.T) {
	for _, tc := range []struct {
		ranks []int
		want  string
	}{
		{[]int{3}, "rank 3 was"}, {[]int{0, 2}, "ranks 0 and 2 were"}, {[]int{0, 2, 5}, "ranks 0, 2 and 5 were"},
		{[]int{1, 2, 3, 4, 5, 6, 7, 8, 9}, "9 ranks, the first of which is rank 1, were"},
	} {
		if got := describeRanks(tc.ranks); got != tc.want {
			t.Errorf("%v: %q, want %q", tc.ranks, got, tc.want)
		}
	}
}

func TestCheckReportMustBeWritable(t *testing.T) {
	full := filepath.Join(t.TempDir(), "full.json")
	if err := os.Symlink("/dev/full", full); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		file   string
		status int
		want   string
	}{
		{"/nowhere/f.json", exitUsage, "change --check"},
		{"findings", exitUsage, "invalid value \"findings\": want json, sarif, partial, or a file"},
		{full, exitFailure, "write the report of the checker"}, // the job has run
	} {
		status, out, errOut := proctest.Run(t, ndrun(t, "-n", "2", "--check="+tc.file, testBinary(t), "check", "invalidate"))
		if status != tc.status || !strings.Contains(errOut, tc.want) {
			t.Errorf("%s: exit status %d\n%s%s", tc.file, status, out, errOut)
		}
	}
}

// Ranks whose wrapper closes or replaces their descriptors are watched in full.
func TestCheckBehindAWrapper(t *testing.T) {
	t.Parallel()
	for name, redirect := range map[string]string{
		"journal closed":   "exec $SOFTND_CHECK_FD>&-",
		"journal replaced": "exec $SOFTND_CHECK_FD</dev/null",
		"all closed":       "exec $SOFTND_CHECK_FD>&- $SOFTND_ARENA_FD>&-",
	} {
		for how, want := range map[string]struct {
			status int
			text   string
		}{
			"correct":    {0, "ndrun: check: no findings\n"},
			"invalidate": {exitCheck, "ndrun: check: 1 finding: N101 (1)\n"},
		} {
			script := fmt.Sprintf("eval %q; exec %s check %s", redirect, testBinary(t), how)
			status, _, errOut := proctest.Run(t, ndrun(t, "-n", "2", "--check", "bash", "-c", script))
			if status != want.status || !strings.Contains(errOut, want.text) || strings.Contains(errOut, "not watched") {
				t.Errorf("%s, %s: exit status %d\n%s", name, how, status, errOut)
			}
		}
	}
}

// The SARIF report has what version 2.1.0 of the schema requires, and what code hosts show.
func TestCheckReportSARIF(t *testing.T) {
	status, out, errOut := proctest.Run(t, ndrun(t, "-n", "2", "--check=sarif", testBinary(t), "check", "invalidate"))
	if status != exitCheck {
		t.Fatalf("exit status %d\n%s%s", status, out, errOut)
	}
	var log struct {
		Schema  string `json:"$schema"`
		Version string
		Runs    []struct {
			Tool struct {
				Driver struct {
					Name  string
					Rules []struct {
						ID               string
						ShortDescription struct{ Text string }
					}
				}
			}
			Results []struct {
				RuleID    string
				Level     string
				Message   struct{ Text string }
				Locations []struct {
					PhysicalLocation struct {
						ArtifactLocation struct{ URI string }
						Region           struct{ StartLine int }
					}
				}
				RelatedLocations []struct{ Message struct{ Text string } }
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &log); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if log.Version != "2.1.0" || !strings.Contains(log.Schema, "sarif") || len(log.Runs) != 1 || log.Runs[0].Tool.Driver.Name != "softnd" {
		t.Fatal(out)
	}
	known := make(map[string]bool)
	for _, r := range log.Runs[0].Tool.Driver.Rules {
		known[r.ID] = r.ID != "" && r.ShortDescription.Text != ""
	}
	if len(known) != len(ndcheck.Rules()) || len(log.Runs[0].Results) != 1 {
		t.Fatal(out)
	}
	r := log.Runs[0].Results[0]
	if !known[r.RuleID] || r.Level != "error" || r.Message.Text == "" || len(r.Locations) != 1 || len(r.RelatedLocations) != 1 || r.RelatedLocations[0].Message.Text == "" {
		t.Fatal(out)
	}
	at := r.Locations[0].PhysicalLocation
	if at.ArtifactLocation.URI != "cmd/ndrun/check_test.go" || at.Region.StartLine == 0 {
		t.Error(out)
	}
}
