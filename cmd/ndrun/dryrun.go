package main

import (
	"fmt"
	"io"
	"os"

	"github.com/kballard/go-shellquote"

	"github.com/softnd/softnd/internal/numlist"
)

// show prints what would be started as each rank, with words quoted as for a shell.
func (p *plan) show(w io.Writer) {
	for i, r := range p.ranks {
		prog := p.programs[r.part]
		path := r.wrapperPath
		switch {
		case path != "":
		case prog.isPackage:
			path = "the Go package in " + shellquote.Join(prog.path) + ", built first"
		default:
			path = shellquote.Join(prog.path)
		}
		dir := p.command.parts[r.part].dir
		if dir == "" {
			dir, _ = os.Getwd() // else the ranks will not learn it either
		}
		fmt.Fprintf(w, "rank %d of %d\n", i, len(p.ranks))
		fmt.Fprintf(w, "  program      %s\n", path)
		fmt.Fprintf(w, "  arguments    %s\n", shellquote.Join(p.args(r)...))
		fmt.Fprintf(w, "  directory    %s\n", shellquote.Join(dir))
		fmt.Fprintf(w, "  environment  %s, besides ndrun's\n", shellquote.Join(append(p.env(r.part), p.rankEnv(i)...)...))
		fmt.Fprintf(w, "  processors   %s\n", numlist.Format(r.place.cpus))
		if p.command.stopped.has(i) {
			fmt.Fprintln(w, "  is stopped before its first instruction")
		}
	}
}
