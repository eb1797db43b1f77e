package measure

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/softnd/softnd/bench/report"
)

// TestOthers runs every measurement other than of transfers, as briefly as possible, and checks the form of the
// results.
func TestOthers(t *testing.T) {
	few := Options{Iterations: 3, Repeats: 2, Sizes: []int{4096}}
	brief := Options{Duration: 10 * time.Millisecond, Repeats: 2}
	for _, c := range []struct {
		test    string
		ranks   int
		o       Options
		found   []string // names of the results
		unit    string
		sampled bool
	}{
		{"bind_invalidate", 2, few, []string{"bind_invalidate", "bind", "invalidate"}, "ns", true},
		{"mr_lat", 2, few, []string{"mr_lat_register", "mr_lat_deregister", "mr_lat_allocate", "mr_lat_free"}, "ns", true},
		{"mr_rate", 2, few, []string{"mr_rate_register", "mr_rate_deregister", "mr_rate_allocate", "mr_rate_free"}, "ops/s", false},
		{"connect_rate", 2, few, []string{"connect_lat"}, "ns", true},
		{"barrier", 3, few, []string{"barrier"}, "ns", true},
		{"wakeup", 2, few, []string{"wakeup", "wakeup_notify", "wakeup_eventfd"}, "ns", true},
		{"oversubscribed", 2, few, []string{"oversubscribed"}, "ns", true},
		{"oversubscribed", 5, few, []string{"oversubscribed"}, "ns", true},
		{"blocked", 2, brief, []string{"blocked", "blocked_barrier"}, "%", false},
		{"alloc_noise", 2, Options{Iterations: 100, Repeats: 2}, []string{"alloc_noise"}, "ratio", false},
		{"arena_memory", 4, few, []string{"arena_memory"}, "B", false},
	} {
		t.Run(c.test, func(t *testing.T) {
			found := runJob(t, c.ranks, c.test, c.o)
			for _, r := range found {
				t.Logf("%s %d B: %.4g %s (%s)", r.Test, r.Size, r.Value, r.Unit, r.Note)
			}
			wellFormed(t, found)
			for _, name := range c.found {
				at := slices.IndexFunc(found, func(r report.Result) bool { return r.Test == name })
				if at < 0 {
					t.Errorf("no %s", name)
					continue
				}
				r := found[at]
				if r.Unit != c.unit || r.Ranks != c.ranks || (r.Distribution != nil) != c.sampled {
					t.Errorf("%s is given in %s, with %d ranks, distribution %v", name, r.Unit, r.Ranks, r.Distribution)
				}
			}
		})
	}
}

// wellFormed wants results that a report may hold, none of them twice, with
// figures that something must have been measured for.
func wellFormed(t *testing.T, found []report.Result) {
	t.Helper()
	rep := report.Report{Time: time.Now(), Results: found,
		Machine: report.Machine{Processor: "p", Cores: 1, Kernel: "k", System: "linux/amd64", Go: "go", Softnd: "unknown"}}
	if err := rep.WriteJSON(&bytes.Buffer{}); err != nil {
		t.Error(err)
	}
	for i, r := range found {
		for _, v := range append(r.Repeats, r.Value) {
			if v < 0 || v == 0 && r.Unit != "%" {
				t.Errorf("%s has the figure %v", r.Test, v)
			}
		}
		if slices.ContainsFunc(found[:i], func(o report.Result) bool { return o.Test == r.Test && o.Settings == r.Settings }) {
			t.Errorf("%s is there twice", r.Test)
		}
		if d := r.Distribution; d != nil && (d.Count == 0 || d.Min > d.P50 || d.P50 > d.Max) {
			t.Errorf("%s has the distribution %+v", r.Test, *d)
		}
	}
}
