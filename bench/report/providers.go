package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// own is the provider in the first column. Those whose names continue it, softnd with ranks in other languages, follow.
const own = "softnd"

// WriteProviders writes a table with the providers side by side. It has a row for each test, size and number of ranks. Each
// provider has its figure, the 95 % confidence interval of the figure, and the ratio to the limit of the machine. If a
// provider has several figures for a row, the best one counts.
func (r *Report) WriteProviders(w io.Writer) error {
	if _, err := io.WriteString(w, r.heading()+"\n"); err != nil {
		return err
	}
	providers := r.providers()
	g := new(grid)
	head := []string{"<test", "size"}
	for _, p := range providers {
		head = append(head, p, "<", "95 %", "of limit")
	}
	g.add(append(head, "<better")...)
	for _, row := range r.rows() {
		g.add(row.cells(providers)...)
	}
	if err := g.write(w, ""); err != nil {
		return err
	}
	_, err := io.WriteString(w, "* the best of its row, by more than the intervals\n")
	return err
}

func (r *Report) providers() []string {
	var names []string
	for _, one := range r.Results {
		if !slices.Contains(names, one.Provider) {
			names = append(names, one.Provider)
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return first(a) - first(b) })
	return names
}

func first(provider string) int {
	switch {
	case provider == own:
		return 0
	case strings.HasPrefix(provider, own+"-"):
		return 1
	}
	return 2
}

// Best returns the report with only the best figure of each provider for each test, size and number of ranks.
func (r *Report) Best() *Report {
	best := *r
	best.Results = nil
	for _, row := range r.rows() {
		for _, p := range r.providers() {
			if one := row[p]; one != nil {
				best.Results = append(best.Results, *one)
			}
		}
	}
	return &best
}

// providerRow contains the best result of each provider for one test, size and number of ranks, by provider.
type providerRow map[string]*Result

// rows returns the rows in the order of the tests, and for each test in the order of the results.
func (r *Report) rows() []providerRow {
	type key struct {
		test        string
		size, ranks int
	}
	var rows []providerRow
	at := map[key]int{}
	for _, test := range r.byTest() {
		for i := range test {
			one := &test[i]
			k := key{one.Test, one.Size, one.Ranks}
			n, seen := at[k]
			if !seen {
				n = len(rows)
				at[k] = n
				rows = append(rows, providerRow{})
			}
			if old := rows[n][one.Provider]; old == nil || one.betterThan(old) {
				rows[n][one.Provider] = one
			}
		}
	}
	return rows
}

func (r *Result) betterThan(other *Result) bool {
	return (r.Better == "more") == (r.Value > other.Value) && r.Value != other.Value
}

func (c providerRow) cells(providers []string) []string {
	best := c.best()
	all := []string{best.Test, extent(best)}
	for _, p := range providers {
		one := c[p]
		if one == nil {
			all = append(all, "–", "", "", "")
			continue
		}
		ratio, mark := "", ""
		if one.Limit != nil {
			ratio = digits(one.Limit.Ratio) + " ×"
		}
		if one == best && c.leads(best) {
			mark = "*"
		}
		all = append(all, Figure(one.Value, one.Unit), mark, Range(one.Low, one.High, one.Unit), ratio)
	}
	return append(all, best.Better)
}

func (c providerRow) best() (best *Result) {
	for _, one := range c {
		if best == nil || one.betterThan(best) || one.Value == best.Value && first(one.Provider) < first(best.Provider) {
			best = one
		}
	}
	return best
}

// leads reports whether the interval of the best is beyond those of all others. Fewer than three repeats have no
// interval.
func (c providerRow) leads(best *Result) bool {
	for _, one := range c {
		apart := best.High < one.Low
		if best.Better == "more" {
			apart = best.Low > one.High
		}
		if one != best && !apart || len(one.Repeats) < minRepeats {
			return false
		}
	}
	return len(c) > 1
}

// extent returns the size of a result, or the number of its ranks if it has no size.
func extent(r *Result) string {
	if r.Size > 0 {
		return Figure(float64(r.Size), "B")
	}
	return fmt.Sprintf("%d ranks", r.Ranks)
}
