package plot

import (
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/softnd/softnd/bench/internal/median"
	"github.com/softnd/softnd/bench/report"
)

// panel contains the results of one test in one unit.
type panel struct {
	test, unit string
	common     []string // settings that all lines share
	lines      []line
}

// line contains the figures of one provider with the same settings, by size.
type line struct {
	label    string
	limit    bool // a limit of the machine instead of a provider
	provider string
	settings []string
	report   int // its index
	points   map[int]*point
}

// point contains the figures of one size, and the interval that contains all of theirs.
type point struct {
	values    []float64
	low, high float64
}

func panelsOf(reports []*report.Report) []panel {
	var all []panel
	for n, r := range reports {
		for _, one := range r.Results {
			if _, drawn := kinds[one.Unit]; drawn && one.Size > 0 && one.Value > 0 {
				all = add(all, n, one)
			}
		}
	}
	all = slices.DeleteFunc(all, func(p panel) bool { return len(p.sizes()) < 2 })
	for i := range all {
		all[i].name(reports)
	}
	return all
}

func add(all []panel, report int, r report.Result) []panel {
	i := slices.IndexFunc(all, func(p panel) bool { return p.test == r.Test && p.unit == r.Unit })
	if i < 0 {
		i = len(all)
		all = append(all, panel{test: r.Test, unit: r.Unit})
	}
	var words []string
	if w := r.Words(); w != "" {
		words = strings.Split(w, ", ")
	}
	all[i].point(line{provider: r.Provider, settings: words, report: report}, r.Size, r.Value, r.Low, r.High)
	if l := r.Limit; l != nil && l.Unit == r.Unit && l.Value > 0 {
		all[i].point(line{provider: l.Name, limit: true, report: report}, r.Size, l.Value, l.Value, l.Value)
	}
	return all
}

// point adds a figure to the line that is like this one.
func (p *panel) point(like line, size int, value, low, high float64) {
	i := slices.IndexFunc(p.lines, func(l line) bool {
		return l.provider == like.provider && l.limit == like.limit && l.report == like.report &&
			slices.Equal(l.settings, like.settings)
	})
	if i < 0 {
		i = len(p.lines)
		like.points = map[int]*point{}
		p.lines = append(p.lines, like)
	}
	if low <= 0 || high < value { // the report contains no interval
		low, high = value, value
	}
	at := p.lines[i].points[size]
	if at == nil {
		at = &point{low: low, high: high}
		p.lines[i].points[size] = at
	}
	at.values, at.low, at.high = append(at.values, value), min(at.low, low), max(at.high, high)
}

// name labels the lines by their differences, and moves the limits to the end.
func (p *panel) name(reports []*report.Report) {
	slices.SortStableFunc(p.lines, func(a, b line) int { return rank(a) - rank(b) })
	p.common = p.shared()
	seen := map[string]int{}
	for i := range p.lines {
		l := &p.lines[i]
		words := []string{l.provider}
		if l.limit {
			words = []string{"limit: " + l.provider}
		}
		for _, s := range l.settings {
			if !slices.Contains(p.common, s) {
				words = append(words, s)
			}
		}
		l.label = strings.Join(words, ", ")
		seen[l.label]++
	}
	for i := range p.lines {
		if l := &p.lines[i]; seen[l.label] > 1 {
			l.label += " (" + nameOf(reports, l.report) + ")"
		}
	}
}

// nameOf returns the name of a report: that of its file, without what all have in common, or its number.
func nameOf(reports []*report.Report, i int) string {
	short := func(r *report.Report) string { return strings.TrimSuffix(filepath.Base(r.Name), ".json") }
	name := reports[i].Name
	if name == "" {
		return strconv.Itoa(i + 1)
	}
	for other, r := range reports {
		if other != i && short(r) == short(reports[i]) {
			return name
		}
	}
	return short(reports[i])
}

// rank sorts softnd first and the limits last.
func rank(l line) int {
	switch {
	case l.limit:
		return 2
	case l.provider == "softnd":
		return 0
	}
	return 1
}

// shared returns the settings that all lines share, in the order of the first line.
func (p *panel) shared() []string {
	common := slices.Clone(p.lines[0].settings)
	for _, l := range p.lines {
		if !l.limit {
			common = slices.DeleteFunc(common, func(s string) bool { return !slices.Contains(l.settings, s) })
		}
	}
	return common
}

// title returns the name of the test, and the settings that all of its lines share.
func (p *panel) title() string {
	return strings.Join(append([]string{p.test}, p.common...), ", ")
}

func (p *panel) sizes() []int {
	all := map[int]bool{}
	for _, l := range p.lines {
		for size := range l.points {
			all[size] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// top returns the largest figure of a panel. A limit far above the providers would flatten their lines, so it may leave
// the panel.
func (p *panel) top(k kind) float64 {
	const farthest = 2 // times the best of the providers
	var best, limit float64
	for i := range p.lines {
		high := p.lines[i].curve(k).top()
		if p.lines[i].limit {
			limit = max(limit, high)
		} else {
			best = max(best, high)
		}
	}
	return max(best, min(limit, farthest*best))
}

// curve returns the points of the line. x is the logarithm of the size to base 2.
func (l *line) curve(k kind) (c curve) {
	for _, size := range slices.Sorted(maps.Keys(l.points)) {
		at := l.points[size]
		c.x = append(c.x, math.Log2(float64(size)))
		c.y = append(c.y, k.scale(median.Of(at.values)))
		c.low, c.high = append(c.low, k.scale(at.low)), append(c.high, k.scale(at.high))
	}
	return c
}
