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
	c := &checker{ranks: ranks, sarif: cmd.checkSARIF, lines: cmd.output.jsonLines && cmd.checkReport == "-", report: report}
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

// end writes the report. It returns lines about the findings, and whether one of them is an error.
func (c *checker) end() (lines []string, failed bool, err error) {
	if c == nil {
		return nil, false, nil
	}
	found, lost := c.journal.Findings()
	counts := make(map[string]int)
	for _, f := range found {
		counts[f.Rule.ID]++
		failed = failed || f.Rule.Severity == ndcheck.Error
	}
	var parts []string
	for _, id := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s (%d)", id, counts[id]))
	}
	list := strings.Join(parts, ", ")
	switch n := len(found); {
	case lost > 0:
		lines = append(lines, fmt.Sprintf("check: %d findings, and %d that did not fit into the report: %s", n, lost, list))
	case n == 1:
		lines = append(lines, "check: 1 finding: "+list)
	case n > 1:
		lines = append(lines, fmt.Sprintf("check: %d findings: %s", n, list))
	default:
		lines = append(lines, "check: no findings")
	}
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
