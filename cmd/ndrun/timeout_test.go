package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/launcher"
)

func TestTimeout(t *testing.T) {
	t.Parallel()
	for limit := range proctest.Limits(t, "both ranks run", 2500*time.Millisecond) {
		status, _, errOut := proctest.Run(t, ndrun(t, "-n", "2", "--timeout", limit.String(), "sleep", "600"))
		if strings.Contains(errOut, "no rank has been started") || strings.Contains(errOut, "still runs") {
			continue
		}
		want := "ndrun: timeout of " + limit.String() + " expired: all ranks still run; stopping the job\n" +
			"ndrun: likely cause: no rank has called softnd.Init"
		if status != 124 || !strings.HasPrefix(errOut, want) {
			t.Errorf("exit status %d, %s want at first\n%s", status, errOut, want)
		}
		break
	}
	for _, form := range []string{"4.5", "4500ms", "4.5s"} {
		if c, err := parse([]string{"--timeout", form, "true"}); err != nil || c.timeout != 4500*time.Millisecond {
			t.Errorf("%s: %v, %v; want 4.5s", form, c, err)
		}
	}
	if status, _, errOut := proctest.Run(t, ndrun(t, "--timeout", proctest.Timeout.String(), "sh", "-c", "exit 3")); status != 3 || strings.Contains(errOut, "time") {
		t.Errorf("exit status %d, %s", status, errOut)
	}
}

func TestTimedOutNamesRunningRanks(t *testing.T) {
	p := &plan{command: &command{timeout: 90 * time.Second}, ranks: make([]plannedRank, 5)}
	for want, running := range map[string][]int{
		"timeout of 1m30s expired: all ranks still run; stopping the job":           {0, 1, 2, 3, 4},
		"timeout of 1m30s expired: of 5 ranks, 0-2,4 still run; stopping the job":   {0, 1, 2, 4},
		"timeout of 1m30s expired: of 5 ranks, only 3 still runs; stopping the job": {3},
		"timeout of 1m30s expired: all ranks have ended; stopping the job":          {},
	} {
		report := &launcher.Report{Ranks: make([]launcher.Result, 5)}
		for rank := range report.Ranks {
			report.Ranks[rank] = launcher.Result{PID: 100 + rank, Ended: !slices.Contains(running, rank)}
		}
		if got := p.timedOut(report); got != want {
			t.Errorf("message %q, want %q", got, want)
		}
	}
	for want, first := range map[string]launcher.Result{
		"timeout of 1m30s expired: no rank has been started; stopping the job":                     {},
		"timeout of 1m30s expired: no rank runs, and some have not been started; stopping the job": {PID: 100, Ended: true},
	} {
		report := &launcher.Report{Ranks: make([]launcher.Result, 5)}
		report.Ranks[0] = first
		if got := p.timedOut(report); got != want {
			t.Errorf("message %q, want %q", got, want)
		}
	}
}

// --grace gives a rank more time than the default of 250 ms.
func TestGrace(t *testing.T) {
	t.Parallel()
	const slow = "trap 'sleep 1; echo has ended; exit 0' TERM; " +
		"if test $SOFTND_RANK = 0; then until test -e ready; do sleep 0.1; done; exit 3; fi; : >ready; while :; do sleep 0.1; done"
	if status, out, errOut := proctest.Run(t, ndrun(t, "-n", "2", "--wdir", t.TempDir(), "--grace", proctest.Timeout.String(), "sh", "-c", slow)); status != 3 || !strings.Contains(out, "[1] has ended\n") {
		t.Errorf("exit status %d, %s%s", status, out, errOut)
	}
	for text, want := range map[string]time.Duration{"0": 1, "2": 2 * time.Second, "10ms": 10 * time.Millisecond} {
		c, err := parse([]string{"--grace", text, "true"})
		if err != nil || c.grace != want { // to the launcher, 0 would be the default
			t.Errorf("%s: %v, %v; want %v", text, c, err, want)
		}
	}
}

func TestInvalidDurations(t *testing.T) {
	for _, tc := range []struct{ option, value, want string }{
		{"--timeout", "0", "want a positive duration"},
		{"--hang-after", "0.4", "want 500ms or more, because ranks publish their state every 100ms"},
		{"--hang-after", "soon", "want seconds or a duration such as 1m30s or 500ms"},
		{"--timeout", "-1s", "want a positive duration"},
		{"--timeout", "soon", "want seconds or a duration such as 1m30s or 500ms"},
		{"--timeout", "NaN", "want seconds or a duration such as 1m30s or 500ms"},
		{"--timeout", "1e300", "want seconds or a duration such as 1m30s or 500ms"},
		{"--grace", "-1", "want 0 or more"},
		{"--grace", "", "want seconds or a duration such as 1m30s or 500ms"},
	} {
		want := `ndrun: parse command line: option ` + tc.option + `: invalid value "` + tc.value + `": ` + tc.want + `; "ndrun -h" lists the options` + "\n"
		if status, out, errOut := proctest.Run(t, ndrun(t, tc.option, tc.value, "true")); status != 2 || out != "" || errOut != want {
			t.Errorf("exit status %d, output %q, message\n%s want\n%s", status, out, errOut, want)
		}
	}
}
