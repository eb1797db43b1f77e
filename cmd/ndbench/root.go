package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/softnd/softnd/bench/measure"
	"github.com/softnd/softnd/internal/goruntime"
)

// newRoot returns the command with its subcommands: one for each test, and others.
func newRoot(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:           "ndbench",
		Version:       goruntime.BuildName(),
		Short:         "Measure softnd, and next to it the limits of the machine",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs, // so that an unknown test is ours to explain
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return unknownTest(cmd, args[0])
		},
		SuggestionsMinimumDistance: 2,
	}
	root.SetVersionTemplate("ndbench (softnd) {{.Version}}\n")
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w; see ndbench help %s", err, cmd.Name())
	})
	root.AddCommand(newList(measure.Tests()), newSuite(), newPeers(), newPlot())
	for _, t := range measure.Tests() {
		root.AddCommand(newTest(t))
	}
	return root
}

func unknownTest(root *cobra.Command, name string) error {
	near := root.SuggestionsFor(name)
	if len(near) == 0 {
		return usagef("unknown test or command %q: ndbench list shows all tests", name)
	}
	return usagef("unknown test or command %q: did you mean %s?", name, strings.Join(near, " or "))
}

func newList(tests []measure.Test) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the tests",
		Args:  none,
		Run: func(cmd *cobra.Command, _ []string) {
			for _, t := range tests {
				fmt.Fprintf(cmd.OutOrStdout(), "%-17s %s\n", t.Name, t.Title)
			}
		},
	}
}

// none refuses arguments that are not options.
func none(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s: unexpected argument %q: options begin with --; see ndbench help %s", cmd.Name(), args[0], cmd.Name())
	}
	return nil
}

// newTest returns the command of one test.
func newTest(t measure.Test) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   t.Name,
		Short: t.Title,
		Args:  none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return usagef("%s: %w", t.Name, err)
			}
			if err := t.Check(o.Options, [2]bool{}); err != nil {
				return usageError{err}
			}
			if err := o.checkLanguages(t); err != nil {
				return usagef("%s: %w", t.Name, err)
			}
			return o.runTest(cmd, t)
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}
