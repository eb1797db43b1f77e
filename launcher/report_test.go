package launcher

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// checkedJSON writes a report, checks it against the schema, and returns it.
func checkedJSON(t *testing.T, r *Report, status int, err error) map[string]any {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteJSON(&b, status, err); err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	schema, err := c.Compile("report.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(doc); err != nil {
		t.Errorf("%v in\n%s", err, b.String())
	}
	var m map[string]any
	if err := json.Unmarshal(b.Bytes(), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// A report has ranks that exit, fail, are killed and are stopped.
func TestReport(t *testing.T) {
	r, open := gate(t)
	cfg := config("plan", 4, "PLAN_0=exit 0", "PLAN_1=gate signal 9")
	cfg.Files = []*os.File{r}
	cfg.Grace = proctest.Timeout // the ranks need a moment to end at SIGTERM
	j := start(t, cfg)
	var first int
	fmt.Sscan(j.out.await(4, "ready")[0], &first)
	// It is a zombie until it is reaped.
	proctest.Eventually(t, "rank 0 ends", func() bool { return syscall.Kill(first, 0) == syscall.ESRCH })
	open('x')
	report := j.wait()
	m := checkedJSON(t, report, report.ExitStatus(), nil)
	if m["exit_status"] != 137.0 || m["first_failure"] != 1.0 || m["ranks"].([]any)[1].(map[string]any)["program"] != "plan" {
		t.Errorf("exit status %v, first failure %v of %v", m["exit_status"], m["first_failure"], m["ranks"])
	}
	for rank, want := range []struct {
		end, signal any
		stopped     bool
	}{{"exited", nil, false}, {"killed", "SIGKILL", false}, {"killed", "SIGTERM", true}, {"killed", "SIGTERM", true}} {
		got := m["ranks"].([]any)[rank].(map[string]any)
		if got["end"] != want.end || got["signal"] != want.signal || got["stopped"] != want.stopped {
			t.Errorf("rank %d: %v", rank, got)
		}
		if got["wall_seconds"].(float64) <= 0 || got["peak_memory_bytes"].(float64) < 1<<20 ||
			got["user_seconds"].(float64)+got["system_seconds"].(float64) <= 0 {
			t.Errorf("rank %d took nothing: %v", rank, got)
		}
	}
	table := strings.Join(report.Table(), "\n")
	if !regexp.MustCompile(`^rank  end +wall +cpu +memory
0     code 0 +\d+\.\d{3} s  \d+\.\d{3} s  \d+\.\d MiB
1     SIGKILL, first to fail +\S+ s  \S+ s  \S+ MiB
2     SIGTERM, stopped +\S+ s  \S+ s  \S+ MiB
3     SIGTERM, stopped +\S+ s  \S+ s  \S+ MiB$`).MatchString(table) {
		t.Errorf("table\n%s", table)
	}
}

// CPU time and memory are those of the rank: one is busy and allocates, the other is idle.
func TestUsageIsPerRank(t *testing.T) {
	cfg := config("", 2)
	cfg.Apps[0].Path, cfg.Apps[0].Args = "/bin/sh", []string{"sh", "-c", `[ $RANK = 0 ] || exec head -c 64M /dev/zero | tail -c 64M >/dev/null`}
	report := start(t, cfg).wait()
	idle, busy := report.Ranks[0].usage, report.Ranks[1].usage
	if busy.MaxRSS < 64<<20 || idle.MaxRSS > 48<<20 || busy.User+busy.System <= idle.User+idle.System {
		t.Errorf("idle %+v, busy %+v", idle, busy)
	}
}

func TestReportHasEachKindOfEnd(t *testing.T) {
	r := &Report{First: 3, Signal: syscall.SIGINT, Ranks: []Result{
		{},       // never started
		{PID: 5}, // not known
		{PID: 6, Ended: true, Status: 3 << 8, stderrTail: "a\xff", corePath: "/c"},
		{Program: "p", PID: 7, Ended: true, Status: 0x80 | 11, coreHandler: "/h"},
		{PID: 8, Ended: true, Status: 40, Stopped: true}, // a real-time signal
	}, leftover: []process{{9, "l"}}, stuck: []process{{10, "s"}}}
	m := checkedJSON(t, r, 1, errors.Join(errors.New("one"), errors.New("two")))
	if fmt.Sprint(m["errors"]) != "[one two]" || m["stopped_by"] != "SIGINT" {
		t.Errorf("errors %v, stopped by %v", m["errors"], m["stopped_by"])
	}
	if got := m["ranks"].([]any)[4].(map[string]any)["signal"]; got != "SIG40" {
		t.Errorf("signal %v", got)
	}
	if got := strings.Join(r.Messages(), "\n"); !strings.Contains(got, "rank 3 (p, pid 7) was killed by signal SIGSEGV (segmentation fault), core dumped to /h") {
		t.Errorf("messages %q", got)
	}
}

func TestTableOfManyRanks(t *testing.T) {
	r := &Report{First: 90, Ranks: make([]Result, 100)}
	for i := range r.Ranks {
		r.Ranks[i] = Result{PID: i + 1, Ended: true, Stopped: i > 60}
	}
	for i := range 40 {
		r.Ranks[i].Status = 1 << 8
	}
	r.Ranks[90] = Result{PID: 91, Ended: true, Status: 2 << 8}
	table := r.Table()
	if len(table) != 1+tableRows+1 || !strings.HasPrefix(table[tableRows], "90    code 2, first to fail") {
		t.Errorf("%d lines:\n%s", len(table), strings.Join(table, "\n"))
	}
	if want := "not listed: 9 ranks failed, 21 ranks succeeded, 38 ranks stopped"; table[len(table)-1] != want {
		t.Errorf("last line %q, want %q", table[len(table)-1], want)
	}
}

func TestReportHasStandardError(t *testing.T) {
	cfg := config("", 2)
	cfg.Apps[0].Path, cfg.Apps[0].Args = "/bin/sh", []string{"sh", "-c", `
		[ $RANK = 1 ] || exec sleep 1000
		i=0; while [ $i -lt 500 ]; do echo "line $i of many" >&2; i=$((i+1)); done
		printf 'panic: out of luck' >&2; exit 2`}
	report := start(t, cfg).wait()
	words := report.Ranks[1].stderrTail
	if !strings.HasSuffix(words, "\nline 499 of many\npanic: out of luck") || !strings.HasPrefix(words, "line ") || len(words) > tailLength {
		t.Errorf("%d bytes: %q", len(words), words)
	}
	if report.Ranks[0].stderrTail != "" {
		t.Errorf("of a rank that was stopped: %q", report.Ranks[0].stderrTail)
	}
}

// A rank that crashes without output has no stream.
func TestCoreOfASilentRank(t *testing.T) {
	crashed := syscall.WaitStatus(0x80 | syscall.SIGSEGV) // with a core
	f := &frontEnd{report: &Report{Ranks: []Result{{Ended: true, Status: crashed}}}, streams: make([]*stream, 2)}
	f.cfg.Apps = []App{{Ranks: 1}}
	f.recordFailureDetails(corePattern{"|/usr/lib/handler %p", false})
	if got := f.report.Ranks[0].coreHandler; got != "/usr/lib/handler" {
		t.Errorf("the core went to %q", got)
	}
}

func TestCorePatternFindsFile(t *testing.T) {
	dir := t.TempDir() + "/odd [name]*"
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for _, tc := range []struct {
		pattern corePattern
		name    string // of the file that is there
		found   bool
	}{
		{corePattern{"core", false}, "core", true},
		{corePattern{"core", true}, "core.77", true},
		{corePattern{"core.%p", true}, "core.77", true},
		{corePattern{"%e-%p-%s-%t.core%%", false}, "prog-77-11-1700000000.core%", true},
		{corePattern{dir + "/c.%p", false}, "c.77", true},
		{corePattern{"core.%p", false}, "core.78", false},
		{corePattern{"|/usr/lib/handler %p", false}, "core", false},
		{corePattern{"", false}, "core", false},
	} {
		file := filepath.Join(dir, tc.name)
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		want := ""
		if tc.found {
			want = file
		}
		if got := tc.pattern.find(dir, 77, syscall.SIGSEGV, began); got != want {
			t.Errorf("%q finds %q, want %q", tc.pattern.text, got, want)
		}
		old := began.Add(-time.Hour)
		if err := os.Chtimes(file, old, old); err != nil {
			t.Fatal(err)
		}
		if got := tc.pattern.find(dir, 77, syscall.SIGSEGV, began); got != "" {
			t.Errorf("%q finds %q, which is old", tc.pattern.text, got)
		}
		os.Remove(file)
	}
	if got := (corePattern{"|/usr/lib/handler %p", false}).handler(); got != "/usr/lib/handler" {
		t.Errorf("handler %q", got)
	}
}
