package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/meet/checkjournal"
	"github.com/softnd/softnd/launcher"
	"github.com/softnd/softnd/nd/ndcheck"
)

// Exit statuses of a job that has succeeded.
const (
	exitCheck     = 4 // the checker has found an error
	exitUnwatched = 5 // it has found none, but has not watched all ranks
)

// checker collects the findings of the ranks. nil does nothing.
type checker struct {
	file    *os.File // the journal
	journal *ndcheck.Journal
	report  io.WriteCloser // nil = none
	sarif   bool
	lines   bool // the report is one line, as those of --json-lines
	ranks   int
	partial bool // ranks that are not watched are accepted
	ignored []*ndcheck.Rule
}

// newChecker returns the checker that the command asks for, nil if there is none. It creates the file of its report.
func newChecker(cmd *command, ranks int, stdout io.Writer) (*checker, error) {
	if !cmd.watch {
		return nil, nil
	}
	report, err := cmd.openCheckReport(stdout)
	if err != nil {
		return nil, err
	}
	return &checker{ranks: ranks, partial: cmd.checkPartial, ignored: cmd.checkIgnore, sarif: cmd.checkSARIF,
		lines: cmd.output.jsonLines && cmd.checkReport == "-", report: report}, nil
}

// openCheckReport creates the file of the findings before the job starts, so that a wrong path is reported before the
// job has run.
func (c *command) openCheckReport(stdout io.Writer) (io.WriteCloser, error) {
	switch c.checkReport {
	case "":
		return nil, nil
	case "-":
		return nopCloser{stdout}, nil
	}
	f, err := os.Create(c.checkReport)
	if err != nil {
		return nil, fmt.Errorf("create report of the checker: %w: change --check", err)
	}
	return f, nil
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// start makes the journal, and adds it to the files of the ranks.
func (c *checker) start(cfg *launcher.Config) (err error) {
	if c == nil {
		return nil
	}
	if list := os.Getenv(softnd.EnvCheckIgnore); c.ignored == nil && list != "" { // the option replaces the variable for the ranks, too
		if c.ignored, err = ndcheck.ParseRules(list); err != nil {
			return fmt.Errorf("%s: %w", softnd.EnvCheckIgnore, err)
		}
	}
	if c.file, err = checkjournal.Create(); err != nil {
		return err
	}
	if c.journal, err = checkjournal.Open(int(c.file.Fd())); err != nil {
		return errors.Join(err, c.file.Close())
	}
	cfg.Files = append(cfg.Files, c.file)
	return nil
}

// journalFile returns the journal, nil if there is none.
func (c *checker) journalFile() *os.File {
	if c == nil {
		return nil
	}
	return c.file
}

// env returns the variables by which a rank finds the journal, the last of the files that all ranks inherit.
func (c *checker) env(files int) []string {
	if c == nil {
		return nil
	}
	return []string{softnd.EnvCheck + "=1", softnd.EnvCheckFD + "=" + strconv.Itoa(launcher.FirstFile+files-1)}
}

// checkOutcome is what the checker says at the end of a job.
type checkOutcome struct {
	lines  []string
	status int // of a job that has succeeded otherwise
}

// end writes the report, and returns the outcome. If complete, the program has run to its end, so its expectations must
// be met.
func (c *checker) end(complete bool) (out checkOutcome, err error) {
	if c == nil {
		return out, nil
	}
	found, lost := c.journal.Findings()
	unwatched := c.unwatched()
	if len(unwatched) > 0 { // before the findings, which may be few for this reason
		if !c.partial {
			out.status = exitUnwatched
		}
		out.lines = append(out.lines, fmt.Sprintf("check: %s not watched: programs in C, and programs that do not call softnd.Init, are not: "+
			"mistakes of these ranks are not found; --check=partial accepts that", describeRanks(unwatched)))
	}
	if complete {
		for _, f := range c.journal.Unmet() {
			if !slices.Contains(c.ignored, f.Rule) {
				found = append(found, f)
				out.lines = append(out.lines, fmt.Sprintf("check: %s %s: rank %d %s, at %s", f.Rule.ID, f.Rule.Severity, f.Rank, f.What, f.Site[strings.LastIndexByte(f.Site, '/')+1:]))
			}
		}
	}
	errorsLost := c.journal.LostErrors()
	if errorsLost > 0 {
		out.status = exitCheck
	}
	counts, expected := make(map[string]int), make(map[string]int)
	for _, f := range found {
		if f.Expected != nil {
			expected[f.Rule.ID]++
			continue
		}
		counts[f.Rule.ID]++
		if f.Rule.Severity == ndcheck.Error {
			out.status = exitCheck
		}
	}
	line := "check: "
	if len(unwatched) > 0 {
		line += fmt.Sprintf("in the %d of %d ranks that were watched: ", c.ranks-len(unwatched), c.ranks)
	}
	line += summary(counts, "finding", "findings")
	if len(expected) > 0 {
		line += "; " + summary(expected, "expected", "expected")
	}
	if lost > 0 {
		line += fmt.Sprintf("; %d did not fit into the report", lost)
	}
	if errorsLost > 0 {
		line += fmt.Sprintf(", %d of them errors", errorsLost)
	}
	out.lines = append(out.lines, line)
	return out, errors.Join(c.finishReport(found, lost, unwatched), c.file.Close())
}

// abandon writes the report of a job that is not started.
func (c *checker) abandon() error {
	if c == nil {
		return nil
	}
	return c.finishReport(nil, 0, upTo(c.ranks))
}

// unwatched returns the ranks that have not used the journal.
func (c *checker) unwatched() []int {
	ranks := []int{}
	for rank := range c.ranks {
		if !c.journal.HasWatched(rank) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// describeRanks returns a subject and its verb, such as "ranks 0 and 2 were".
func describeRanks(ranks []int) string {
	const most = 8
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d was", ranks[0])
	}
	if len(ranks) > most {
		return fmt.Sprintf("%d ranks, the first of which is rank %d, were", len(ranks), ranks[0])
	}
	var b strings.Builder
	for i, rank := range ranks {
		switch i {
		case 0:
			b.WriteString("ranks ")
		case len(ranks) - 1:
			b.WriteString(" and ")
		default:
			b.WriteString(", ")
		}
		b.WriteString(strconv.Itoa(rank))
	}
	return b.String() + " were"
}

// summary returns how many findings there are of each rule, such as "3 findings: N101 (2), N303 (1)".
func summary(counts map[string]int, one, several string) string {
	n := 0
	var parts []string
	for _, id := range slices.Sorted(maps.Keys(counts)) {
		n += counts[id]
		parts = append(parts, fmt.Sprintf("%s (%d)", id, counts[id]))
	}
	switch n {
	case 0:
		return "no " + several
	case 1:
		return "1 " + one + ": " + parts[0]
	}
	return fmt.Sprintf("%d %s: %s", n, several, strings.Join(parts, ", "))
}

// reportVersion is the version of the JSON report. A reader may ignore fields that it does not know.
const reportVersion = 1

// finishReport writes the report, if one is asked for, and closes it.
func (c *checker) finishReport(found []ndcheck.Finding, lost int, unwatched []int) error {
	if c.report == nil {
		return nil
	}
	if err := errors.Join(c.write(found, lost, unwatched), c.report.Close()); err != nil {
		return fmt.Errorf("write the report of the checker: %w", err)
	}
	return nil
}

func (c *checker) write(found []ndcheck.Finding, lost int, unwatched []int) error {
	e := json.NewEncoder(c.report)
	if !c.lines {
		e.SetIndent("", "  ")
	}
	if c.sarif {
		return e.Encode(sarifOf(found, lost, unwatched))
	}
	if found == nil {
		found = []ndcheck.Finding{}
	}
	return e.Encode(struct {
		Version   int               `json:"version"`
		Ranks     int               `json:"ranks"`
		Unwatched []int             `json:"unwatched"`
		Lost      int               `json:"lost"`
		Findings  []ndcheck.Finding `json:"findings"`
	}{reportVersion, c.ranks, unwatched, lost, found})
}
