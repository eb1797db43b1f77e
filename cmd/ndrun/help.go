package main

import (
	"fmt"
	"strings"

	"github.com/softnd/softnd/internal/goruntime"
)

const synopsis = "ndrun [option]... program [argument]... [: [option]... program [argument]...]..."

// example is a command line and its description.
type example struct{ line, does string }

var examples = []example{
	{"ndrun -n 4 --timeout 10m ./heat -verify", "4 ranks of an executable or a Go package"},
	{"ndrun -n 1 ./master : -n 3 ./worker", "rank 0 runs one program, ranks 1 to 3 another"},
}

func printHelp(*command, string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "usage: %s\n", synopsis)
	for _, e := range examples {
		fmt.Fprintf(&b, "  %-48s%s\n", e.line, e.does)
	}
	for _, s := range sections {
		fmt.Fprintf(&b, "\n%s\n", s.title)
		for _, o := range s.options {
			fmt.Fprintf(&b, "  %-24s %s\n", o.usage(), o.help)
		}
	}
	b.WriteString("One or two dashes are equivalent. Options of the job apply to all programs, wherever they are given.\n")
	return text(b.String())
}

// usage returns the option with its placeholder, as the help shows it.
func (o *option) usage() string {
	if o.value == "" && o.choices != "" {
		return o.names + "[=" + strings.ReplaceAll(o.choices, " ", "|") + "]"
	}
	return strings.TrimSpace(o.names + " " + o.value)
}

// printVersion prints the version of softnd of which this ndrun is a part.
func printVersion(*command, string) error {
	return text("ndrun (softnd) " + goruntime.BuildName() + "\n")
}
