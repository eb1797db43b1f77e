package report

import "fmt"

// Outcomes of a comparison.
const (
	unchanged = "same"    // no change that the noise could not have made
	improved  = "better"  // changed beyond the noise
	worsened  = "worse"   // changed beyond the noise
	unclear   = "unclear" // too few repeats to know the noise
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
	old, new         Machine
	changes          []delta // in the order of the new report
	onlyOld, onlyNew []Result
}

// delta compares one result of both reports.
type delta struct {
	old, new Result

	compared      string  // "value", or "ratio" to the limit
	before, after float64 // medians of the compared values
	relative      float64 // change of the median: 0.05 is 5 % more; infinite from 0
	chance        float64 // of such a difference by noise alone, corrected; 1 if unclear
	outcome       string  // unchanged, improved, worsened or unclear
}

// Compare matches results by test, provider and settings. Iterations are no part
// of that, since a run chooses them by the time they take. If a report has
// several of a kind, the first is matched with the first.
func Compare(old, new *Report) (*Comparison, error) {
	c := &Comparison{old: old.Machine, new: new.Machine}
	before := index(old)
	for _, b := range new.Results {
		k := keyOf(b)
		if len(before[k]) == 0 {
			c.onlyNew = append(c.onlyNew, b)
			continue
		}
		a := before[k][0]
		before[k] = before[k][1:]
		if a.Better != b.Better {
			return nil, fmt.Errorf("report: compare %s of %s: the old report says that %s is better, the new one %s", b.Test, b.Provider, a.Better, b.Better)
		}
		c.changes = append(c.changes, change(a, b))
	}
	for _, a := range old.Results {
		if k := keyOf(a); len(before[k]) > 0 {
			c.onlyOld = append(c.onlyOld, before[k][0])
			before[k] = before[k][1:]
		}
	}
	if len(c.changes) == 0 {
		return nil, fmt.Errorf("report: compare: no result in common: %s", nothingInCommon(old.Results, new.Results))
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

func change(old, new Result) delta {
	c := delta{old: old, new: new, compared: "value", outcome: unclear, chance: 1}
	a, b := old.Repeats, new.Repeats
	if old.Limit != nil && new.Limit != nil && old.Limit.Name == new.Limit.Name &&
		len(old.Limit.Ratios) > 0 && len(new.Limit.Ratios) > 0 {
		c.compared = "ratio"
		a, b = old.Limit.Ratios, new.Limit.Ratios
	}
	c.before, c.after = Median(a), Median(b)
	if c.after != c.before {
		c.relative = (c.after - c.before) / c.before
	}
	if len(a) >= fewestKnown && len(b) >= fewestKnown {
		c.outcome, c.chance = unchanged, welch(a, b)
	}
	return c
}

// decide corrects the chances and sets the outcomes.
func (c *Comparison) decide() {
	var known []*delta
	for i := range c.changes {
		if c.changes[i].outcome != unclear {
			known = append(known, &c.changes[i])
		}
	}
	holm(known)
	for _, k := range known {
		switch {
		case k.chance >= chance || max(k.relative, -k.relative) <= threshold:
		case (k.relative < 0) == (k.new.Better == "less"):
			k.outcome = improved
		default:
			k.outcome = worsened
		}
	}
}

// Changed reports whether anything has become better or worse beyond the noise.
func (c *Comparison) Changed() bool { return c.count(improved)+c.count(worsened) > 0 }

// worsened reports whether anything has become worse beyond the noise.
func (c *Comparison) worsened() bool { return c.count(worsened) > 0 }

func (c *Comparison) count(outcome string) int {
	n := 0
	for _, one := range c.changes {
		if one.outcome == outcome {
			n++
		}
	}
	return n
}
