package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/softnd/softnd/bench/plot"
	"github.com/softnd/softnd/bench/report"
)

// output contains the options for the report.
type output struct {
	json, csv, plot, compare string
	quiet                    bool

	old     *report.Report // to compare with
	machine report.Machine // its state before the ranks are pinned

	table func(*report.Report, io.Writer) error // nil for the default
}

func (o *output) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.json, "json", "", "write the report as JSON to a `file`, or - for standard output instead of the table")
	f.StringVar(&o.csv, "csv", "", "the same as CSV")
	f.StringVar(&o.plot, "plot", "", "draw the figures by size into a `file` .png or .svg; default all sizes")
	f.StringVar(&o.compare, "compare", "", "compare with an earlier `file` of --json; the exit status is 3 if a figure has changed")
	f.BoolVar(&o.quiet, "quiet", false, "no table")
}

// check finds errors before the measurement.
func (o *output) check() (err error) {
	o.machine = report.ThisMachine()
	if o.json == "-" && o.csv == "-" {
		return errors.New("--json - and --csv -: both write to standard output: give a file to one of them")
	}
	switch ending := strings.ToLower(filepath.Ext(o.plot)); {
	case o.plot == "", ending == ".png", ending == ".svg":
	default:
		return fmt.Errorf("--plot %s: unknown format %q: want a name that ends with .png or .svg", o.plot, ending)
	}
	for _, path := range []string{o.json, o.csv, o.plot} {
		if path == "" || path == "-" {
			continue
		}
		if s, err := os.Stat(filepath.Dir(path)); err != nil || !s.IsDir() {
			return fmt.Errorf("%s: no directory %s: create it, or give another file", path, filepath.Dir(path))
		}
	}
	if o.compare == "" {
		return nil
	}
	f, err := os.Open(o.compare)
	if err != nil {
		return fmt.Errorf("--compare: %w: give a file that --json has written", err)
	}
	defer f.Close()
	if o.old, err = report.ReadJSON(f); err != nil {
		return fmt.Errorf("--compare %s: %w: give a file that --json has written", o.compare, err)
	}
	return nil
}

// emit writes a report in all requested forms. The error is errChanged if the comparison found a change.
func (o *output) emit(results []report.Result, stdout io.Writer) error {
	r := &report.Report{Time: time.Now().UTC(), Command: os.Args, Machine: o.machine, Results: results}
	for _, form := range []struct {
		path  string
		write func(io.Writer) error
	}{{o.json, r.WriteJSON}, {o.csv, r.WriteCSV}} {
		if err := writeTo(form.path, stdout, form.write); err != nil {
			return err
		}
	}
	if !o.quiet && o.json != "-" && o.csv != "-" {
		table := o.table
		if table == nil {
			table = (*report.Report).WriteTable
		}
		if err := table(r, stdout); err != nil {
			return err
		}
	}
	if o.plot != "" {
		if err := plot.Save(o.plot, drawn(r)); err != nil {
			return fmt.Errorf("plot %s: %w", o.plot, err)
		}
	}
	if o.old == nil {
		return nil
	}
	return o.compareWith(r, stdout)
}

func (o *output) compareWith(r *report.Report, stdout io.Writer) error {
	if o.quiet {
		stdout = io.Discard
	}
	changed, err := report.Compare(stdout, o.old, r)
	if err != nil {
		return fmt.Errorf("compare with %s: %w", o.compare, err)
	}
	if changed {
		return fmt.Errorf("compare with %s: %w", o.compare, errChanged)
	}
	return nil
}

// writeTo writes to a file, to standard output for "-", or nowhere for "".
func writeTo(path string, stdout io.Writer, write func(io.Writer) error) error {
	switch path {
	case "":
		return nil
	case "-":
		return write(stdout)
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return fmt.Errorf("write the report to %s: %w", path, err)
	}
	return nil
}
