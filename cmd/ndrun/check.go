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
	"github.com/softnd/softnd/internal/checkjournal"
	"github.com/softnd/softnd/launcher"
	"github.com/softnd/softnd/nd/ndcheck"
)

// exitCheck is the exit status of a job that has succeeded, but in which the checker has found an error.
const exitCheck = 4

// checker collects the findings of the ranks. nil does nothing.
type checker struct {
	file    *os.File // the journal
	journal *ndcheck.Journal
	report  io.WriteCloser // nil = none
	sarif   bool
	lines   bool // the report is one line, as those of --json-lines
	ranks   int
	ignored []*ndcheck.Rule
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

// startChecker makes the journal if the command asks for the checker, and adds it to the files of the ranks.
func startChecker(cmd *command, cfg *launcher.Config, ranks int, report io.WriteCloser) (*checker, error) {
	if !cmd.watch {
		return nil, nil
	}
	ignored := cmd.checkIgnore
	if list := os.Getenv(softnd.EnvCheckIgnore); ignored == nil && list != "" { // the option replaces the variable for the ranks, too
		var err error
		if ignored, err = ndcheck.ParseRules(list); err != nil {
			return nil, fmt.Errorf("%s: %w", softnd.EnvCheckIgnore, err)
		}
	}
	c := &checker{ranks: ranks, ignored: ignored, sarif: cmd.checkSARIF, lines: cmd.output.jsonLines && cmd.checkReport == "-", report: report}
	var err error
	if c.file, err = checkjournal.Create(); err != nil {
		return nil, err
	}
	if c.journal, err = checkjournal.Open(int(c.file.Fd())); err != nil {
		return nil, errors.Join(err, c.file.Close())
	}
	cfg.Files = append(cfg.Files, c.file)
	return c, nil
}

// env returns the variables by which a rank finds the journal, the last of the files that all ranks inherit.
func (c *checker) env(files int) []string {
	if c == nil {
		return nil
	}
	return []string{softnd.EnvCheck + "=1", softnd.EnvCheckFD + "=" + strconv.Itoa(launcher.FirstFile+files-1)}
}

// end writes the report. It returns lines about the findings, and whether one of them is an error. If complete, the
// program has run to its end, so its expectations must be met.
func (c *checker) end(complete bool) (lines []string, failed bool, err error) {
	if c == nil {
		return nil, false, nil
	}
	found, lost := c.journal.Findings()
	if complete {
		for _, f := range c.journal.Unmet() {
			if !slices.Contains(c.ignored, f.Rule) {
				found = append(found, f)
				lines = append(lines, fmt.Sprintf("check: %s %s: rank %d %s, at %s", f.Rule.ID, f.Rule.Severity, f.Rank, f.What, f.Site[strings.LastIndexByte(f.Site, '/')+1:]))
			}
		}
	}
	counts, expected := make(map[string]int), make(map[string]int)
	for _, f := range found {
		if f.Expected != nil {
			expected[f.Rule.ID]++
			continue
		}
		counts[f.Rule.ID]++
		failed = failed || f.Rule.Severity == ndcheck.Error
	}
	line := "check: " + summary(counts, "finding", "findings")
	if len(expected) > 0 {
		line += "; " + summary(expected, "expected", "expected")
	}
	if lost > 0 {
		line += fmt.Sprintf("; %d did not fit into the report", lost)
	}
	lines = append(lines, line)
	if n := c.journal.Watched(); n < c.ranks {
		lines = append(lines, fmt.Sprintf("check: only %d of %d ranks were watched: programs in C, and programs that do not call softnd.Init, are not", n, c.ranks))
	}
	if c.report != nil {
		err = errors.Join(c.write(found), c.report.Close())
	}
	if err != nil {
		err = fmt.Errorf("write the report of the checker: %w", err)
	}
	return lines, failed, errors.Join(err, c.file.Close())
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

func (c *checker) write(found []ndcheck.Finding) error {
	e := json.NewEncoder(c.report)
	if !c.lines {
		e.SetIndent("", "  ")
	}
	if c.sarif {
		return e.Encode(sarifOf(found))
	}
	if found == nil {
		found = []ndcheck.Finding{}
	}
	return e.Encode(struct {
		Version  int               `json:"version"`
		Findings []ndcheck.Finding `json:"findings"`
	}{reportVersion, found})
}
