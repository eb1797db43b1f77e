package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/softnd/softnd/bench/measure"
	"github.com/softnd/softnd/bench/report"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/scale"
)

// built returns the directory of the programs that are tested.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "ndbench-test")
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-o", dir, ".", "../ndrun").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, out)
	}
	return dir, err
})

func TestMain(m *testing.M) {
	proctest.IgnoreNoSignal()
	status := m.Run()
	if dir, err := built(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(status)
}

// command returns a program with its arguments, that ends with the test.
func command(t *testing.T, program string, args ...string) *exec.Cmd {
	t.Helper()
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*proctest.Timeout)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, filepath.Join(dir, program), args...)
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// transfers are the tests that this package is to run in every way. The others
// have their own in bench/measure.
var transfers = []string{"write_lat", "read_lat", "send_lat", "write_completion", "write_bw", "read_bw", "send_bw", "msg_rate", "posted"}

// tiny are options of a run for form. The ranks share cores with whatever else
// runs, and are not pinned: one that spins must not keep the other waiting.
var tiny = []string{"-n", "20", "-w", "5", "-r", "2", "--no-pin", "-c", "-s", "8,5000"}

// checkReport reads a report and checks its form.
func checkReport(t *testing.T, text []byte, test string) *report.Report {
	t.Helper()
	r, err := report.ReadJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, size := range []int{8, 5000} {
		at := slices.IndexFunc(r.Results, func(x report.Result) bool { return x.Size == size })
		if at < 0 {
			t.Fatalf("nothing of %d bytes in\n%s", size, text)
		}
	}
	for _, x := range r.Results {
		figures := append(slices.Clone(x.Repeats), x.Value, x.Low, x.High)
		if x.Limit != nil {
			figures = append(figures, x.Limit.Value, x.Limit.Ratio)
		}
		for _, f := range figures {
			if !(f > 0) || math.IsInf(f, 0) {
				t.Errorf("%s of %d bytes has the figure %v", x.Test, x.Size, f)
			}
		}
		if x.Test != test || x.Provider != "softnd" || len(x.Repeats) != 2 || x.Iterations != 20 || x.Pinned || x.Ranks != 2 {
			t.Errorf("not what was asked for: %+v", x)
		}
		if x.Low > x.Value || x.Value > x.High {
			t.Errorf("the median %v is not within %v and %v", x.Value, x.Low, x.High)
		}
		if d := x.Distribution; d != nil && (d.Count != 20 || d.Min > d.P50 || d.P50 > d.P90 || d.P90 > d.Max || d.P99 != 0 || d.P999 != 0 || d.P9999 != 0) {
			t.Errorf("odd distribution: %+v", *d)
		}
		if !strings.Contains(x.Note, "verified") {
			t.Errorf("no word of validation in %q", x.Note)
		}
	}
	return r
}

func TestEveryTestAlone(t *testing.T) {
	for _, name := range transfers {
		t.Run(name, func(t *testing.T) {
			status, out, errOut := proctest.Run(t, command(t, "ndbench", append([]string{name, "--json", "-"}, tiny...)...))
			if status != 0 || errOut != "" {
				t.Fatalf("exit status %d\n%s", status, errOut)
			}
			checkReport(t, []byte(out), name)
		})
	}
}

func TestEveryTestUnderNdrun(t *testing.T) {
	for _, name := range transfers {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "report.json")
			args := append([]string{"-n", "2", filepath.Join(must(t), "ndbench"), name, "--json", file}, tiny...)
			status, out, errOut := proctest.Run(t, command(t, "ndrun", args...))
			if status != 0 || errOut != "" {
				t.Fatalf("exit status %d\n%s", status, errOut)
			}
			if !strings.Contains(out, "[0] "+name) || strings.Contains(out, "[1]") {
				t.Errorf("want the table from rank 0 alone:\n%s", out)
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			checkReport(t, text, name)
		})
	}
}

func must(t *testing.T) string {
	t.Helper()
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestEveryTestWithServerAndClient: the client needs none of the options of the server, and reports the same results.
func TestEveryTestWithServerAndClient(t *testing.T) {
	for _, name := range transfers {
		t.Run(name, func(t *testing.T) {
			job := fmt.Sprintf("ndbench-test-%d-%s", os.Getpid(), name)
			server := command(t, "ndbench", append([]string{name, "--server", job, "--json", "-"}, tiny...)...)
			var out, errOut bytes.Buffer
			server.Stdout, server.Stderr = &out, &errOut
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			status, clientOut, clientErr := proctest.Run(t, command(t, "ndbench", name, "--client", job, "--no-pin", "--json", "-"))
			if err := server.Wait(); err != nil || status != 0 || clientErr != "" {
				t.Fatalf("server: %v %s\nclient: %d %s", err, &errOut, status, clientErr)
			}
			a, b := checkReport(t, out.Bytes(), name), checkReport(t, []byte(clientOut), name)
			if len(a.Results) != len(b.Results) || a.Results[0].Value != b.Results[0].Value {
				t.Errorf("the server has found %+v, the client %+v", a.Results, b.Results)
			}
		})
	}
}

// TestOptionsAreReported: each option that changes the measurement is in the report.
func TestOptionsAreReported(t *testing.T) {
	many := scale.Of(128, 1024)
	for _, tc := range []struct {
		args string
		want func(report.Result) bool
	}{
		{"write_bw -b -q 3 -t 5", func(r report.Result) bool { return r.Bidirectional && r.Pairs == 3 && r.Depth == 5 }},
		{"send_bw -b -m private", func(r report.Result) bool { return r.Bidirectional && r.Memory == "private" }},
		{"send_lat -e", func(r report.Result) bool { return r.Mode == "event" && r.Memory == "arena" }},
		{"read_lat -x target", func(r report.Result) bool { return r.Executor == "target" && r.Mode == "polling" }},
		{"write_lat -m private -x auto", func(r report.Result) bool { return r.Executor == "auto" && r.Memory == "private" }},
		{fmt.Sprintf("write_bw -q %d --size 8 -c", many), func(r report.Result) bool { return r.Pairs == many }},
		{fmt.Sprintf("send_bw -q %d --size 8", many), func(r report.Result) bool { return r.Pairs == many }},
		{fmt.Sprintf("msg_rate -q %d --size 8", many), func(r report.Result) bool { return r.Pairs == many }},
		{"write_lat -q 64", func(r report.Result) bool { return r.Pairs == 64 && r.Executor == "auto" }},
		{"msg_rate -b -I --size 8", func(r report.Result) bool { return r.Depth == 128 && strings.Contains(r.Note, "inline") }},
		{"posted -t 7 --size 8", func(r report.Result) bool { return r.Depth == 1 || r.Depth == 7 }},
	} {
		args := append(strings.Fields(tc.args), "-n", "4", "-w", "1", "-r", "2", "--no-pin", "-c", "--json", "-")
		if !strings.Contains(tc.args, "--size") {
			args = append(args, "-s", "8,5000")
		}
		status, out, errOut := proctest.Run(t, command(t, "ndbench", args...))
		if status != 0 {
			t.Errorf("%s: exit status %d\n%s", tc.args, status, errOut)
			continue
		}
		r, err := report.ReadJSON(strings.NewReader(out))
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range r.Results {
			if !tc.want(x) {
				t.Errorf("%s: reported as %+v", tc.args, x.Settings)
			}
		}
	}
}

// TestFormsOfAReport: one run can write its report in every form.
func TestFormsOfAReport(t *testing.T) {
	dir := t.TempDir()
	file := func(form string) string { return filepath.Join(dir, "r."+form) }
	for _, args := range [][]string{{"--json", file("json"), "--csv", file("csv"), "--plot", file("png")}, {"--plot", file("svg")}} {
		args = append(append([]string{"read_lat", "--quiet"}, args...), tiny...)
		if status, out, errOut := proctest.Run(t, command(t, "ndbench", args...)); status != 0 || out != "" || errOut != "" {
			t.Fatalf("exit status %d, %s%s", status, out, errOut)
		}
	}
	for form, start := range map[string]string{"json": "{", "csv": "test,", "png": "\x89PNG", "svg": "<?xml"} {
		text, err := os.ReadFile(file(form))
		if err != nil || !bytes.HasPrefix(text, []byte(start)) {
			t.Errorf("%s: %v, it begins with %.20q", form, err, text)
		}
	}
}

func TestListHasAllTests(t *testing.T) {
	_, out, _ := proctest.Run(t, command(t, "ndbench", "list"))
	for _, test := range measure.Tests() {
		if !strings.Contains(out, test.Name+" ") || !strings.Contains(out, test.Title) {
			t.Errorf("%s is not in the list", test.Name)
		}
	}
}

// --version names the program and its build.
func TestVersion(t *testing.T) {
	status, out, errOut := proctest.Run(t, command(t, "ndbench", "--version"))
	if status != 0 || !strings.HasPrefix(out, "ndbench (softnd) ") {
		t.Errorf("exit status %d, %s%s", status, out, errOut)
	}
}
