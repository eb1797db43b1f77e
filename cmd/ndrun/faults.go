package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/faults"
	"github.com/softnd/softnd/internal/faultplan"
	"github.com/softnd/softnd/internal/faultplan/faultfile"
	"github.com/softnd/softnd/launcher"
	"github.com/softnd/softnd/shm"
)

// faultOptions are the options about the fault plan.
type faultOptions struct {
	file string
	seed *uint64 // nil = that of the file
}

func setFaults(c *command, s string) error {
	if s == "" {
		return errors.New("want a file")
	}
	c.faults.file = s
	return nil
}

func setFaultsSeed(c *command, s string) error {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return errors.New("want a number from 0 to 18446744073709551615")
	}
	c.faults.seed = &n
	return nil
}

// injectedFaults is the fault plan of a job; nil = it has none.
type injectedFaults struct {
	file *faultfile.File
	name string // of the file, in messages
	seed uint64
	plan *faults.Plan
}

// load reads the plan for a job with a number of ranks.
func (o *faultOptions) load(ranks int) (*injectedFaults, error) {
	if o.file == "" {
		if o.seed != nil {
			return nil, errors.New("option --faults-seed: there is no fault plan: add --faults FILE")
		}
		return nil, nil
	}
	text, err := os.ReadFile(o.file)
	if err != nil {
		return nil, fmt.Errorf("option --faults: read plan: %w", err)
	}
	f := &injectedFaults{name: filepath.Base(o.file), seed: rand.Uint64()}
	if f.file, err = faultfile.Parse(o.file, text); err != nil {
		return nil, fmt.Errorf("option --faults: %w", err)
	}
	if f.file.Seed != nil {
		f.seed = *f.file.Seed
	}
	if o.seed != nil {
		f.seed = *o.seed
	}
	if f.plan, err = f.file.Plan(f.seed, ranks); err != nil {
		return nil, fmt.Errorf("option --faults: %w", err)
	}
	return f, nil
}

// count returns the number of rules.
func (f *injectedFaults) count() int {
	if f == nil {
		return 0
	}
	return len(f.file.Rules)
}

// store writes the rules into the arena, in which the ranks count.
func (f *injectedFaults) store(arena *shm.Arena) error {
	if f == nil {
		return nil
	}
	records, err := shm.Slice[faultplan.Record](arena, arena.Info().FaultRules, uint64(f.count()))
	if err == nil {
		(*faultplan.Plan)(f.plan).Store(records)
	}
	return err
}

// env returns the variable by which ranks check the rules in the arena.
func (f *injectedFaults) env() []string {
	if f == nil {
		return nil
	}
	return []string{softnd.EnvFaults + "=" + faultplan.Digest((*faultplan.Plan)(f.plan).Rules())}
}

// jsonFaults is the part of the report about the fault plan; see launcher/report.schema.json.
type jsonFaults struct {
	Seed  string      `json:"seed"` // a number of 64 bits, which JSON readers may round
	Rules []jsonFault `json:"rules"`
}

type jsonFault struct {
	Name    string `json:"name,omitempty"`
	Line    int    `json:"line"`
	Matched uint64 `json:"matched"`
	Fired   uint64 `json:"fired"`
}

// report adds the outcome of the rules to the report of the job, which may be nil. It returns an error if a rule
// never acted.
func (f *injectedFaults) report(report *launcher.Report) error {
	if f == nil {
		return nil
	}
	var errs []error
	outcome := &jsonFaults{Seed: strconv.FormatUint(f.seed, 10)}
	for i, o := range f.plan.Outcomes() {
		outcome.Rules = append(outcome.Rules, jsonFault{Name: f.file.Rules[i].Name, Line: f.file.Line(i), Matched: o.Matched, Fired: o.Fired})
		if o.Fired == 0 {
			errs = append(errs, fmt.Errorf("%s never acted: %s matched it: change what it describes, or remove it", f.describe(i), operations(o.Matched)))
		}
	}
	if report != nil {
		report.Faults = outcome
	}
	return errors.Join(errs...)
}

// lines returns a line about each rule that has acted.
func (f *injectedFaults) lines() (lines []string) {
	if f == nil {
		return nil
	}
	for i, o := range f.plan.Outcomes() {
		if o.Fired > 0 {
			lines = append(lines, fmt.Sprintf("%s acted %s: %s matched it", f.describe(i), times(o.Fired), operations(o.Matched)))
		}
	}
	return lines
}

// isRandom reports whether the seed matters.
func (f *injectedFaults) isRandom() bool {
	return f != nil && slices.ContainsFunc(f.file.Rules, func(r faults.Rule) bool { return r.Probability > 0 })
}

// describe names a rule.
func (f *injectedFaults) describe(i int) string {
	s := fmt.Sprintf("fault rule %d (%s:%d", i+1, f.name, f.file.Line(i))
	if name := f.file.Rules[i].Name; name != "" {
		s += ", " + name
	}
	return s + ")"
}

func operations(n uint64) string {
	if n == 1 {
		return "1 operation"
	}
	return fmt.Sprintf("%d operations", n)
}

func times(n uint64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
