package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/softnd/softnd/bench/report"
)

// measure runs the suite of ndbench and the benchmarks of single calls, and writes a
// report of both. Unless quick is set, it also draws the pictures.
func measure(to string, quick bool) error {
	dir, err := os.MkdirTemp("", "figures-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program, out := filepath.Join(dir, "ndbench"), filepath.Join(dir, "report.json")
	if err := command(os.Stdout, "go", "build", "-o", program, "./cmd/ndbench"); err != nil {
		return err
	}
	args := []string{"suite", "--quiet", "--json", out}
	if quick {
		args = append(args, "--quick")
	}
	if err := command(os.Stdout, program, args...); err != nil {
		return err
	}
	text, err := os.ReadFile(out)
	if err != nil {
		return err
	}
	rep, err := report.ReadJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	var calls bytes.Buffer
	if err := command(&calls, "go", "test", "./endpoint", "-run", "^$", "-bench", "HotPath", "-benchtime", "1ms", "-count", "100"); err != nil {
		return err
	}
	rep.Command = []string{"go", "-C", "tools", "run", "./pagefigures", "-measure"}
	rep.Results = append(rep.Results, benchmarks(calls.String())...)
	for i := range rep.Results {
		leaveOutRepeats(&rep.Results[i])
	}
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	if err := errors.Join(rep.WriteJSON(f), f.Close()); err != nil || quick {
		return err
	}
	return pictures(program)
}

// leaveOutRepeats keeps what pages show: medians and their intervals. The median replaces the repeats.
func leaveOutRepeats(r *report.Result) {
	r.Distribution, r.Repeats, r.Drifts, r.Lines, r.Widths = nil, []float64{r.Value}, nil, nil, nil
	if r.Limit != nil {
		r.Limit.Ratios = nil
	}
}

// pictures measures softnd beside the installed peers, and draws the results.
func pictures(program string) error {
	for name, tests := range map[string]string{"latency": "write_lat,send_lat", "bandwidth": "write_bw,send_bw"} {
		if err := command(os.Stdout, program, "peers", "--quiet", "--tests", tests, "--size", "8,32,128,512,2K,8K,32K,128K,512K,2M",
			"--json", "docs/"+name+".json", "--plot", "docs/"+name+".svg"); err != nil {
			return err
		}
	}
	return nil
}

func command(out io.Writer, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return nil
}

// line is a result of a Go benchmark. The time of a part of an operation, such as
// ns/message, follows that of the whole.
var (
	line = regexp.MustCompile(`(?m)^Benchmark(\S+?)(?:-\d+)?\s+(\d+)\s+([0-9.]+) ns/op(?:\s+([0-9.]+) ns/\w+)?`)
	odd  = regexp.MustCompile(`[^a-z0-9]+`)
)

// benchmarks returns a result for each Go benchmark, with its runs as repeats: HotPath/Write8 is the test
// hotpath_write8.
func benchmarks(text string) (found []report.Result) {
	for _, m := range line.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(m[2])
		ns, _ := strconv.ParseFloat(m[3], 64)
		if m[4] != "" {
			ns, _ = strconv.ParseFloat(m[4], 64)
		}
		one := report.Result{Test: odd.ReplaceAllString(strings.ToLower(m[1]), "_"), Provider: "softnd", Unit: "ns", Better: "less",
			Value: ns, Low: ns, High: ns, Repeats: []float64{ns}}
		one.Iterations = n
		found = report.Pool(found, []report.Result{one})
	}
	return found
}
