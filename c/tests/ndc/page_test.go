package ndc

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/softnd/softnd/nd/ndtest"
)

var update = flag.Bool("update", false, "write docs/conformance-c.md instead of comparing it")

const (
	page    = "../../../docs/conformance-c.md"
	allRuns = 20 // three pairings, two executors and two kinds of memory, with threads and processes; Go-C has processes only
)

// results has the reports of the runs, by name. Safe for concurrent use.
type results struct {
	mu      sync.Mutex
	reports map[string]*ndtest.Report
}

func (r *results) add(name string, report *ndtest.Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reports == nil {
		r.reports = make(map[string]*ndtest.Report)
	}
	r.reports[name] = report
}

// check compares the page with the results, if every scenario of every run was run.
func (r *results) check(t *testing.T) {
	if len(r.reports) < allRuns {
		return
	}
	for _, report := range r.reports {
		if report.Count(ndtest.NotRun) > 0 || report.Count(ndtest.Failed) > 0 {
			return
		}
	}
	text := r.render()
	if *update {
		if err := os.WriteFile(page, text, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if old, err := os.ReadFile(page); err != nil || !bytes.Equal(old, text) {
		t.Errorf("%s is out of date (%v): run the test again with -update", page, err)
	}
}

func (r *results) render() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `# Conformance of the C library

[c/tests/ndc](../c/tests/ndc/provider.go) generates this page: build the library as [its page](../c/README.md#tests) says, and run
the test with %[1]s-run 'TestConformance$' . -update%[1]s. Without %[1]s-update%[1]s the test fails if the page is out of date.

The suite of package [nd/ndtest](../nd/ndtest) runs over a wrapper of the library. Its rows are those of [the page of the Go
implementation](conformance.md). A run is named by pairing, executor, kind of memory, and where the two sides run. In the
pairing C-Go, for example, the first side is in C and the other one in Go. With threads, both sides are in one process.

## Where the interface in C differs

The wrapper adds what package nd has and the interface in C does not have. The rows do not test the library there:

| in package nd | in C | the wrapper |
|---|---|---|
| a region with bound windows can be closed; its memory is freed with the last window | snd_mr_close fails with SND_DEVICE_BUSY | repeats the call until no window is bound |
| Close of an adapter closes its objects | the same, and their handles must not be used any longer | leaves the adapter and its objects in C open |
| calls on closed objects have statuses of their own, such as Canceled | a closed handle is SND_INVALID_HANDLE, and must not be used | does not pass a closed handle on, and returns the status of the model |
| a region or connector exists before its registration or request | the call that registers, or takes a request, makes the handle | makes the handle then |
| a context ends a call | timeouts, and snd_connector_cancel | repeats calls with short timeouts, in the order of the callers, and cancels those of connectors |
| Endpoint.Done, Endpoint.Connector, and Err of a closed endpoint | none of them | polls snd_endpoint_error, and keeps the connector and the last error |

## Runs

| run | rows passed | skipped | without a test | failed | further scenarios passed |
|---|---|---|---|---|---|
`, "`")
	for _, name := range slices.Sorted(maps.Keys(r.reports)) {
		var rows, further [5]int
		for id, o := range r.reports[name].Outcomes {
			count := &further
			if strings.HasPrefix(id, "C") {
				count = &rows
			}
			count[slices.Index(outcomes, o)]++
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d of %d |\n", name, rows[0], rows[1], rows[2], rows[3], further[0], further[0]+further[1]+further[3])
	}
	fmt.Fprintf(&b, "\n## Rows that do not pass in every run\n\n| row | outcome | why |\n|---|---|---|\n")
	for i := range ndtest.RowCount {
		r.renderRow(&b, ndtest.RowID(i+1))
	}
	return b.Bytes()
}

// outcomes are in the order of the columns.
var outcomes = []ndtest.Outcome{ndtest.Passed, ndtest.Skipped, ndtest.NoTest, ndtest.Failed, ndtest.NotRun}

func (r *results) renderRow(b *bytes.Buffer, id string) {
	in := make(map[ndtest.Outcome][]string)
	reason := ""
	for _, name := range slices.Sorted(maps.Keys(r.reports)) {
		o := r.reports[name].Outcomes[id]
		in[o] = append(in[o], name)
		if o != ndtest.Passed {
			reason = r.reports[name].Reasons[id]
		}
	}
	delete(in, ndtest.Passed)
	for _, o := range outcomes {
		switch n := len(in[o]); n {
		case 0:
		case allRuns:
			fmt.Fprintf(b, "| %s | %s in all runs | %s |\n", id, o, reason)
		default:
			fmt.Fprintf(b, "| %s | %s in %d of %d runs: %s | %s |\n", id, o, n, allRuns, strings.Join(in[o], ", "), reason)
		}
	}
}
