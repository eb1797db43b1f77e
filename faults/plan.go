package faults

import (
	"errors"
	"fmt"

	"github.com/softnd/softnd/internal/faultplan"
)

// Plan is a plan that ranks follow: see softnd.WithFaults. Ranks that share a Plan count the same rules
// together. Safe for concurrent use.
type Plan faultplan.Plan

// New compiles a plan. seed determines which operations rules with a Probability act at: a rank that
// makes the same operations in the same order meets the same faults.
//
// Errors: [RuleError].
func New(seed uint64, rules ...Rule) (*Plan, error) {
	if len(rules) == 0 {
		return nil, errors.New("a fault plan without rules: add one")
	}
	if len(rules) > faultplan.MaxRules {
		return nil, &RuleError{Rule: faultplan.MaxRules, Field: "Name", Detail: fmt.Sprintf("a plan has at most %d rules", faultplan.MaxRules)}
	}
	compiled := make([]faultplan.Rule, len(rules))
	for i := range rules {
		c, err := rules[i].compile(seed)
		if err != nil {
			err.Rule = i
			return nil, err
		}
		compiled[i] = c
	}
	return (*Plan)(faultplan.New(compiled)), nil
}

// Outcome is what a rule has done so far.
type Outcome struct {
	Matched uint64 // operations that the rule describes
	Fired   uint64 // operations at which it has acted
}

// Outcomes returns one Outcome for each rule.
func (p *Plan) Outcomes() []Outcome {
	all := make([]Outcome, len((*faultplan.Plan)(p).Rules()))
	for i := range all {
		all[i].Matched, all[i].Fired = (*faultplan.Plan)(p).Counts(i)
	}
	return all
}

// Check returns an error that names the rules that have never acted, and nil if all have. A test calls
// it at its end: such a rule tests nothing.
func (p *Plan) Check() error {
	var errs []error
	for i, o := range p.Outcomes() {
		if o.Fired == 0 {
			errs = append(errs, fmt.Errorf("fault rule %d never acted: %d operations matched it: change what it describes, or remove it", i+1, o.Matched))
		}
	}
	return errors.Join(errs...)
}
