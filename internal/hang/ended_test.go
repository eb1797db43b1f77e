package hang

import (
	"slices"
	"testing"
)

// A report distinguishes ranks that have left the job and still run from those that have ended.
func TestUnawaitedEnds(t *testing.T) {
	left, ended, working := rank{left: true}, rank{Process: Process{Ended: "exited with code 0"}}, rank{}
	for name, tc := range map[string]struct {
		ranks []rank
		want  []string
	}{
		"one left, one is not started": {[]rank{left, unstarted("waits to be started (--after 1h)")},
			[]string{"rank 0 (prog, pid 100) has left the job (Job.Close) and still runs", "rank 1 (prog) waits to be started (--after 1h), while others still run"}},
		"one left, one ended": {[]rank{ended, left},
			[]string{"rank 0 (prog, pid 100) exited with code 0, while others still run", "rank 1 (prog, pid 101) has left the job (Job.Close) and still runs"}},
		"one left, one works":  {[]rank{left, working}, []string{"rank 0 (prog, pid 100) has left the job (Job.Close) and still runs, while others still run"}},
		"one ended, one works": {[]rank{ended, working}, []string{"rank 0 (prog, pid 100) exited with code 0, while others still run"}},
		// Another process has the number of the ended one.
		"one ended, its number is that of a stopped process": {[]rank{{Process: ended.Process, state: 'T'}, working},
			[]string{"rank 0 (prog, pid 100) exited with code 0, while others still run"}},
		"one left and is stopped": {[]rank{{left: true, state: 'T'}, left},
			[]string{"rank 0 (prog, pid 100) is not responding: a signal or a debugger has stopped it: continue it with kill -CONT 100"}},
		"all ended": {[]rank{ended, ended}, nil},
		"all left":  {[]rank{left, left}, nil},
	} {
		var got []string
		for _, f := range job(tc.ranks...).Findings() {
			got = append(got, f.Cause)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// Without the number of a process, a report does not say whether it still runs.
func TestLeftProcessWithoutNumber(t *testing.T) {
	r := rank{id: member(0), left: true}
	if got, want := r.ending(), "has left the job (Job.Close), or has died"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A report names a wrapper only if the launcher has started another process than the one that joined.
func TestEndedProcess(t *testing.T) {
	for name, tc := range map[string]struct {
		started, joined int
		want            string
	}{
		"wrapper":     {100, 101, "has ended, but the wrapper that started it still runs"},
		"no wrapper":  {100, 100, "has ended"},
		"no launcher": {0, 100, "has ended"},
	} {
		for _, state := range []byte{0, 'Z'} {
			r := rank{Process: Process{PID: tc.started}, id: member(0), pid: tc.joined, left: true, state: state}
			if got := r.ending(); got != tc.want {
				t.Errorf("%s, state %q: %s, want %s", name, state, got, tc.want)
			}
		}
	}
}
