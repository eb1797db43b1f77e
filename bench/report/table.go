package report

import (
	"fmt"
	"io"
	"strings"
)

// WriteTable writes the report for people: the machine, and a table for each test.
func (r *Report) WriteTable(w io.Writer) error {
	if _, err := io.WriteString(w, r.heading()); err != nil {
		return err
	}
	for _, test := range r.byTest() {
		if err := writeTest(w, test); err != nil {
			return err
		}
	}
	return nil
}

// String describes the machine in one line.
func (m Machine) String() string {
	cores := "cores"
	if m.Cores == 1 {
		cores = "core"
	}
	return fmt.Sprintf("%s, %d %s, kernel %s, %s, %s", m.Processor, m.Cores, cores, m.Kernel, m.System, m.Go)
}

func (r *Report) heading() string {
	text := r.Machine.String() + "\nsoftnd " + r.Machine.Softnd
	if !r.Time.IsZero() {
		text += ", " + r.Time.UTC().Format("2006-01-02 15:04 UTC")
	}
	if len(r.Command) > 0 {
		text += ", " + strings.Join(r.Command, " ")
	}
	return text + "\n"
}

// byTest returns the results in groups of one test each, in the order in which the tests first appear.
func (r *Report) byTest() [][]Result {
	var groups [][]Result
	at := map[string]int{}
	for _, one := range r.Results {
		i, seen := at[one.Test]
		if !seen {
			i = len(groups)
			at[one.Test] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], one)
	}
	return groups
}

func writeTest(w io.Writer, test []Result) error {
	direction := "less"
	if test[0].Better == "more" {
		direction = "more"
	}
	if _, err := fmt.Fprintf(w, "\n%s (%s is better)\n", test[0].Test, direction); err != nil {
		return err
	}
	g := new(grid)
	g.add("<provider", "size", "<settings", "median", "95 % from", "to", "of limit", "limit", "<",
		"p50", "p99", "p99.9", "p99.99", "max", "<note")
	for i := range test {
		g.add(row(&test[i])...)
	}
	return g.write(w, "  ")
}

func row(r *Result) []string {
	size := ""
	if r.Size > 0 {
		size = Figure(float64(r.Size), "B")
	}
	all := []string{r.Provider, size, r.Words(),
		Figure(r.Value, r.Unit), Figure(r.Low, r.Unit), Figure(r.High, r.Unit)}
	if l := r.Limit; l != nil {
		all = append(all, digits(l.Ratio)+" ×", Figure(l.Value, l.Unit), l.Name)
	} else {
		all = append(all, "", "", "")
	}
	if d := r.Distribution; d != nil {
		for _, v := range []float64{d.P50, d.P99, d.P999, d.P9999, d.Max} {
			if v == 0 { // unknown
				all = append(all, "")
				continue
			}
			all = append(all, Figure(v, r.Unit))
		}
	} else {
		all = append(all, "", "", "", "", "")
	}
	return append(all, r.Note)
}
