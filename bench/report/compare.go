package report

import (
	"fmt"
	"io"

	"github.com/softnd/softnd/bench/internal/median"
)

// Outcomes of a comparison.
const (
	unchanged = "same"    // no change beyond the noise
	improved  = "better"  // changed beyond the noise
	worsened  = "worse"   // changed beyond the noise
	unclear   = "unclear" // too few repeats to know the noise
)

// Parameters of the test for a change.
const (
	chance     = 0.05 // of reporting any change if nothing has changed
	threshold  = 0.02 // of the median; runs differ by smaller changes anyway
	minRepeats = 3    // repeats, to know the noise
)

// Compare writes a table of the changes between two reports, and reports whether any result has become better or worse
// beyond the noise.
//
// It matches results by test, provider, unit and settings. Iterations do not count, because a run chooses them by the time
// that they take. If a report has several results of a kind, the first is matched with the first.
//
// A result has changed if the means of its repeats differ by Welch's t-test, and the medians differ by more than 2 %.
//
// The chances of the tests are corrected by Holm's method. The chance of a false change is then 5 % for the comparison as a
// whole. Without the correction it would be 5 % for each result, and of a hundred results, five would be wrong each time. A
// test by ranks would assume less, but it cannot be corrected like this. With five repeats its least chance is 0.8 %, which
// is far too much for a hundred results.
//
// The repeats of one run do not show what differs from run to run, such as other work of the machine. This is the reason for
// the threshold. For the same reason, Compare compares the ratios to the limit instead of the values if both reports have
// them.
func Compare(w io.Writer, old, new *Report) (changed bool, err error) {
	c, err := compare(old, new)
	if err != nil {
		return false, err
	}
	return c.count(improved)+c.count(worsened) > 0, c.write(w)
}

// comparison is the changes between two reports.
type comparison struct {
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
	chance        float64 // of such a difference by noise, corrected; 1 if unclear
	outcome       string  // unchanged, improved, worsened or unclear
}

// compare matches the results of two reports, and decides which of them have changed.
func compare(old, new *Report) (*comparison, error) {
	c := &comparison{old: old.Machine, new: new.Machine}
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
	c.before, c.after = median.Of(a), median.Of(b)
	if c.after != c.before {
		c.relative = (c.after - c.before) / c.before
	}
	if len(a) >= minRepeats && len(b) >= minRepeats {
		c.outcome, c.chance = unchanged, welch(a, b)
	}
	return c
}

// decide corrects the chances and sets the outcomes.
func (c *comparison) decide() {
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

func (c *comparison) count(outcome string) int {
	n := 0
	for _, one := range c.changes {
		if one.outcome == outcome {
			n++
		}
	}
	return n
}
