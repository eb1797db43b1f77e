package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// TestPlotOfAnEarlierReport: a plot of JSON is the same as the plot of the run that wrote it.
func TestPlotOfAnEarlierReport(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	args := append([]string{"read_lat", "--quiet", "--json", file("r.json"), "--plot", file("then.svg")}, tiny...)
	if status, _, errOut := proctest.Run(t, command(t, "ndbench", args...)); status != 0 {
		t.Fatalf("exit status %d, %s", status, errOut)
	}
	if status, out, errOut := proctest.Run(t, command(t, "ndbench", "plot", file("r.json"), "--to", file("now.svg"))); status != 0 || out != "" {
		t.Fatalf("exit status %d, %s%s", status, out, errOut)
	}
	then, err := os.ReadFile(file("then.svg"))
	if err != nil {
		t.Fatal(err)
	}
	now, err := os.ReadFile(file("now.svg"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(then, now) {
		t.Error("the two pictures differ")
	}
	if status, _, errOut := proctest.Run(t, command(t, "ndbench", "plot", file("r.json"), file("r.json"), "--to", file("two.svg"))); status != 0 {
		t.Errorf("two reports: exit status %d, %s", status, errOut)
	}
}

func TestPlotRefuses(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.json")
	if err := os.WriteFile(bad, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"--to", filepath.Join(dir, "a.svg")}, exitUsage, "no report"},
		{[]string{bad}, exitUsage, "--to"},
		{[]string{bad, "--to", filepath.Join(dir, "a.pdf")}, exitUsage, ".png or .svg"},
		{[]string{bad, "--to", filepath.Join(dir, "a.svg")}, exitFailure, "bad.json"},
	} {
		var stdout, stderr bytes.Buffer
		status := run(append([]string{"plot"}, c.args...), &stdout, &stderr)
		if status != c.status || !strings.Contains(stderr.String(), c.says) {
			t.Errorf("%q: exit status %d, %s; want %d and %q", c.args, status, stderr.String(), c.status, c.says)
		}
	}
}
