package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/softnd/softnd/launcher"
)

// outputOptions are the options about the ranks' output and input, and about ndrun's own
// messages.
type outputOptions struct {
	raw        bool
	timestamps bool
	jsonLines  bool
	files      string   // directory
	stdin      *rankSet // nil means rank 0
	report     string   // file
	quiet      bool
}

func setLabel(c *command, _ string) error {
	c.output.raw = false
	return nil
}

func setNoLabel(c *command, _ string) error {
	c.output.raw = true
	return nil
}

func setTimestamps(c *command, _ string) error {
	c.output.timestamps = true
	return nil
}

func setJSONLines(c *command, _ string) error {
	c.output.jsonLines = true
	return nil
}

func setOutputDir(c *command, s string) error {
	if s == "" {
		return errors.New("want a directory")
	}
	c.output.files = s
	return nil
}

func setStdin(c *command, s string) (err error) {
	set := rankSet{text: s}
	if s != "none" {
		set, err = parseRanks(s)
	}
	c.output.stdin = &set
	return err
}

func setReport(c *command, s string) error {
	if s == "" {
		return errors.New("want a file")
	}
	c.output.report = s
	return nil
}

func setQuiet(c *command, _ string) error {
	c.output.quiet = true
	return nil
}

// check returns an error if options contradict each other.
func (o *outputOptions) check(size int) error {
	if o.jsonLines && (o.raw || o.timestamps) {
		return errors.New("option --json-lines: includes rank and time: remove --no-label and --timestamps")
	}
	if o.stdin == nil {
		return nil
	}
	if err := o.stdin.checkSize(size); err != nil {
		return fmt.Errorf("option --stdin %s: %w", o.stdin.text, err)
	}
	return nil
}

// apply sets the options in the configuration of a job.
func (o *outputOptions) apply(cfg *launcher.Config, size int) {
	cfg.Output = launcher.Output{Raw: o.raw, Timestamps: o.timestamps, Dir: o.files, FilesOnly: o.quiet && o.files != ""}
	if o.jsonLines {
		cfg.Output.JSONLines = true
	}
	if o.stdin == nil {
		return
	}
	cfg.StdinRanks = slices.DeleteFunc(upTo(size), func(rank int) bool { return !o.stdin.has(rank) })
	if len(cfg.StdinRanks) == 0 {
		cfg.Stdin = nil
	}
}

// openReport creates the report's file before the job starts, so that a wrong path is reported
// before the job has run. The file stays empty until the job has ended.
func (o *outputOptions) openReport() (*os.File, error) {
	if o.report == "" {
		return nil, nil
	}
	f, err := os.Create(o.report)
	if err != nil {
		return nil, fmt.Errorf("create report: %w: change --report", err)
	}
	return f, nil
}

// reportOutcome prints how a job ended that had the given exit status and error, with more
// messages, and writes the report. report is nil if the job was not started. The caller prints the
// error that it returns.
func (p *plan) reportOutcome(report *launcher.Report, more []string, status int, err error, file *os.File, printError func(error)) error {
	if report != nil && !p.command.output.quiet {
		lines := slices.Concat(report.Messages(), more)
		if report.First >= 0 || report.Abort != nil {
			lines = append(lines, report.Table()...)
		}
		for _, line := range lines {
			printError(errors.New(line))
		}
	}
	if err != nil { // an error of ndrun, which --quiet does not suppress
		printError(err)
	}
	if file == nil {
		return nil
	}
	if report == nil {
		report = &launcher.Report{First: -1, GoesOn: p.command.goOn}
		for _, a := range p.apps() {
			report.Ranks = append(report.Ranks, slices.Repeat([]launcher.Result{{Program: filepath.Base(a.Args[0])}}, a.Ranks)...)
		}
	}
	return errors.Join(report.WriteJSON(file, status, err), file.Close())
}
