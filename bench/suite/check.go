package suite

import (
	"fmt"
	"slices"

	"github.com/softnd/softnd/bench/measure"
	"github.com/softnd/softnd/bench/report"
)

// Outcome says how a bar was met.
type Outcome string

// Outcomes, from the best to the worst.
const (
	AimMet      Outcome = "aim met"
	Met         Outcome = "met"
	Missed      Outcome = "MISSED"
	Suspect     Outcome = "SUSPECT"      // better than the machine can be
	Noisy       Outcome = "TOO NOISY"    // the interval says neither met nor missed
	NotMeasured Outcome = "NOT MEASURED" // or too few steady repeats
)

var worse = []Outcome{AimMet, Met, Missed, Suspect, Noisy, NotMeasured}

// Passes reports whether the outcome is one of a bar that was met.
func (o Outcome) Passes() bool { return o == AimMet || o == Met }

const (
	// leastRatio is how little a transfer can take of the time of the cache line
	// that it has to move: 1, but for the noise.
	leastRatio = 0.9

	// widest is how wide an interval may be in which the bar lies, the greater end
	// divided by the less.
	widest = 1.5
)

// Verdict is what a report says about one bar.
type Verdict struct {
	Bar       *Bar
	Outcome   Outcome
	All       *Seen // nil if not measured
	Near, Far *Seen // at each distance of the cores, nil if too little was measured there
	Why       string
	open      bool // more repeats may change the outcome
}

// Card is what a report says about all bars.
type Card struct {
	Verdicts          []Verdict
	NearLine, FarLine float64 // ns; 0 if the cores were at one distance all the time
	rep               *report.Report
}

// Check compares a report with every bar.
func Check(rep *report.Report) *Card {
	near, far := distances(rep)
	c := &Card{rep: rep}
	if near != nil {
		c.NearLine, c.FarLine = near.Line, far.Line
	}
	for i := range Bars {
		c.Verdicts = append(c.Verdicts, Bars[i].check(rep, near, far))
	}
	return c
}

// check judges a bar at each distance that has enough repeats for it, and else
// all repeats together. The worse outcome counts.
func (b *Bar) check(rep *report.Report, near, far *distance) Verdict {
	all, err := b.seen(&view{rep: rep})
	if err != nil {
		return Verdict{Bar: b, Outcome: NotMeasured, Why: err.Error(), open: true}
	}
	v := Verdict{Bar: b, All: &all}
	if near != nil {
		v.Near, v.Far = b.at(rep, near), b.at(rep, far)
	}
	judged := []*Seen{v.Near, v.Far}
	if v.Near == nil && v.Far == nil {
		judged = []*Seen{v.All}
	}
	for _, s := range judged {
		if s == nil {
			continue
		}
		outcome, why := b.judge(*s)
		if v.Outcome == "" || slices.Index(worse, outcome) > slices.Index(worse, v.Outcome) {
			v.Outcome, v.Why = outcome, why
		}
		v.open = v.open || b.clears(s.Low, b.Required) != b.clears(s.High, b.Required)
	}
	return v
}

func (b *Bar) at(rep *report.Report, d *distance) *Seen {
	s, err := b.seen(&view{rep, d})
	if err != nil {
		return nil
	}
	return &s
}

func (b *Bar) judge(s Seen) (Outcome, string) {
	decided := b.clears(s.Low, b.Required) == b.clears(s.High, b.Required)
	switch {
	case !b.More && (b.limit == measure.RawLine || b.limit == measure.RawRoundTrip) && s.Value < leastRatio:
		return Suspect, fmt.Sprintf("it took %.2f of what the bare cache line took, so the machine changed between the two", s.Value)
	case !decided && s.High > widest*s.Low:
		return Noisy, fmt.Sprintf("the interval from %s to %s of %d repeats holds the bar", b.format(s.Low), b.format(s.High), s.Repeats)
	case b.clears(s.Value, b.Aim):
		return AimMet, ""
	case b.clears(s.Value, b.Required):
		return Met, ""
	}
	return Missed, ""
}

func (b *Bar) clears(seen, bar float64) bool {
	if b.More {
		return seen >= bar
	}
	return seen <= bar
}

// Err says how many bars were not met, nil if all were.
func (c *Card) Err() error {
	missed, suspect, unknown := c.Count(Missed), c.Count(Suspect), c.Count(Noisy, NotMeasured)
	if missed+suspect+unknown == 0 {
		return nil
	}
	return fmt.Errorf("suite: of %d required figures %d are missed, %d are suspect, and %d could not be measured well enough",
		len(c.Verdicts), missed, suspect, unknown)
}

// Count returns how many verdicts have one of the outcomes.
func (c *Card) Count(outcomes ...Outcome) (n int) {
	for _, v := range c.Verdicts {
		if slices.Contains(outcomes, v.Outcome) {
			n++
		}
	}
	return n
}

// Open reports whether more repeats of a run may change the outcome of a bar.
func (c *Card) Open(r Run) bool {
	for _, v := range c.Verdicts {
		if v.open && slices.ContainsFunc(v.Bar.of, r.measures) {
			return true
		}
	}
	return false
}
