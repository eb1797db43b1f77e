package main

import (
	"github.com/softnd/softnd/nd/ndtest"
)

// head says what was run, and how it went.
func (p *page) head() {
	p.printf(`# Conformance

`+"`go -C tools run ./conformancepage`"+` generates this page, and fails with `+"`-check`"+` if the page is out of date. Package
[nd/ndtest](../nd/ndtest) checks a provider against the %d rows of the conformance table. [ROWS.txt](../nd/ndtest/ROWS.txt)
has the text of each row. The runs of softnd are named by executor, kind of memory, and whether the two sides are
goroutines or processes:

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
	p.printf("\n%d rows pass: %d in every run, %d in every run except those that skip them. %d of them are adapted: they check\na property in Go that replaces the one of the table (`go doc ./nd/ndtest Adapted`).",
		count[ndtest.Passed], count[ndtest.Passed]-inSome, inSome, adapted)
	p.printf(" %d rows fail, %d are skipped in\nall runs, %d have no test (`go doc ./nd/ndtest Untestable`).\n",
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
