package ndtest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/softnd/softnd/nd"
)

// Outcome of a row.
type Outcome string

const (
	Passed   Outcome = "passed"
	Failed   Outcome = "failed"
	Skipped  Outcome = "skipped" // the provider lacks an optional feature, or the run another process
	NoTest   Outcome = "no test" // the row is in Untestable
	NotAsked Outcome = "not run" // left out by Config.Only or by the command line
)

// Report is what a run found out.
type Report struct {
	Outcomes map[string]Outcome // by row, and by further scenario
	Reasons  map[string]string  // of rows that were skipped or have no test
}

// Count returns how many rows and further scenarios had an outcome.
func (r *Report) Count(o Outcome) (n int) {
	for _, got := range r.Outcomes {
		if got == o {
			n++
		}
	}
	return n
}

// house keeps the provider of a process open from one scenario to the next.
type house struct {
	open     func() (nd.Provider, error)
	provider [2]nd.Provider // by role: the two halves of one process have one each
	stuck    atomic.Bool    // a half was given up, and may still use them
}

func (h *house) of(r role) (nd.Provider, error) {
	if h.provider[r] == nil {
		p, err := h.open()
		if err != nil {
			return nil, fmt.Errorf("open provider: %w", err)
		}
		h.provider[r] = p
	}
	return h.provider[r], nil
}

func (h *house) close() {
	if h.stuck.Load() {
		return // it might not return
	}
	for _, p := range h.provider {
		if p != nil {
			p.Close()
		}
	}
}

// Run checks the provider against every scenario and returns what it found. Each row is a subtest
// of t, named by its number; so is each scenario beyond the table.
func Run(t *testing.T, cfg Config) *Report {
	t.Helper()
	report := &Report{Outcomes: make(map[string]Outcome), Reasons: make(map[string]string)}
	for i := range Rows {
		id := RowID(i + 1)
		report.Outcomes[id] = NotAsked
		if reason, ok := Untestable[id]; ok {
			report.Outcomes[id], report.Reasons[id] = NoTest, reason
		}
	}
	for _, sc := range all() {
		if _, ok := report.Outcomes[sc.id]; !ok {
			report.Outcomes[sc.id] = NotAsked
		}
	}
	r := newRunner(t, cfg)
	for _, sc := range all() {
		if len(cfg.Only) > 0 && !slices.Contains(cfg.Only, sc.id) {
			continue
		}
		if r.stuck {
			t.Logf("the run ends before %s, since a half of a scenario had to be given up", sc.id)
			break
		}
		t.Run(sc.id, func(t *testing.T) {
			report.Outcomes[sc.id] = Failed
			skipped := r.run(t, sc)
			switch {
			case t.Failed():
			case skipped != "":
				report.Outcomes[sc.id], report.Reasons[sc.id] = Skipped, skipped
				t.Skip(skipped)
			default:
				report.Outcomes[sc.id] = Passed
			}
		})
	}
	t.Logf("%d rows and %d further scenarios: %d passed, %d failed, %d skipped, %d without a test, %d not run", Rows, len(report.Outcomes)-Rows,
		report.Count(Passed), report.Count(Failed), report.Count(Skipped), report.Count(NoTest), report.Count(NotAsked))
	for i := range Rows {
		if id := RowID(i + 1); report.Outcomes[id] == NoTest || report.Outcomes[id] == Skipped {
			t.Logf("%s %s: %s", id, report.Outcomes[id], report.Reasons[id])
		}
	}
	t.Logf("%d rows check something in place of what the table asks for:", len(Adapted))
	for i := range Rows {
		if what, ok := Adapted[RowID(i+1)]; ok {
			t.Logf("%s %s: %s", RowID(i+1), report.Outcomes[RowID(i+1)], what)
		}
	}
	return report
}

// runner runs scenarios one after the other.
type runner struct {
	cfg   Config
	terms terms
	home  *house
	other *process // nil until a scenario needs it
	stuck bool     // a half was given up: there can be no further scenario
}

func newRunner(t *testing.T, cfg Config) *runner {
	r := &runner{cfg: cfg, terms: cfg.terms(), home: &house{open: cfg.Open}}
	t.Cleanup(r.home.close)
	t.Cleanup(r.dismiss)
	return r
}

// process is the other process of a run.
type process struct {
	*wire
	mu   sync.Mutex
	half *link
	ends chan verdict // of the half there; closed when the stream ends
}

func (r *runner) process() (*process, error) {
	if r.other == nil {
		conn, err := r.cfg.Spawn()
		if err != nil {
			return nil, fmt.Errorf("start the other process: %w", err)
		}
		p := &process{wire: newWire(conn), ends: make(chan verdict, 1)}
		go p.listen()
		r.other = p
	}
	return r.other, nil
}

func (p *process) listen() {
	defer close(p.ends)
	for {
		var f frame
		if p.dec.Decode(&f) != nil {
			return
		}
		if f.End != nil {
			p.ends <- *f.End
			continue
		}
		p.mu.Lock()
		half := p.half
		p.mu.Unlock()
		if f.Say != nil && half != nil {
			half.in <- f.Say
		}
	}
}

// dismiss ends the other process.
func (r *runner) dismiss() {
	if r.other != nil {
		r.other.conn.Close()
		for range r.other.ends {
		}
		r.other = nil
	}
}

// run runs one scenario and reports its failures; it returns why it does not apply.
func (r *runner) run(t *testing.T, sc scenario) (skipped string) {
	t.Helper()
	if sc.process && r.cfg.Spawn == nil {
		return "needs a second process"
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	var verdicts []verdict
	switch {
	case sc.passive == nil:
		verdicts = []verdict{supervise(ctx, r.home, sc, active, nil, r.terms)}
	case r.cfg.Spawn == nil:
		verdicts = r.here(ctx, cancel, sc)
	default:
		v, err := r.apart(ctx, cancel, sc)
		if err != nil {
			t.Fatal(err)
		}
		verdicts = v
	}
	for _, v := range verdicts {
		if v.Skipped != "" {
			skipped = v.Skipped
		}
		for _, note := range v.Notes {
			t.Log(note)
		}
		r.stuck = r.stuck || v.Stuck
	}
	if r.stuck {
		r.dismiss()
	}
	derived := skipped == "" && !slices.ContainsFunc(verdicts, func(v verdict) bool { return len(v.Failures) > 0 && !v.Derived })
	for _, v := range verdicts {
		for _, f := range v.Failures {
			if !v.Derived || derived {
				t.Error(f)
			}
		}
	}
	return skipped
}

// here runs both halves in this process.
func (r *runner) here(ctx context.Context, cancel context.CancelCauseFunc, sc scenario) []verdict {
	a, p := newLinks()
	verdicts := make([]verdict, 2)
	var halves sync.WaitGroup
	for part, l := range map[role]*link{active: a, passive: p} {
		halves.Go(func() {
			verdicts[part] = supervise(ctx, r.home, sc, part, l, r.terms)
			if verdicts[part].ended() {
				cancel(errAbandoned)
			}
		})
	}
	halves.Wait()
	return verdicts
}

// ended tells whether the other half waits in vain.
func (v *verdict) ended() bool { return len(v.Failures) > 0 || v.Skipped != "" }

// apart runs one half here and the other in the other process.
func (r *runner) apart(ctx context.Context, cancel context.CancelCauseFunc, sc scenario) ([]verdict, error) {
	p, err := r.process()
	if err != nil {
		return nil, err
	}
	l := &link{in: make(chan json.RawMessage, inFlight)}
	l.send = func(m json.RawMessage) error { return p.write(frame{Say: m}) }
	p.mu.Lock()
	p.half = l
	p.mu.Unlock()
	if err := p.write(frame{Run: sc.id, Terms: r.terms}); err != nil {
		return nil, fmt.Errorf("ask the other process: %w", err)
	}
	here := make(chan verdict, 1)
	go func() { here <- supervise(ctx, r.home, sc, 1-sc.away, l, r.terms) }()
	var verdicts []verdict
	ends := p.ends
	silent := time.After(r.terms.Watchdog + 2*r.terms.grace()) // it has had time to give up its half
	for len(verdicts) < 2 {
		select {
		case v := <-here:
			if v.ended() {
				_ = p.write(frame{Abandon: true}) // a broken stream shows in ends
			}
			verdicts = append(verdicts, v)
		case v, ok := <-ends:
			silent = nil
			if !ok {
				r.other.conn.Close()
				r.other, ends = nil, nil // of a scenario that kills it, or a crash
				if !sc.process && !sc.exits {
					v.Failures = []string{"the other process ended in the middle of the scenario"}
				}
			}
			if v.ended() {
				cancel(errAbandoned)
			}
			verdicts = append(verdicts, v)
		case <-silent:
			ends, silent = nil, nil
			cancel(errAbandoned)
			verdicts = append(verdicts, verdict{Stuck: true, Failures: []string{"the other process does not tell how its half ended"}})
		}
	}
	return verdicts, nil
}
