package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/softnd/softnd/launcher"
)

// outputOptions are the options about the ranks' output and input, and about what
// ndrun itself says.
type outputOptions struct {
	form       launcher.Form
	timestamps bool
	jsonLines  bool
	files      string   // directory
	stdin      *rankSet // nil: rank 0
	report     string   // file
	quiet      bool
}

func setLabel(c *command, _ string) error {
	c.output.form = launcher.Labelled
	return nil
}

func setNoLabel(c *command, _ string) error {
	c.output.form = launcher.Plain
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
		return errors.New("name a directory")
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
		return errors.New("name a file")
	}
	c.output.report = s
	return nil
}

func setQuiet(c *command, _ string) error {
	c.output.quiet = true
	return nil
}

// check returns an error if the options do not go together.
func (o *outputOptions) check(size int) error {
	if o.jsonLines && (o.form == launcher.Plain || o.timestamps) {
		return errors.New("--json-lines: it has ranks and times of its own; leave --no-label and --timestamps out")
	}
	if o.stdin == nil {
		return nil
	}
	if err := o.stdin.within(size); err != nil {
		return fmt.Errorf("--stdin %s: %w", o.stdin.text, err)
	}
	return nil
}

// apply enters the options into the configuration of a job.
func (o *outputOptions) apply(cfg *launcher.Config, size int) {
	cfg.Output = launcher.Output{Form: o.form, Timestamps: o.timestamps, Dir: o.files, FilesOnly: o.quiet && o.files != ""}
	if o.jsonLines {
		cfg.Output.Form = launcher.JSONLines
	}
	if o.stdin == nil {
		return
	}
	cfg.StdinRanks = slices.DeleteFunc(upTo(size), func(rank int) bool { return !o.stdin.has(rank) })
	if len(cfg.StdinRanks) == 0 {
		cfg.Stdin = nil
	}
}

// openReport makes the report's file before the job starts, so that a bad name does
// not cost a job its report. It stays empty until the job is over.
func (o *outputOptions) openReport() (*os.File, error) {
	if o.report == "" {
		return nil, nil
	}
	f, err := os.Create(o.report)
	if err != nil {
		return nil, fmt.Errorf("make the report: %w; give --report a file that can be written", err)
	}
	return f, nil
}

// tell says how a job went that ended with status and err, and what else is to be
// known about it, and writes the report. An error that it returns has been told to nobody.
func (o *outputOptions) tell(report *launcher.Report, more []string, status int, err error, file *os.File, complain func(error)) error {
	if report != nil && !o.quiet {
		lines := slices.Concat(report.Messages(), more)
		if report.First >= 0 || report.Abort != nil {
			lines = append(lines, report.Table()...)
		}
		for _, line := range lines {
			complain(errors.New(line))
		}
	}
	if err != nil { // not the job's doing, so not what --quiet is about
		complain(err)
	}
	if file == nil {
		return nil
	}
	if report == nil {
		report = &launcher.Report{First: -1}
	}
	return errors.Join(report.WriteJSON(file, status, err), file.Close())
}
