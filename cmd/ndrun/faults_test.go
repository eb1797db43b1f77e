package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/faults"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// runFaulty is a rank that writes bytes into the memory of the next rank, one after the other, and prints the
// statuses and, in the end, its own memory. A rank whose request fails ends normally.
func runFaulty() error {
	ctx, cancel := context.WithTimeout(context.Background(), proctest.Timeout)
	defer cancel()
	var options []softnd.Option
	if len(os.Args) > 1 && os.Args[1] == "own-plan" {
		plan, err := faults.New(1, faults.Rule{Operations: []string{"write"}, Action: "drop"})
		if err != nil {
			return err
		}
		options = append(options, softnd.WithFaults(plan))
	}
	job, err := softnd.Init(ctx, options...)
	if err != nil {
		return err
	}
	defer job.Close()
	mr, err := job.Adapter().Allocate(ctx, 64, nd.AllowLocalWrite|nd.AllowRemoteWrite)
	if err != nil {
		return err
	}
	windows, err := job.ExchangeWindows(ctx, nd.DescriptorOf(mr))
	if err != nil {
		return err
	}
	cq, err := job.Adapter().CreateCompletionQueue(ctx, 64)
	if err != nil {
		return err
	}
	endpoints, err := job.ConnectAll(ctx, nd.EndpointConfig{ReceiveCQ: cq, InitiatorCQ: cq})
	if err != nil {
		return err
	}
	next := (job.Rank() + 1) % job.Size()
	mr.Bytes()[63] = 1
	var statuses []string
	for i := range 32 {
		d := windows[next]
		d.Address += uint64(i)
		if err := endpoints[next].Write(uint64(i), nd.One(nd.SGEOf(mr, 63, 1)), d.Address, d.Token, 0); err != nil {
			statuses = append(statuses, "post "+nd.StatusOf(err).String())
			continue
		}
		var results [1]nd.Result
		if _, err := cq.Wait(ctx, results[:]); err != nil {
			return err
		}
		statuses = append(statuses, results[0].Status.String())
	}
	fmt.Println(strings.Join(statuses, " "))
	if err := job.Barrier(ctx); err != nil {
		return lament(err)
	}
	fmt.Printf("memory %x\n", mr.Bytes()[:32])
	return nil
}

// faulty runs ranks of runFaulty under a plan.
func faulty(t *testing.T, ranks int, plan string, options ...string) (status int, out, errOut string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(file, []byte(plan), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-n", fmt.Sprint(ranks), "--faults", file, "-env", proctest.RoleEnv + "=faulty"}, options...)
	return proctest.Run(t, ndrun(t, append(args, testBinary(t))...))
}

func TestFaultPlanReachesTheRanks(t *testing.T) {
	status, out, errOut := faulty(t, 3, `
rules:
- {name: third write, operation: write, rank: 1, nth: 3, action: fail, status: IOTimeout}
- {operation: write, rank: 0, peer: 1, nth: 2, phase: post, action: fail, status: NoMoreEntries}
`)
	if status != 0 || strings.Count(errOut, "\n") != 2 {
		t.Errorf("exit status %d, %s", status, errOut)
	}
	for _, want := range []string{"[1] Success Success IOTimeout Canceled", "[0] Success post NoMoreEntries"} {
		if !strings.Contains(out, want) {
			t.Errorf("%s\nlacks %q", out, want)
		}
	}
	for _, want := range []string{"fault rule 1 (plan.yaml:3, third write) acted once: 3", "fault rule 2 (plan.yaml:4) acted once: "} {
		if !strings.Contains(errOut, want) {
			t.Errorf("%s\nlacks %q", errOut, want)
		}
	}
}

func TestUnusedFaultFailsTheRun(t *testing.T) {
	report := filepath.Join(t.TempDir(), "report.json")
	status, _, errOut := faulty(t, 2, `
rules:
- {operation: write, rank: 0, nth: 2, phase: post, action: fail, status: NoMoreEntries}
- {operation: write, rank: 1, nth: 33, action: drop}
- {operation: read, action: kill}
`, "--report", report)
	if status != exitUnusedFault {
		t.Errorf("exit status %d, %s", status, errOut)
	}
	for _, want := range []string{"fault rule 2 (plan.yaml:4) never acted: 32 operations matched it", "fault rule 3 (plan.yaml:5) never acted: 0 operations"} {
		if !strings.Contains(errOut, want) {
			t.Errorf("%s\nlacks %q", errOut, want)
		}
	}
	var r struct {
		ExitStatus int `json:"exit_status"`
		Errors     []string
		Faults     struct {
			Seed  string
			Rules []struct {
				Line           int
				Matched, Fired uint64
			}
		}
	}
	text, err := os.ReadFile(report)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil || r.ExitStatus != exitUnusedFault || len(r.Errors) != 2 || len(r.Faults.Rules) != 3 || r.Faults.Rules[0].Fired != 1 || r.Faults.Rules[1].Matched != 32 || r.Faults.Rules[2].Line != 5 {
		t.Errorf("%v: %s", err, text)
	}
	schema, err := jsonschema.NewCompiler().Compile("../../launcher/report.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text))); err != nil || schema.Validate(doc) != nil {
		t.Errorf("the report does not conform to its schema: %v %v", err, schema.Validate(doc))
	}
}

func TestFaultKillsRank(t *testing.T) {
	for _, phase := range []string{"post", "execute", "complete"} {
		status, out, errOut := faulty(t, 2, "rules:\n- {operation: write, rank: 1, nth: 3, phase: "+phase+", action: kill}")
		if status != 128+9 || !strings.Contains(errOut, "rank 1 ") || !strings.Contains(errOut, "killed by signal SIGKILL") || !strings.Contains(errOut, "fault rule 1 (plan.yaml:2) acted once") {
			t.Errorf("%s: exit status %d, %s\n%s", phase, status, errOut, out)
		}
	}
}

// A rank that a rule stops is neither dead nor ended: its peers wait until it continues.
func TestFaultStopsRank(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(file, []byte("rules:\n- {operation: write, rank: 1, nth: 3, action: stop}"), 0o600); err != nil {
		t.Fatal(err)
	}
	pidFile := filepath.Join(t.TempDir(), "pid")
	script := fmt.Sprintf(`if [ $SOFTND_RANK = 1 ]; then echo $$ >%s; fi; exec %s`, pidFile, testBinary(t))
	cmd := ndrun(t, "-n", "2", "--faults", file, "-env", proctest.RoleEnv+"=faulty", "sh", "-c", script)
	var out strings.Builder
	cmd.Stdout = &out
	p := proctest.Start(t, cmd)
	var pid string
	proctest.Eventually(t, "rank 1 stops", func() bool {
		text, err := os.ReadFile(pidFile)
		pid = strings.TrimSpace(string(text))
		stat, err2 := os.ReadFile("/proc/" + pid + "/stat")
		return err == nil && err2 == nil && strings.Contains(string(stat), ") T ")
	})
	time.Sleep(20 * time.Millisecond)
	if err := exec.Command("kill", "-CONT", pid).Run(); err != nil {
		t.Error(err)
	}
	p.Wait()
	if strings.Count(out.String(), " memory "+strings.Repeat("01", 32)) != 2 {
		t.Errorf("output\n%s", out.String())
	}
}

// Random faults repeat with the seed that ndrun prints, in the same ranks and at the same operations.
func TestFaultSeedIsPrinted(t *testing.T) {
	t.Parallel()
	const plan = "rules:\n- {operation: write, probability: 0.2, phase: post, action: fail, status: NoMoreEntries}"
	sortedLines := func(out string) string {
		var lines [3]string
		for line := range strings.Lines(out) {
			for rank := range lines {
				if strings.HasPrefix(line, fmt.Sprintf("[%d] ", rank)) && !strings.Contains(line, "memory") {
					lines[rank] += line
				}
			}
		}
		return strings.Join(lines[:], "")
	}
	status, out, errOut := faulty(t, 3, plan)
	seed := regexp.MustCompile(`^ndrun: random faults with seed (\d+): --faults-seed (\d+) repeats them\n`).FindStringSubmatch(errOut) // the first line
	if status != 0 || seed == nil || seed[1] != seed[2] || !strings.Contains(out, "post NoMoreEntries") {
		t.Fatalf("exit status %d, %s\n%s", status, errOut, out)
	}
	for range 3 {
		status, again, errOut := faulty(t, 3, plan, "--faults-seed", seed[1])
		if status != 0 || sortedLines(again) != sortedLines(out) || sortedLines(out) == "" {
			t.Errorf("with seed %s: exit status %d, %s\n%s\nfirst\n%s", seed[1], status, errOut, again, out)
		}
	}
	if _, other, _ := faulty(t, 3, plan, "--faults-seed", "7"); sortedLines(other) == sortedLines(out) {
		t.Errorf("seed 7 makes no difference\n%s", other)
	}
}

func TestFaultPlanErrors(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("rules:\n- operation: write\n  action: explode\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(dir, "foreign.yaml")
	if err := os.WriteFile(foreign, []byte("rules:\n- operation: write\n  rank: 2\n  action: drop\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		bad + ":3: action: unknown action":          {"--faults", bad},
		foreign + ":3: rank: rank 2: the job has 1": {"--faults", foreign},
		"no such file":                                     {"--faults", filepath.Join(dir, "none")},
		"there is no fault plan: add --faults":             {"--faults-seed", "1"},
		"want a number from 0":                             {"--faults-seed", "-1"},
		"option --faults: invalid value \"\": want a file": {"--faults="},
	} {
		status, _, errOut := proctest.Run(t, ndrun(t, append(args, "true")...))
		if status != exitUsage || !strings.Contains(errOut, want) {
			t.Errorf("%q: exit status %d, %s, want %s", args, status, errOut, want)
		}
	}
}

// A rank does not follow rules that another process has changed, and does not ignore a plan.
func TestRankChecksFaultPlan(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(file, []byte("rules:\n- {operation: write, action: drop}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for set, want := range map[string]string{
		"unset SOFTND_FAULTS; exec ":   "the job has a fault plan, but SOFTND_FAULTS is not set",
		"SOFTND_FAULTS=1234567; exec ": "have digest ",
		"set own-plan; exec ":          "both WithFaults and ndrun --faults give a fault plan",
	} {
		status, _, errOut := proctest.Run(t, ndrun(t, "--faults", file, "-env", proctest.RoleEnv+"=faulty", "sh", "-c", set+testBinary(t)+` "$@"`))
		if status == 0 || !strings.Contains(errOut, want) {
			t.Errorf("%s: exit status %d, %s, want %s", set, status, errOut, want)
		}
	}
}
