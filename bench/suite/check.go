package suite

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"github.com/softnd/softnd/bench/report"
)

// Outcome says how a bar was met.
type Outcome string

// Outcomes. A figure that is missing is never a pass.
const (
	AimMet      Outcome = "aim met"
	Met         Outcome = "met"
	Missed      Outcome = "MISSED"
	NotMeasured Outcome = "NOT MEASURED"
)

// Verdict is what a report says about one bar.
type Verdict struct {
	Bar     *Bar
	Outcome Outcome
	Seen    float64 // 0 if not measured
	Why     string  // not measured
}

// Check compares a report with every bar.
func Check(rep *report.Report) []Verdict {
	verdicts := make([]Verdict, len(Bars))
	for i := range Bars {
		verdicts[i] = Bars[i].judge(rep)
	}
	return verdicts
}

func (b *Bar) judge(rep *report.Report) Verdict {
	seen, err := b.seen(rep)
	if err != nil {
		return Verdict{Bar: b, Outcome: NotMeasured, Why: err.Error()}
	}
	outcome := Missed
	switch {
	case b.clears(seen, b.Aim):
		outcome = AimMet
	case b.clears(seen, b.Required):
		outcome = Met
	}
	return Verdict{Bar: b, Outcome: outcome, Seen: seen}
}

func (b *Bar) clears(seen, bar float64) bool {
	if b.More {
		return seen >= bar
	}
	return seen <= bar
}

// Count returns how many verdicts have an outcome.
func Count(verdicts []Verdict, o Outcome) (n int) {
	for _, v := range verdicts {
		if v.Outcome == o {
			n++
		}
	}
	return n
}

// Write prints the verdicts as a table.
func Write(w io.Writer, verdicts []Verdict) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "measure\tseen\trequired\taim\t")
	for _, v := range verdicts {
		seen := "-"
		if v.Outcome != NotMeasured {
			seen = v.Bar.format(v.Seen)
		}
		outcome := string(v.Outcome)
		if v.Why != "" {
			outcome += ": " + v.Why
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", v.Bar.Name, seen, v.Bar.limit(v.Bar.Required), v.Bar.limit(v.Bar.Aim), outcome)
	}
	return table.Flush()
}

func (b *Bar) limit(v float64) string {
	if b.More {
		return "≥ " + b.format(v)
	}
	return "≤ " + b.format(v)
}

// format shows three figures, which is more than a measurement is good for.
func (b *Bar) format(v float64) string {
	s := strconv.FormatFloat(v, 'g', 3, 64)
	if v >= 100 {
		s = strconv.FormatFloat(v, 'f', 0, 64)
	}
	if b.Unit != "" {
		s += " " + b.Unit
	}
	return s
}
