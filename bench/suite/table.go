package suite

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/softnd/softnd/bench/report"
)

// UCX is the peer that the table shows beside softnd.
const UCX = "ucx"

// write writes the results as a table.
func (c *results) write(w io.Writer) error {
	if c.nearLine > 0 {
		if _, err := fmt.Fprintf(w, "The distance of the cores changed: near, where a cache line takes %s, and far, where it takes %s.\n\n",
			report.Figure(c.nearLine, "ns"), report.Figure(c.farLine, "ns")); err != nil {
			return err
		}
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range c.rows() {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	n, of := shared(c.rep)
	if n == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "\nIn %d of %d repeats, another program, perhaps of another machine on this host, used the other thread of a core. These repeats do not count.\n", n, of)
	return err
}

func (c *results) rows() [][]string {
	ucx := c.ucx()
	head := []string{"measure", "seen", "95 % from", "to"}
	if c.nearLine > 0 {
		head = append(head, "near", "far")
	}
	if len(ucx) > 0 {
		head = append(head, "UCX")
	}
	rows := [][]string{append(head, "required", "aim", "")}
	for _, v := range c.checked {
		b := v.bar
		row := []string{b.name, "-", "", ""}
		if v.all != nil {
			row = []string{b.name, b.format(v.all.value), b.format(v.all.low), b.format(v.all.high)}
		}
		if c.nearLine > 0 {
			row = append(row, b.optional(v.near), b.optional(v.far))
		}
		if len(ucx) > 0 {
			row = append(row, ucx[b])
		}
		outcome := string(v.outcome)
		if v.why != "" {
			outcome += ": " + v.why
		}
		for _, u := range v.undecided {
			outcome += "; " + u
		}
		rows = append(rows, append(row, b.bound(b.required), b.bound(b.aim), outcome))
	}
	return rows
}

// ucx returns the ratios of UCX to the same limits, as far as the report contains them.
func (c *results) ucx() map[*bar]string {
	found := map[*bar]string{}
	for _, v := range c.checked {
		b := v.bar
		if b.limit == "" {
			continue
		}
		for i := range c.rep.Results {
			r := &c.rep.Results[i]
			if r.Provider == UCX && r.Test == b.of[0].test && r.Size == b.of[0].size && r.Limit != nil && r.Limit.Name == b.limit {
				found[b] = b.format(r.Limit.Ratio)
			}
		}
	}
	return found
}

func (b *bar) optional(s *estimate) string {
	if s == nil {
		return ""
	}
	return b.format(s.value)
}

func (b *bar) bound(v float64) string {
	if b.more {
		return "≥ " + b.format(v)
	}
	return "≤ " + b.format(v)
}

// format formats three digits, more than a measurement deserves.
func (b *bar) format(v float64) string {
	s := strconv.FormatFloat(v, 'g', 3, 64)
	if v >= 100 {
		s = strconv.FormatFloat(v, 'f', 0, 64)
	}
	if b.unit != "" {
		s += " " + b.unit
	}
	return s
}
