package main

import (
	"fmt"
	"strings"
)

//go:generate sh -c "go run . --man >../../docs/ndrun.1"

// exitStatus is the rule, as everything that is written about ndrun has it.
const exitStatus = `The exit status is 0 if every rank exited with 0, otherwise the code of the rank that failed first, ` +
	`where a rank killed by signal n counts as 128 + n; 128 + n too if signal n to ndrun ended the job before any rank failed, ` +
	`and 124 if --timeout did; 1 if ndrun itself failed, and 2 if it was called in a wrong way. ` +
	`A rank that aborts the job (softnd.Abort, MPI_Abort) counts as failed with the code that it gives, ` +
	`and one that has begun to use PMI and exits with 0 without finalizing as failed with 1.`

const description = `Runs programs as the ranks of a job on this host. Options end at the program's name; the program's own are never touched. ` +
	`A lone colon puts another program behind it, which continues the numbers of the ranks. ` +
	`A program is looked up as a shell does; for a directory that holds a Go package, the package is built first, and leaves no file behind.`

const variables = `A rank finds its number in SOFTND_RANK, the number of ranks in SOFTND_SIZE, the number of its program, from 0, in SOFTND_APPNUM, ` +
	`and the descriptor of the memory that the ranks share in SOFTND_ARENA_FD.`

// showManual shows the manual page, in the language of man(7).
func showManual(*command, string) error {
	var b strings.Builder
	b.WriteString(".\\\" Written by ndrun --man; a change belongs into cmd/ndrun.\n")
	b.WriteString(".TH NDRUN 1 \"\" softnd \"User Commands\"\n")
	b.WriteString(".ad l\n.nh\n")
	b.WriteString(".SH NAME\nndrun \\- run programs as the ranks of a softnd job on this host\n")
	fmt.Fprintf(&b, ".SH SYNOPSIS\n%s\n", roff(synopsis))
	fmt.Fprintf(&b, ".SH DESCRIPTION\n%s\n", roff(description))
	b.WriteString(".SH OPTIONS\nOne dash or two are the same. Options of the job hold wherever they stand.\n")
	for _, s := range sections {
		fmt.Fprintf(&b, ".SS %s\n", roff(strings.TrimSuffix(s.title, ":")))
		for _, o := range s.options {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(o.shown()), roff(o.help))
		}
	}
	fmt.Fprintf(&b, ".SH EXIT STATUS\n%s\n", roff(exitStatus))
	fmt.Fprintf(&b, ".SH ENVIRONMENT\n%s\n", roff(variables))
	b.WriteString(".SH EXAMPLES\n")
	for _, e := range examples {
		fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(e.line), roff(e.does))
	}
	b.WriteString(".SH SEE ALSO\n.BR mpiexec (1),\n.BR gdb (1),\n.BR taskset (1)\n")
	return text(b.String())
}

// roff escapes what man(7) would take for its own.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}
