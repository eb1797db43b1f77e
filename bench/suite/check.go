package suite

import (
	"fmt"
	"io"
	"slices"

	"github.com/softnd/softnd/bench/report"
)

// outcome is the result of a comparison with a bar.
type outcome string

// Outcomes, from the best to the worst.
const (
	aimMet      outcome = "aim met"
	met         outcome = "met"
	missed      outcome = "MISSED"
	suspect     outcome = "SUSPECT"      // better than the machine can be
	noisy       outcome = "TOO NOISY"    // the interval says neither met nor missed
	notMeasured outcome = "NOT MEASURED" // or too few steady repeats
)

var bySeverity = []outcome{aimMet, met, missed, suspect, noisy, notMeasured}

const (
	// minRatio is the least plausible ratio of a transfer to the cache line that it has to move: 1, apart from noise.
	minRatio = 0.9

	// maxWidth is the greatest ratio of the ends of an interval that contains the bar.
	maxWidth = 1.5
)

// checkedBar is the result of one bar.
type checkedBar struct {
	bar       *bar
	outcome   outcome
	all       *estimate // nil if not measured
	near, far *estimate // at each distance of the cores, nil if too little was measured there
	why       string
	undecided []string // the distances whose interval holds the bar, if it was checked at each
	open      bool     // more repeats may change the outcome
}

// results are the results of all bars.
type results struct {
	checked           []checkedBar
	nearLine, farLine float64 // ns; 0 if the cores were at one distance all the time
	rep               *report.Report
}

// Check compares a report with every required figure, and writes a table of the results. If there were near and far minutes,
// each has a column; so has UCX if the report has figures of it. The error says how many figures were not met.
func Check(w io.Writer, rep *report.Report) error {
	c := checkAll(rep)
	if err := c.write(w); err != nil {
		return err
	}
	return c.err()
}

func checkAll(rep *report.Report) *results {
	near, far := distances(rep)
	c := &results{rep: rep}
	if near != nil {
		c.nearLine, c.farLine = near.Line, far.Line
	}
	for i := range bars {
		c.checked = append(c.checked, bars[i].check(rep, near, far))
	}
	return c
}

// check compares the figure with the bar at each distance where the interval decides it. The worse outcome counts. If
// no distance decides it, all repeats are compared together.
func (b *bar) check(rep *report.Report, near, far *distance) checkedBar {
	all, err := b.estimate(&view{rep: rep})
	if err != nil {
		return checkedBar{bar: b, outcome: notMeasured, why: err.Error(), open: true}
	}
	v := checkedBar{bar: b, all: &all}
	if near != nil {
		v.near, v.far = b.at(rep, near), b.at(rep, far)
	}
	for _, at := range []struct {
		name string
		*estimate
	}{{"near", v.near}, {"far", v.far}} {
		if at.estimate == nil {
			continue
		}
		if !b.decides(*at.estimate) {
			v.open = true
			v.undecided = append(v.undecided, fmt.Sprintf("%s undecided: %s", at.name, b.interval(*at.estimate)))
			continue
		}
		if outcome, why := b.decide(*at.estimate); v.outcome == "" || slices.Index(bySeverity, outcome) > slices.Index(bySeverity, v.outcome) {
			v.outcome, v.why = outcome, why
		}
	}
	if v.outcome == "" {
		v.outcome, v.why = b.decide(all)
		v.open = v.open || !b.decides(all)
	}
	return v
}

func (b *bar) at(rep *report.Report, d *distance) *estimate {
	s, err := b.estimate(&view{rep, d})
	if err != nil {
		return nil
	}
	return &s
}

func (b *bar) decide(s estimate) (outcome, string) {
	switch {
	case !b.more && (b.limit == rawLineLimit || b.limit == rawRoundTripLimit) && s.value < minRatio:
		return suspect, fmt.Sprintf("it took %.2f of what the bare cache line took, so the machine changed between the two", s.value)
	case !b.decides(s) && s.high > maxWidth*s.low:
		return noisy, "the interval holds the bar: " + b.interval(s)
	case b.clears(s.value, b.aim):
		return aimMet, ""
	case b.clears(s.value, b.required):
		return met, ""
	}
	return missed, ""
}

// decides reports whether the whole interval is on one side of the bar.
func (b *bar) decides(s estimate) bool {
	return b.clears(s.low, b.required) == b.clears(s.high, b.required)
}

func (b *bar) interval(s estimate) string {
	return fmt.Sprintf("%s to %s in %d repeats", b.format(s.low), b.format(s.high), s.repeats)
}

func (b *bar) clears(v, bound float64) bool {
	if b.more {
		return v >= bound
	}
	return v <= bound
}

// err says how many bars were not met. It is nil if all were met.
func (c *results) err() error {
	missed, suspect, unknown := c.count(missed), c.count(suspect), c.count(noisy, notMeasured)
	if missed+suspect+unknown == 0 {
		return nil
	}
	return fmt.Errorf("suite: check of %d figures: %d missed, %d suspect, %d not measured precisely enough",
		len(c.checked), missed, suspect, unknown)
}

// count returns how many results have one of the outcomes.
func (c *results) count(outcomes ...outcome) (n int) {
	for _, v := range c.checked {
		if slices.Contains(outcomes, v.outcome) {
			n++
		}
	}
	return n
}

// open reports whether more repeats of a run may change an outcome.
func (c *results) open(r Run) bool {
	for _, v := range c.checked {
		if v.open && slices.ContainsFunc(v.bar.of, r.measures) {
			return true
		}
	}
	return false
}
