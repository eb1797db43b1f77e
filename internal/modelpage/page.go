package modelpage

import (
	"fmt"
	"go/token"
	"slices"
	"strings"

	"github.com/softnd/softnd/nd/ndtest"
)

// Run is one run of the suite.
type Run struct {
	Name   string
	Report *ndtest.Report
}

// Render writes the page. root is the module's directory; runs are in the order in which the
// page lists them.
func Render(root string, runs []Run) ([]byte, error) {
	packages, err := list(root)
	if err != nil {
		return nil, fmt.Errorf("model page: %w", err)
	}
	fset := token.NewFileSet()
	model, err := packages[modelPath].parse(fset)
	if err != nil {
		return nil, fmt.Errorf("model page: %w", err)
	}
	u, err := usage(fset, packages)
	if err != nil {
		return nil, fmt.Errorf("model page: %w", err)
	}
	files, err := testFiles(root)
	if err != nil {
		return nil, fmt.Errorf("model page: %w", err)
	}
	p := &page{runs: runs, uses: u, files: files}
	p.head()
	p.model(parts(model))
	p.table()
	return []byte(p.text.String()), nil
}

type page struct {
	text strings.Builder
	runs []Run
	uses uses
	// files are test files of the packages, by what they name.
	files map[string][]string
}

func (p *page) printf(format string, args ...any) { fmt.Fprintf(&p.text, format, args...) }

// result sums up the outcomes of a row over all runs.
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

func (p *page) head() {
	p.printf(`# Conformance

This page is generated: `+"`go test ./endpoint -run TestConformance -update`"+` writes it, and the same
test without `+"`-update`"+` fails when it is out of date.

The suite of package [nd/ndtest](../nd/ndtest) checks a provider against the %d rows of the
conformance table. Each row is a subtest named by its number. softnd's own runs are:

`, ndtest.Rows)
	for _, r := range p.runs {
		p.printf("- %s\n", r.Name)
	}
	count := make(map[ndtest.Outcome]int)
	for i := range ndtest.Rows {
		count[p.result(ndtest.RowID(i+1))]++
	}
	p.printf("\n%d rows pass in every run that can show them, %d fail, %d are skipped in all, %d have no test.\n",
		count[ndtest.Passed], count[ndtest.Failed], count[ndtest.Skipped], count[ndtest.NoTest])
	if len(ndtest.Untestable) > 0 {
		p.printf("\n## Rows without a test\n\n| row | why |\n|---|---|\n")
		for i := range ndtest.Rows {
			if why, ok := ndtest.Untestable[ndtest.RowID(i+1)]; ok {
				p.printf("| %s | %s |\n", ndtest.RowID(i+1), why)
			}
		}
	}
}

// model lists the parts of package nd under their kinds.
func (p *page) model(all []part) {
	var kinds []string
	byKind := make(map[string][]part)
	for _, pt := range all {
		if byKind[pt.kind] == nil {
			kinds = append(kinds, pt.kind)
		}
		byKind[pt.kind] = append(byKind[pt.kind], pt)
	}
	p.printf("\n## The model\n\nWhat each part of package nd is in NetworkDirect, which rows use it themselves (in parentheses: only through\nhelpers of the suite), and whether all of those pass. Where no row uses it, the test files that do.\n")
	for _, kind := range kinds {
		p.printf("\n### %s\n\n| Go | NetworkDirect | tests | result |\n|---|---|---|---|\n", kind)
		for _, pt := range byKind[kind] {
			rows, result := p.usedBy(pt.name)
			p.printf("| `%s` | %s | %s | %s |\n", pt.name, pt.source, rows, result)
		}
	}
}

// usedBy names the rows that use a part, and their common result.
func (p *page) usedBy(name string) (rows, result string) {
	ids := using(p.uses.direct, name)
	direct := len(ids) > 0
	if !direct {
		ids = using(p.uses.indirect, name)
	}
	if len(ids) == 0 {
		return p.testedIn(name)
	}
	result = string(ndtest.Passed)
	for _, id := range ids {
		if r := p.result(id); r != ndtest.Passed {
			result = fmt.Sprintf("%s: %s", id, r)
		}
	}
	const shown = 6
	rows = strings.Join(ids[:min(shown, len(ids))], ", ")
	if more := len(ids) - shown; more > 0 {
		rows += fmt.Sprintf(" and %d more", more)
	}
	if !direct {
		rows = "(" + rows + ")"
	}
	return rows, result
}

// testedIn names test files for a part that no row uses.
func (p *page) testedIn(name string) (files, result string) {
	word := "nd." + name
	_, method, isMethod := strings.Cut(name, ".")
	if isMethod {
		word = "." + method
	}
	const shown = 2
	list := p.files[word]
	if len(list) == 0 && isMethod {
		list = p.files["nd."+method] // the function that calls it
	}
	if len(list) == 0 {
		return "", "no test names it"
	}
	files = "`" + strings.Join(list[:min(shown, len(list))], "`, `") + "`"
	return files, "passed with `go test`"
}

func using(by map[string][]string, name string) (ids []string) {
	for id, names := range by {
		if slices.Contains(names, name) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// table lists the conformance table, and what the suite checks beyond it.
func (p *page) table() {
	p.printf("\n## The conformance table\n\n| row | what must hold | result |\n|---|---|---|\n")
	for _, s := range ndtest.Scenarios() {
		p.printf("| %s | %s | %s |\n", s.ID, strings.ReplaceAll(s.Title, "|", `\|`), p.result(s.ID))
	}
}
