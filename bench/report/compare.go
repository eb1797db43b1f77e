package report

import "fmt"

// Outcomes of a comparison.
const (
	Same    = "same"    // no change that the noise could not have made
	Better  = "better"  // changed beyond the noise
	Worse   = "worse"   // changed beyond the noise
	Unclear = "unclear" // too few repeats to know the noise
)

// Parameters of the test for a change.
const (
	chance      = 0.05 // that anything at all is called a change when nothing has
	threshold   = 0.02 // of the median; smaller changes differ from run to run by themselves
	fewestKnown = 3    // repeats, to know the noise
)

// Comparison is what has changed between two reports.
//
// A result has changed if two things hold. The means of its repeats differ by
// Welch's t-test, and the medians differ by more than 2 %.
//
// The chances of the tests are corrected by Holm's method. The chance of a false
// change is then 5 % for the comparison as a whole, and not for each result. Of a hundred results, five would otherwise be wrong each
// time. A test by ranks, which would assume less, cannot be corrected so: with
// five repeats its least chance is 0.8 %, far too much for a hundred results.
//
// The repeats of one run know nothing of what differs from run to run, such as
// what else the machine had to do. Hence the threshold, and hence the ratios to
// the limit are compared where both reports have them, and not the values.
type Comparison struct {
	Old, New         Machine
	Changes          []Change // in the order of the new report
	OnlyOld, OnlyNew []Result
}

// Change is what has become of one result.
type Change struct {
	Old, New Result

	Compared      string  // "value", or "ratio" to the limit
	Before, After float64 // medians of the compared values
	Relative      float64 // change of the median: 0.05 is 5 % more; infinite from 0
	Chance        float64 // of such a difference by noise alone, corrected; 1 if unclear
	Outcome       string  // Same, Better, Worse or Unclear
}

// Compare matches results by test, provider and settings. Iterations are no part
// of that, since a run chooses them by the time they take. If a report has
// several of a kind, the first is matched with the first.
func Compare(old, new *Report) (*Comparison, error) {
	c := &Comparison{Old: old.Machine, New: new.Machine}
	before := index(old)
	for _, b := range new.Results {
		k := keyOf(b)
		if len(before[k]) == 0 {
			c.OnlyNew = append(c.OnlyNew, b)
			continue
		}
		a := before[k][0]
		before[k] = before[k][1:]
		if a.Better != b.Better {
			return nil, fmt.Errorf("report: %s of %s: %s was better, and now %s is", b.Test, b.Provider, a.Better, b.Better)
		}
		c.Changes = append(c.Changes, change(a, b))
	}
	for _, a := range old.Results {
		if k := keyOf(a); len(before[k]) > 0 {
			c.OnlyOld = append(c.OnlyOld, before[k][0])
			before[k] = before[k][1:]
		}
	}
	if len(c.Changes) == 0 {
		return nil, fmt.Errorf("report: nothing can be compared: %s", nothingInCommon(old.Results, new.Results))
	}
	c.decide()
	return c, nil
}

type key struct {
	test, provider, unit string
	settings             Settings
}

func keyOf(r Result) key {
	k := key{r.Test, r.Provider, r.Unit, r.Settings}
	k.settings.Iterations = 0
	return k
}

func index(r *Report) map[key][]Result {
	all := map[key][]Result{}
	for _, one := range r.Results {
		k := keyOf(one)
		all[k] = append(all[k], one)
	}
	return all
}

func change(old, new Result) Change {
	c := Change{Old: old, New: new, Compared: "value", Outcome: Unclear, Chance: 1}
	a, b := old.Repeats, new.Repeats
	if old.Limit != nil && new.Limit != nil && old.Limit.Name == new.Limit.Name &&
		len(old.Limit.Ratios) > 0 && len(new.Limit.Ratios) > 0 {
		c.Compared = "ratio"
		a, b = old.Limit.Ratios, new.Limit.Ratios
	}
	c.Before, c.After = Median(a), Median(b)
	if c.After != c.Before {
		c.Relative = (c.After - c.Before) / c.Before
	}
	if len(a) >= fewestKnown && len(b) >= fewestKnown {
		c.Outcome, c.Chance = Same, welch(a, b)
	}
	return c
}

// decide corrects the chances and sets the outcomes.
func (c *Comparison) decide() {
	var known []*Change
	for i := range c.Changes {
		if c.Changes[i].Outcome != Unclear {
			known = append(known, &c.Changes[i])
		}
	}
	holm(known)
	for _, k := range known {
		switch {
		case k.Chance >= chance || max(k.Relative, -k.Relative) <= threshold:
		case (k.Relative < 0) == (k.New.Better == "less"):
			k.Outcome = Better
		default:
			k.Outcome = Worse
		}
	}
}

// Changed reports whether anything has become better or worse beyond the noise.
func (c *Comparison) Changed() bool { return c.count(Better)+c.count(Worse) > 0 }

// Worse reports whether anything has become worse beyond the noise.
func (c *Comparison) Worse() bool { return c.count(Worse) > 0 }

func (c *Comparison) count(outcome string) int {
	n := 0
	for _, one := range c.Changes {
		if one.Outcome == outcome {
			n++
		}
	}
	return n
}
