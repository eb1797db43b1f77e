package measure

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/bench/report"
)

// alone returns the world of a job of one rank, which has no line to bounce.
func alone(t *testing.T) *World {
	t.Helper()
	job, err := softnd.Init(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { job.Close() })
	return &World{Job: job}
}

// TestUnsteadyRepeatsAreMadeAnew: if the limit differs before and after a repeat, measure makes further repeats, and
// keeps the steady ones.
func TestUnsteadyRepeatsAreMadeAnew(t *testing.T) {
	w := alone(t)
	limits := []float64{60, 300, 60, 60, 50, 300, 300} // around six repeats, of which the 3rd, 4th and 6th are steady
	runs, asked := 0, 0
	l := &loop{limitName: rawLineLimit, limitUnit: "ns",
		run:   func(context.Context, int) (float64, error) { runs++; return float64(runs), nil },
		limit: func(float64) (float64, error) { asked++; return limits[asked-1], nil },
	}
	made, err := l.repeats(t.Context(), w, 3, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(made) != 6 || asked != 7 {
		t.Fatalf("%d repeats and %d limits, want 6 and 7", len(made), asked)
	}
	var res report.Result
	l.fillResult(&res, steadiest(made, 3), nil)
	if !slices.Equal(res.Repeats, []float64{3, 4, 6}) || !slices.Equal(res.Drifts, []float64{1, 1.2, 1}) {
		t.Errorf("kept %v with the drifts %v", res.Repeats, res.Drifts)
	}
	if want := []float64{3.0 / 60, 4 / math.Sqrt(60*50), 6.0 / 300}; !slices.Equal(res.Limit.Ratios, want) {
		t.Errorf("ratios %v, want %v: each repeat is compared with its own limit", res.Limit.Ratios, want)
	}
}

// TestRepeatsEnd: a machine that never becomes steady gets as many repeats as requested, and their drifts show it.
func TestRepeatsEnd(t *testing.T) {
	w, limit := alone(t), 1.0
	l := &loop{limitName: rawLineLimit, limitUnit: "ns",
		run:   func(context.Context, int) (float64, error) { return 1, nil },
		limit: func(float64) (float64, error) { limit *= 2; return limit, nil },
	}
	made, err := l.repeats(t.Context(), w, 4, 1)
	if err != nil {
		t.Fatal(err)
	}
	var res report.Result
	l.fillResult(&res, steadiest(made, 4), nil)
	if len(made) != 4*maxTries || len(res.Repeats) != 4 || slices.Min(res.Drifts) <= Steady {
		t.Errorf("%d repeats made, kept %v with the drifts %v", len(made), res.Repeats, res.Drifts)
	}
}

// TestWarmUpOfLargeTransfers: the warm-up takes at most the time of a few repeats, however long an operation takes.
func TestWarmUpOfLargeTransfers(t *testing.T) {
	w, ops := alone(t), 0
	l := &loop{run: func(_ context.Context, n int) (float64, error) {
		ops += n
		time.Sleep(time.Duration(n) * 10 * time.Millisecond)
		return 1, nil
	}}
	if err := l.warmUp(t.Context(), w, Options{WarmUp: 1000, Duration: 20 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	if ops > 7 {
		t.Errorf("%d operations of 10 ms to warm up for repeats of 20 ms", ops)
	}
	ops = 0
	l.run = func(_ context.Context, n int) (float64, error) { ops += n; return 1, nil }
	if err := l.warmUp(t.Context(), w, Options{WarmUp: 1000, Duration: time.Hour}); err != nil || ops != 1000 {
		t.Errorf("%d operations of 1000: %v", ops, err)
	}
}

func TestLeadInOfLargeTransfers(t *testing.T) {
	for size, want := range map[int]int{8: 16, 4 << 20: 16, 16 << 20: 4, 1 << 30: 1} {
		l := link{o: Options{Pairs: 1}, linkConfig: linkConfig{size: size}}
		if got := l.leadIn(); got != want {
			t.Errorf("%d bytes: %d transfers, want %d", size, got, want)
		}
	}
}

// TestRepeatedly: an interruption of one window does not change the figure.
func TestRepeatedly(t *testing.T) {
	var got float64
	for range 20 { // a busy machine interrupts other windows, too
		calls := 0
		got = repeatedly(func(int) {
			calls++
			lasting := time.Millisecond
			if calls == 3 {
				lasting = 100 * time.Millisecond
			}
			for start := time.Now(); time.Since(start) < lasting; {
			}
		})
		if got <= 50e6 {
			return
		}
	}
	t.Errorf("a round takes %v ns, by one window", got)
}
