package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/softnd/softnd/bench/plot"
	"github.com/softnd/softnd/bench/report"
)

// newPlot draws reports that were written earlier.
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
				reports = append(reports, drawn(r))
			}
			return plot.Save(to, reports...)
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "draw into this `file` .png or .svg")
	return cmd
}

// drawn is what a picture shows of a report: all of it, or where it sets providers
// side by side one line for each.
func drawn(r *report.Report) *report.Report {
	for _, one := range r.Results {
		if one.Provider != r.Results[0].Provider {
			return curves(r)
		}
	}
	return r
}
