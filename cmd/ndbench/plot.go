package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/softnd/softnd/bench/plot"
	"github.com/softnd/softnd/bench/report"
)

// newPlot returns the command that draws earlier reports.
func newPlot() *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:   "plot REPORT.json... --to FILE",
		Short: "Draw earlier reports of --json, several of them in one picture",
		RunE: func(_ *cobra.Command, paths []string) error {
			if len(paths) == 0 {
				return usageError{errors.New("plot: no report: give files that --json has written")}
			}
			o := output{plot: to}
			if to == "" {
				return usageError{errors.New("plot: no output file: give --to a name that ends with .png or .svg")}
			}
			if err := o.check(); err != nil {
				return usagef("plot: %w", err)
			}
			var reports []*report.Report
			for _, path := range paths {
				r, err := readReport(path)
				if err != nil {
					return fmt.Errorf("plot: %w", err)
				}
				r = drawn(r)
				r.Name = path
				reports = append(reports, r)
			}
			return plot.Save(to, reports...)
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "draw into this `file` .png or .svg")
	return cmd
}

// drawn returns the part of a report that a plot shows: all of it, or one line for each provider if there are several.
func drawn(r *report.Report) *report.Report {
	for _, one := range r.Results {
		if one.Provider != r.Results[0].Provider {
			return curves(r)
		}
	}
	return r
}
