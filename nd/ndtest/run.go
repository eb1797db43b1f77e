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
	Passed  Outcome = "passed"
	Failed  Outcome = "failed"
	Skipped Outcome = "skipped" // the provider lacks an optional feature, or the run another process
	NoTest  Outcome = "no test" // the row is in Untestable
	NotRun  Outcome = "not run" // left out by Config.Only or by the command line
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

// providers keeps the provider of a process open from one scenario to the next.
type providers struct {
	open   func() (nd.Provider, error)
	byRole [2]nd.Provider // by role: the two halves of one process have one each
	stuck  atomic.Bool    // a half was given up, and may still use them
}

func (h *providers) forRole(r role) (nd.Provider, error) {
	if h.byRole[r] == nil {
		p, err := h.open()
		if err != nil {
			return nil, fmt.Errorf("open provider: %w", err)
		}
		h.byRole[r] = p
	}
	return h.byRole[r], nil
}

func (h *providers) close() {
	if h.stuck.Load() {
		return // it might not return
	}
	for _, p := range h.byRole {
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
	for i := range RowCount {
		id := RowID(i + 1)
		report.Outcomes[id] = NotRun
		if reason, ok := Untestable[id]; ok {
			report.Outcomes[id], report.Reasons[id] = NoTest, reason
		}
	}
	for _, sc := range all() {
		if _, ok := report.Outcomes[sc.id]; !ok {
			report.Outcomes[sc.id] = NotRun
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
	t.Logf("%d rows and %d further scenarios: %d passed, %d failed, %d skipped, %d without a test, %d not run", RowCount, len(report.Outcomes)-RowCount,
		report.Count(Passed), report.Count(Failed), report.Count(Skipped), report.Count(NoTest), report.Count(NotRun))
	for i := range RowCount {
		if id := RowID(i + 1); report.Outcomes[id] == NoTest || report.Outcomes[id] == Skipped {
			t.Logf("%s %s: %s", id, report.Outcomes[id], report.Reasons[id])
		}
	}
	t.Logf("%d rows check something in place of what the table asks for:", len(Adapted))
	for i := range RowCount {
		if what, ok := Adapted[RowID(i+1)]; ok {
			t.Logf("%s %s: %s", RowID(i+1), report.Outcomes[RowID(i+1)], what)
		}
	}
	return report
}

// runner runs scenarios one after the other.
type runner struct {
	cfg          Config
	settings     settings
	providers    *providers
	otherProcess *otherProcess // nil until a scenario needs it
	stuck        bool          // a half was given up: there can be no further scenario
}

func newRunner(t *testing.T, cfg Config) *runner {
	r := &runner{cfg: cfg, settings: cfg.settings(), providers: &providers{open: cfg.Open}}
	t.Cleanup(r.providers.close)
	t.Cleanup(r.stopProcess)
	return r
}

// otherProcess is the other process of a run.
type otherProcess struct {
	*frameStream
	mu      sync.Mutex
	link    *link
	results chan sideResult // of the half there; closed when the stream ends
}

func (r *runner) process() (*otherProcess, error) {
	if r.otherProcess == nil {
		conn, err := r.cfg.Spawn()
		if err != nil {
			return nil, fmt.Errorf("start the other process: %w", err)
		}
		p := &otherProcess{frameStream: newFrameStream(conn), results: make(chan sideResult, 1)}
		go p.listen()
		r.otherProcess = p
	}
	return r.otherProcess, nil
}

func (p *otherProcess) listen() {
	defer close(p.results)
	for {
		var f frame
		if p.dec.Decode(&f) != nil {
			return
		}
		if f.Result != nil {
			p.results <- *f.Result
			continue
		}
		p.mu.Lock()
		to := p.link
		p.mu.Unlock()
		if f.Message != nil && to != nil {
			to.in <- f.Message
		}
	}
}

// stopProcess ends the other process.
func (r *runner) stopProcess() {
	if r.otherProcess != nil {
		r.otherProcess.conn.Close()
		for range r.otherProcess.results {
		}
		r.otherProcess = nil
	}
}

// run runs one scenario and reports its failures; it returns why it does not apply.
func (r *runner) run(t *testing.T, sc scenario) (skipped string) {
	t.Helper()
	if sc.needsProcess && r.cfg.Spawn == nil {
		return "needs a second process"
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	var results []sideResult
	switch {
	case sc.passive == nil:
		results = []sideResult{supervise(ctx, r.providers, sc, active, nil, r.settings)}
	case r.cfg.Spawn == nil:
		results = r.runLocal(ctx, cancel, sc)
	default:
		v, err := r.runInTwoProcesses(ctx, cancel, sc)
		if err != nil {
			t.Fatal(err)
		}
		results = v
	}
	for _, v := range results {
		if v.Skipped != "" {
			skipped = v.Skipped
		}
		for _, note := range v.Notes {
			t.Log(note)
		}
		r.stuck = r.stuck || v.Stuck
	}
	if r.stuck {
		r.stopProcess()
	}
	derived := skipped == "" && !slices.ContainsFunc(results, func(v sideResult) bool { return len(v.Failures) > 0 && !v.Derived })
	for _, v := range results {
		for _, f := range v.Failures {
			if !v.Derived || derived {
				t.Error(f)
			}
		}
	}
	return skipped
}

// runLocal runs both halves in this process.
func (r *runner) runLocal(ctx context.Context, cancel context.CancelCauseFunc, sc scenario) []sideResult {
	a, p := newLinks()
	results := make([]sideResult, 2)
	var running sync.WaitGroup
	for part, l := range map[role]*link{active: a, passive: p} {
		running.Go(func() {
			results[part] = supervise(ctx, r.providers, sc, part, l, r.settings)
			if results[part].endsPeer() {
				cancel(errAbandoned)
			}
		})
	}
	running.Wait()
	return results
}

// endsPeer tells whether the other half waits in vain.
func (v *sideResult) endsPeer() bool { return len(v.Failures) > 0 || v.Skipped != "" }

// runInTwoProcesses runs one half here and the other in the other process.
func (r *runner) runInTwoProcesses(ctx context.Context, cancel context.CancelCauseFunc, sc scenario) ([]sideResult, error) {
	p, err := r.process()
	if err != nil {
		return nil, err
	}
	l := &link{in: make(chan json.RawMessage, inFlight)}
	l.send = func(m json.RawMessage) error { return p.write(frame{Message: m}) }
	p.mu.Lock()
	p.link = l
	p.mu.Unlock()
	if err := p.write(frame{Run: sc.id, Settings: r.settings}); err != nil {
		return nil, fmt.Errorf("ask the other process: %w", err)
	}
	here := make(chan sideResult, 1)
	go func() { here <- supervise(ctx, r.providers, sc, 1-sc.remote, l, r.settings) }()
	var results []sideResult
	ends := p.results
	silent := time.After(r.settings.Watchdog + 2*r.settings.grace()) // it has had time to give up its half
	for len(results) < 2 {
		select {
		case v := <-here:
			if v.endsPeer() {
				_ = p.write(frame{Abandon: true}) // a broken stream shows in ends
			}
			results = append(results, v)
		case v, ok := <-ends:
			silent = nil
			if !ok {
				r.otherProcess.conn.Close()
				r.otherProcess, ends = nil, nil // of a scenario that kills it, or a crash
				if !sc.needsProcess && !sc.exits {
					v.Failures = []string{"the other process ended in the middle of the scenario"}
				}
			}
			if v.endsPeer() {
				cancel(errAbandoned)
			}
			results = append(results, v)
		case <-silent:
			ends, silent = nil, nil
			cancel(errAbandoned)
			results = append(results, sideResult{Stuck: true, Failures: []string{"the other process does not tell how its half ended"}})
		}
	}
	return results, nil
}
