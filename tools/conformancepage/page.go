package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/softnd/softnd/nd/ndtest"
)

// Run is one run of the suite.
type Run struct {
	Name   string
	Report *ndtest.Report
}

// Table is a test with a subtest for each of some constants of package nd.
type Table struct {
	Test    string            // with its package
	Names   []string          // constants with a subtest
	Without map[string]string // constants without one, with the reason
}

// Render writes the page. root is the module's directory; runs are in the order in which the
// page lists them.
func Render(root string, runs []Run, tables []Table) ([]byte, error) {
	p := &page{runs: runs, tables: tables}
	if err := p.complete(); err != nil {
		return nil, fmt.Errorf("model page: %w", err)
	}
	if err := p.read(root); err != nil {
		return nil, fmt.Errorf("model page: %w", err)
	}
	p.head()
	p.model()
	p.table()
	return []byte(p.text.String()), nil
}

type page struct {
	text   strings.Builder
	runs   []Run
	tables []Table
	parts  []part
	uses   []use
	tests  []test
	// callers are functions of package nd, by what they use.
	callers map[string][]string
}

// ids lists the rows of the table and the further scenarios of the suite.
func ids() (all []string) {
	for i := range ndtest.RowCount {
		all = append(all, ndtest.RowID(i+1))
	}
	for _, s := range ndtest.Scenarios() {
		if !slices.Contains(all, s.ID) {
			all = append(all, s.ID)
		}
	}
	return all
}

// complete checks that there is an outcome for everything, so that the page has no empty cell.
func (p *page) complete() error {
	if len(p.runs) == 0 {
		return fmt.Errorf("no runs")
	}
	for _, r := range p.runs {
		if r.Report == nil {
			return fmt.Errorf("%s: no report", r.Name)
		}
		for _, id := range ids() {
			if r.Report.Outcomes[id] == "" {
				return fmt.Errorf("%s: no outcome of %s", r.Name, id)
			}
		}
	}
	return nil
}

// read reads the source of the model, of the suite and of the tests.
func (p *page) read(root string) error {
	sources, err := load(root)
	if err != nil {
		return err
	}
	p.parts = append(parts(sources[modelPath].files), parts(sources[compatPath].files)...)
	var known []string
	for _, s := range ndtest.Scenarios() {
		known = append(known, s.ID)
	}
	if p.uses, err = sources[suitePath].rows(known); err != nil {
		return err
	}
	for _, tested := range []struct{ path, short string }{{providerPath, "endpoint"}, {modelPath, "nd"}, {compatPath, "ndcompat"}} {
		p.tests = append(p.tests, sources[withTests(tested.path)].tests(tested.short)...)
	}
	p.callers = sources[withTests(modelPath)].callers()
	return nil
}

func (p *page) printf(format string, args ...any) { fmt.Fprintf(&p.text, format, args...) }

// result sums up the outcomes of a scenario over all runs.
func (p *page) result(id string) ndtest.Outcome {
	sum := ndtest.Skipped
	for _, r := range p.runs {
		switch o := r.Report.Outcomes[id]; o {
		case ndtest.Passed:
			sum = o // a run that cannot show the row leaves the word to those that can
		case ndtest.Skipped:
		default:
			return o
		}
	}
	return sum
}

// model lists the parts of package nd under their kinds.
func (p *page) model() {
	var kinds []string
	byKind := make(map[string][]part)
	for _, pt := range p.parts {
		if byKind[pt.kind] == nil {
			kinds = append(kinds, pt.kind)
		}
		byKind[pt.kind] = append(byKind[pt.kind], pt)
	}
	p.printf(`
## The model

For each part of package nd, the lists name its origin in NetworkDirect and the rows that use it. These rows pass, unless
another result is given. Rows in parentheses use the part only through helper functions. If no row uses a part, a test is
named, which runs with ` + "`go test ./...`" + `. A number such as +3 counts further rows or tests.
`)
	for _, kind := range kinds {
		p.printf("\n### %s\n\n```\n", kind)
		columns := tabwriter.NewWriter(&p.text, 0, 0, 2, ' ', 0)
		for _, pt := range byKind[kind] {
			fmt.Fprintf(columns, "%s\t%s\t%s\n", pt.name, pt.source, p.usedBy(pt.name))
		}
		columns.Flush()
		p.printf("```\n")
	}
}

// usedBy names what uses a part, and the result of that unless it has passed.
func (p *page) usedBy(name string) string {
	rows := p.rowsWith(func(u use) bool { return slices.Contains(u.direct, name) })
	for _, t := range p.tables {
		if reason, ok := t.Without[name]; ok {
			return strings.TrimPrefix(rows+"; "+reason, "; ")
		}
		if rows == "" && slices.Contains(t.Names, name) {
			return t.Test + "/" + name
		}
	}
	if rows != "" {
		return rows
	}
	if rows = p.rowsWith(func(u use) bool { return slices.Contains(u.wider, name) }); rows != "" {
		return "(" + rows + ")"
	}
	if tests := p.testsOf(name); tests != "" {
		return tests
	}
	for _, caller := range p.callers[name] {
		if tests := p.testsOf(caller); tests != "" {
			return "(" + tests + ")"
		}
	}
	return "no test uses it"
}

// rowsWith names the rows that have a use as wanted, and the result of one that has not passed.
func (p *page) rowsWith(wanted func(use) bool) string {
	const shown = 3
	var labels []string
	more, result := 0, ""
	for _, u := range p.uses {
		if !wanted(u) {
			continue
		}
		if len(labels) < shown {
			labels = append(labels, u.label)
		} else {
			more += len(u.ids)
		}
		for _, id := range u.ids {
			if r := p.result(id); r != ndtest.Passed {
				result = fmt.Sprintf("; %s: %s", id, r)
			}
		}
	}
	return andMore(labels, more) + result
}

// testsOf names tests of a part that no row uses.
func (p *page) testsOf(name string) string {
	const shown = 1
	var names []string
	more := 0
	for _, t := range p.tests {
		switch {
		case !slices.Contains(t.parts, name):
		case len(names) < shown:
			names = append(names, t.name)
		default:
			more++
		}
	}
	return andMore(names, more)
}

func andMore(names []string, more int) string {
	s := strings.Join(names, ", ")
	if more > 0 {
		s += fmt.Sprintf(" +%d", more)
	}
	return s
}

// table lists the results of the conformance table and of the further scenarios of the suite.
func (p *page) table() {
	p.printf("\n## The conformance table\n\n```\n")
	for _, id := range ids() {
		result := string(p.result(id))
		if _, ok := ndtest.Adapted[id]; ok {
			result += ", adapted"
		}
		if in, why := p.skipped(id); len(in) > 0 {
			result += fmt.Sprintf("; skipped in %d of %d runs (%s): %s", len(in), len(p.runs), strings.Join(in, ", "), why)
		}
		p.printf("%s %s\n", id, result)
	}
	p.printf("```\n")
}
