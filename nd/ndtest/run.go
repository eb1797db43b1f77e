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

// Outcome is the outcome of a scenario.
type Outcome string

const (
	Passed  Outcome = "passed"
	Failed  Outcome = "failed"
	Skipped Outcome = "skipped" // the adapter lacks an optional feature, or the scenario kills a process and Config.Spawn is nil
	NoTest  Outcome = "no test" // the row is in Untestable
	NotRun  Outcome = "not run" // Config.Only or the command line excludes the scenario
)

// Report has the outcomes of a run. The keys of its maps are the numbers of the scenarios.
type Report struct {
	Outcomes map[string]Outcome // of each scenario, rows without a test included
	Reasons  map[string]string  // why a scenario was skipped, or a row has no test
}

// Count returns the number of scenarios with outcome o.
func (r *Report) Count(o Outcome) (n int) {
	for _, got := range r.Outcomes {
		if got == o {
			n++
		}
	}
	return n
}

// providers keeps the providers of a process open between scenarios.
type providers struct {
	open   func() (nd.Provider, error)
	byRole [2]nd.Provider // one for each side that runs in this process
	stuck  *atomic.Bool   // a side did not return and may still use providers of the process
	timed  *providers     // for scenarios that wait for a time-out; nil: these
}

func newProviders(cfg Config) *providers {
	h := &providers{open: cfg.Open, stuck: new(atomic.Bool)}
	if cfg.OpenTimed != nil {
		h.timed = &providers{open: cfg.OpenTimed, stuck: h.stuck}
	}
	return h
}

// forScenario returns the providers that serve sc.
func (h *providers) forScenario(sc scenario) *providers {
	if sc.timed && h.timed != nil {
		return h.timed
	}
	return h
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
		return // Close might not return
	}
	if h.timed != nil {
		h.timed.close()
	}
	for _, p := range h.byRole {
		if p != nil {
			p.Close()
		}
	}
}

// Run checks the provider with every scenario of [Scenarios], and returns the outcomes. Each scenario
// is a subtest of t, named by its number. Run logs the rows that are skipped, [Untestable] or
// [Adapted].
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
			t.Logf("run: stopped before %s, because a side of the previous scenario did not return", sc.id)
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
	for _, f := range r.failed {
		t.Logf("failed: %s", f) // again: the output of a long run may be shortened
	}
	for i := range RowCount {
		if id := RowID(i + 1); report.Outcomes[id] == NoTest || report.Outcomes[id] == Skipped {
			t.Logf("%s %s: %s", id, report.Outcomes[id], report.Reasons[id])
		}
	}
	t.Logf("%d rows check a property in Go that replaces the one of the table:", len(Adapted))
	for i := range RowCount {
		if what, ok := Adapted[RowID(i+1)]; ok {
			t.Logf("%s %s: %s", RowID(i+1), report.Outcomes[RowID(i+1)], what)
		}
	}
	return report
}

// runner runs scenarios, one at a time.
type runner struct {
	cfg          Config
	settings     settings
	providers    *providers
	otherProcess *otherProcess // nil until the first scenario with two sides
	stuck        bool          // a side did not return: no further scenario can run
	failed       []string      // number and text of each failure
}

func newRunner(t *testing.T, cfg Config) *runner {
	r := &runner{cfg: cfg, settings: cfg.settings(), providers: newProviders(cfg)}
	t.Cleanup(r.providers.close)
	t.Cleanup(r.stopProcess)
	return r
}

// otherProcess is the process that Config.Spawn started.
type otherProcess struct {
	*frameStream
	mu      sync.Mutex
	link    *link
	results chan sideResult // of the side that runs there; closed when the stream ends
}

func (r *runner) process() (*otherProcess, error) {
	if r.otherProcess == nil {
		conn, err := r.cfg.Spawn()
		if err != nil {
			return nil, fmt.Errorf("Config.Spawn: start the other process: %w", err)
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

// stopProcess closes the stream, which ends the other process.
func (r *runner) stopProcess() {
	if r.otherProcess != nil {
		r.otherProcess.conn.Close()
		for range r.otherProcess.results {
		}
		r.otherProcess = nil
	}
}

// run runs one scenario and reports its failures to t. It returns why the scenario was skipped, or "".
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
				r.failed = append(r.failed, sc.id+": "+f)
			}
		}
	}
	return skipped
}

// runLocal runs both sides in this process.
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

// endsPeer reports whether the other side must be canceled, because this one will not answer it.
func (v *sideResult) endsPeer() bool { return len(v.Failures) > 0 || v.Skipped != "" }

// runInTwoProcesses runs one side here and the other side in the other process.
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
		return nil, fmt.Errorf("start scenario %s in the other process: %w", sc.id, err)
	}
	here := make(chan sideResult, 1)
	go func() { here <- supervise(ctx, r.providers, sc, 1-sc.remote, l, r.settings) }()
	var results []sideResult
	ends := p.results
	silent := time.After(r.settings.Watchdog + 2*r.settings.grace()) // the other process reports a side that hangs before this
	for len(results) < 2 {
		select {
		case v := <-here:
			if v.endsPeer() {
				_ = p.write(frame{Abandon: true}) // a broken stream closes results
			}
			results = append(results, v)
		case v, ok := <-ends:
			silent = nil
			if !ok {
				r.otherProcess.conn.Close()
				r.otherProcess, ends = nil, nil // the scenario killed it, or it crashed
				if !sc.needsProcess && !sc.exits {
					v.Failures = []string{"other process: it exited before the scenario ended"}
				}
			}
			if v.endsPeer() {
				cancel(errAbandoned)
			}
			results = append(results, v)
		case <-silent:
			ends, silent = nil, nil
			cancel(errAbandoned)
			results = append(results, sideResult{Stuck: true, Failures: []string{"other process: it has not reported the result of its side"}})
		}
	}
	return results, nil
}
