package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/softnd/softnd/bench/report"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

func TestMistakesAreExplained(t *testing.T) {
	noReport := filepath.Join(t.TempDir(), "no.json")
	if err := os.WriteFile(noReport, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ args, want string }{
		{"writ_lat", `"writ_lat": did you mean write_lat`},
		{"nonsense", "ndbench list shows all tests"},
		{"frob", `unknown test or command "frob": ndbench list shows all tests`},
		{"write_lat --size 0", "--size 0: out of range: want 1 to"},
		{"write_lat --size 12Q", "want a size such as 8, 64K or 1M"},
		{"write_lat --size 8 --all-sizes", "exclude each other"},
		{"write_lat --repeats 0", "--repeats 0: out of range"},
		{"write_lat --iterations 5 --duration 1s", "omit one"},
		{"write_lat --depth x", "see ndbench help write_lat"},
		{"write_lat --bogus", "unknown flag: --bogus"},
		{"write_lat 64", `unexpected argument "64"`},
		{"write_lat --plot x.gif", "want a name that ends with .png or .svg"},
		{"write_lat --plot x.svg --size 8", "give two or more"},
		{"write_lat --json /no/such/x.json", "no directory /no/such"},
		{"write_lat --json - --csv -", "give a file to one of them"},
		{"write_lat --compare " + noReport, "give a file that --json has written"},
		{"write_lat --memory far", "want arena or private"},
		{"write_lat --executor me", "want auto or target"},
		{"write_lat --pin --no-pin", "omit one"},
		{"write_lat --server a --client a", "start a process for each"},
		{"write_lat --ranks 3", "the test has 2 ranks"},
		{"write_lat --events", "use send_lat or write_completion"},
		{"read_lat --bidirectional", "use a bandwidth test"},
		{"write_lat --depth 4", "write_lat: no effect in this test: --depth: omit it"},
		{"barrier --size 8 --pairs 2 --validate", "barrier: no effect in this test: --size, --pairs, --validate: omit it"},
		{"read_bw --inline", "read_bw: no effect in this test: --inline"},
		{"mr_lat --memory private", "mr_lat: no effect in this test: --memory private"},
		{"peers --tests read_lat", "want some of write_lat, "},
		{"peers --only verbs", "want some of ucx, libfabric, openmpi, mpich"},
		{"peers --repeats 0", "--repeats 0: out of range"},
		{"peers --duration 0s", "--duration 0s: out of range"},
		{"peers --size 8 --plot x.png", "give two or more"},
		{"peers --tests msg_rate --plot x.png", "such as write_lat"},
		{"peers --events", "see ndbench help peers"},
	} {
		status, out, errOut := proctest.Run(t, command(t, "ndbench", strings.Fields(tc.args)...))
		if status != exitUsage || out != "" || !strings.HasPrefix(errOut, "ndbench: ") || !strings.Contains(errOut, tc.want) {
			t.Errorf("%s: exit status %d, %s%s\nwant %d and %q", tc.args, status, out, errOut, exitUsage, tc.want)
		}
	}
}

// TestJobsThatDoNotFit: a job with a wrong number of ranks, and ranks that want different tests, are errors.
func TestJobsThatDoNotFit(t *testing.T) {
	ndbench := filepath.Join(must(t), "ndbench")
	status, _, errOut := proctest.Run(t, command(t, "ndrun", "-n", "3", ndbench, "write_lat", "--no-pin"))
	if status == 0 || !strings.Contains(errOut, "start it with ndrun -n 2") {
		t.Errorf("3 ranks: exit status %d, %s", status, errOut)
	}
	script := `if [ $SOFTND_RANK = 0 ]; then exec ` + ndbench + ` write_lat --no-pin; fi; exec ` + ndbench + ` read_lat --no-pin`
	status, _, errOut = proctest.Run(t, command(t, "ndrun", "-n", "2", "sh", "-c", script))
	if status == 0 || !strings.Contains(errOut, "give all ranks the same") {
		t.Errorf("two tests: exit status %d, %s", status, errOut)
	}
}

// TestComparison: a run can be compared with itself. A report that is a thousand times as fast differs.
func TestComparison(t *testing.T) {
	file := filepath.Join(t.TempDir(), "old.json")
	args := []string{"posted", "-n", "20", "-w", "5", "-r", "6", "--no-pin", "--quiet"}
	if status, _, errOut := proctest.Run(t, command(t, "ndbench", append(args, "--json", file)...)); status != 0 {
		t.Fatalf("exit status %d, %s", status, errOut)
	}
	compare := func() (int, string) {
		status, _, errOut := proctest.Run(t, command(t, "ndbench", append(args, "--compare", file)...))
		return status, errOut
	}
	if status, errOut := compare(); status != 0 && status != exitChanged {
		t.Errorf("exit status %d, %s", status, errOut)
	}
	hasten(t, file, 1e3)
	status, errOut := compare()
	for tries := 0; status == 0 && tries < 20; tries++ { // a machine that stalls one repeat hides any change
		status, errOut = compare()
	}
	if status != exitChanged || !strings.Contains(errOut, "changed beyond the noise") {
		t.Errorf("a thousand times as slow: exit status %d, want %d\n%s", status, exitChanged, errOut)
	}
}

// hasten divides the times of a report, and drops the limits, which stay the same.
func hasten(t *testing.T, file string, factor float64) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := report.ReadJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Results {
		x := &r.Results[i]
		for k := range x.Repeats {
			x.Repeats[k] /= factor
		}
		x.Value, x.Low, x.High, x.Limit, x.Distribution = x.Value/factor, x.Low/factor, x.High/factor, nil, nil
	}
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.WriteJSON(f), f.Close()); err != nil {
		t.Fatal(err)
	}
}
