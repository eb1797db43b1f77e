package main

import (
	"fmt"
	"strings"
)

const synopsis = "ndrun [option]... program [argument]... [: [option]... program [argument]...]..."

// example is a command line with what it does.
type example struct{ line, does string }

var examples = []example{
	{"ndrun -n 4 ./heat -verify", "4 ranks of a program, or of a Go package"},
	{"ndrun -n 1 ./master : -n 3 ./worker", "rank 0 runs one program, ranks 1 to 3 another"},
	{"ndrun -n 8 --timeout 10m --bind-to core ./heat", "stop it after 10 minutes; a core for each rank"},
	{"ndrun -n 4 --wrap 2:valgrind ./heat", "rank 2 under valgrind"},
	{"ndrun -n 4 --stop-at-start 0,2 ./heat", "ranks 0 and 2 wait for a debugger"},
}

func showHelp(*command, string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "usage: %s\n\n", synopsis)
	for _, e := range examples {
		fmt.Fprintf(&b, "  %-48s%s\n", e.line, e.does)
	}
	for _, s := range sections {
		fmt.Fprintf(&b, "\n%s\n", s.title)
		for _, o := range s.options {
			fmt.Fprintf(&b, "  %-24s %s\n", o.shown(), o.help)
		}
	}
	b.WriteString("\nOne dash or two are the same. Options of the job hold for all programs, wherever they stand.\n")
	return text(b.String())
}

// shown is the option with what follows it.
func (o *option) shown() string { return strings.TrimSpace(o.names + " " + o.value) }
