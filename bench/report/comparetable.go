package report

import (
	"fmt"
	"io"
	"math"
)

// write writes the comparison for people.
func (c *comparison) write(w io.Writer) error {
	if _, err := io.WriteString(w, c.heading()); err != nil {
		return err
	}
	g := new(grid)
	g.add("<test", "<provider", "size", "<settings", "<compared", "old", "new", "change", "by chance", "<")
	for i := range c.changes {
		g.add(c.changes[i].row()...)
	}
	if err := g.write(w, ""); err != nil {
		return err
	}
	if err := writeOnly(w, "old", c.onlyOld); err != nil {
		return err
	}
	return writeOnly(w, "new", c.onlyNew)
}

func (c *comparison) heading() string {
	text := fmt.Sprintf("old: softnd %s on %v\nnew: softnd %s on %v\n", c.old.Softnd, c.old, c.new.Softnd, c.new)
	old, new := c.old, c.new
	old.Softnd, new.Softnd = "", ""
	if old != new {
		text += "The machines differ, so not every change is one of softnd.\n"
	}
	return text + fmt.Sprintf("%d compared: %d better, %d worse, %d same, %d unclear\n\n",
		len(c.changes), c.count(improved), c.count(worsened), c.count(unchanged), c.count(unclear))
}

func (c *delta) row() []string {
	unit := c.new.Unit
	compared := c.compared
	if compared == "ratio" {
		unit, compared = "ratio", "ratio to "+c.new.Limit.Name
	}
	by, outcome := fmt.Sprintf("%.2g", c.chance), c.outcome
	switch {
	case c.outcome == unclear:
		by = ""
		outcome = fmt.Sprintf("unclear: fewer than %d repeats", minRepeats)
	case c.chance < 0.001:
		by = "< 0.001"
	}
	moved := fmt.Sprintf("%+.1f %%", 100*c.relative)
	if math.IsInf(c.relative, 0) {
		moved = "from 0"
	}
	return append(names(&c.new), compared, Figure(c.before, unit), Figure(c.after, unit), moved, by, outcome)
}

// names returns what identifies a result in a table of several tests.
func names(r *Result) []string {
	size := ""
	if r.Size > 0 {
		size = Figure(float64(r.Size), "B")
	}
	return []string{r.Test, r.Provider, size, r.Words()}
}

func writeOnly(w io.Writer, which string, results []Result) error {
	if len(results) == 0 {
		return nil
	}
	if _, err := fmt.Fprintf(w, "\nonly in the %s report\n", which); err != nil {
		return err
	}
	g := new(grid)
	g.add("<test", "<provider", "size", "<settings", "median")
	for i := range results {
		g.add(append(names(&results[i]), Figure(results[i].Value, results[i].Unit))...)
	}
	return g.write(w, "")
}
