package main

import (
	"fmt"
	"strings"

	"github.com/softnd/softnd/nd/ndtest"
)

// head says what was run, and how it went.
func (p *page) head() {
	p.printf(`# Conformance

`+"`go -C tools run ./conformancepage`"+` generates this page. With `+"`-check`"+` it fails if the page is out of date.

The suite of package [nd/ndtest](../nd/ndtest) checks a provider against the %d rows of the
conformance table. Each row is a subtest named by its number. The runs of softnd are named by executor, kind of memory,
and whether the two sides are goroutines or processes:

`, ndtest.RowCount)
	for _, r := range p.runs {
		p.printf("- %s\n", r.Name)
	}
	count := make(map[ndtest.Outcome]int)
	inSome, adapted := 0, 0
	for i := range ndtest.RowCount {
		id := ndtest.RowID(i + 1)
		result := p.result(id)
		count[result]++
		if result != ndtest.Passed {
			continue
		}
		if in, _ := p.skipped(id); len(in) > 0 {
			inSome++
		}
		if _, ok := ndtest.Adapted[id]; ok {
			adapted++
		}
	}
	p.printf("\n%d rows pass: %d in every run, %d in every run except those that skip them. %d of them are adapted: they check\na property in Go that replaces the one of the table.",
		count[ndtest.Passed], count[ndtest.Passed]-inSome, inSome, adapted)
	p.printf(" %d rows fail, %d are skipped in all runs, %d have no test.\n",
		count[ndtest.Failed], count[ndtest.Skipped], count[ndtest.NoTest])
}

// skipped names the runs that skip a scenario, and why.
func (p *page) skipped(id string) (in []string, why string) {
	for _, r := range p.runs {
		if r.Report.Outcomes[id] == ndtest.Skipped {
			in = append(in, r.Name)
			why = r.Report.Reasons[id]
		}
	}
	return in, why
}

// exceptions lists the rows of which more is to be said than that they pass.
func (p *page) exceptions() {
	var skips, adapted, without [][]string
	for _, id := range ids() {
		if in, why := p.skipped(id); len(in) > 0 {
			skips = append(skips, []string{id, fmt.Sprintf("%d of %d: %s", len(in), len(p.runs), strings.Join(in, ", ")), why})
		}
		if what, ok := ndtest.Adapted[id]; ok {
			adapted = append(adapted, []string{id, what})
		}
		if why, ok := ndtest.Untestable[id]; ok {
			without = append(without, []string{id, why})
		}
	}
	p.section("Rows that some runs skip", skips, "row", "skipped in", "why")
	p.section("Adapted rows", adapted, "row", "check instead, and reason")
	p.section("Rows without a test", without, "row", "why")
}

// section writes a table under a heading, if it has lines.
func (p *page) section(heading string, lines [][]string, columns ...string) {
	if len(lines) == 0 {
		return
	}
	p.printf("\n## %s\n\n", heading)
	p.line(columns...)
	p.printf("%s|\n", strings.Repeat("|---", len(columns)))
	for _, line := range lines {
		p.line(line...)
	}
}
