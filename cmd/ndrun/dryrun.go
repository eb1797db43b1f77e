package main

import (
	"fmt"
	"io"
	"os"

	"github.com/kballard/go-shellquote"

	"github.com/softnd/softnd/internal/linux"
)

// print prints what would be started as each rank, with words quoted for a shell.
func (p *plan) print(w io.Writer) {
	for i, r := range p.ranks {
		prog := p.programs[r.app]
		path := r.wrapperPath
		switch {
		case path != "":
		case prog.language != nil:
			path = prog.language.name + " source " + shellquote.Join(prog.path) + ", built first"
		case prog.isPackage:
			path = "Go package in " + shellquote.Join(prog.path) + ", built first"
		default:
			path = shellquote.Join(prog.path)
		}
		dir := p.command.apps[r.app].dir
		if dir == "" {
			dir, _ = os.Getwd() // "" if the directory has no name
		}
		fmt.Fprintf(w, "rank %d of %d\n", i, len(p.ranks))
		fmt.Fprintf(w, "  program      %s\n", path)
		fmt.Fprintf(w, "  arguments    %s\n", shellquote.Join(p.args(r)...))
		fmt.Fprintf(w, "  directory    %s\n", shellquote.Join(dir))
		fmt.Fprintf(w, "  environment  %s, in addition to ndrun's\n", shellquote.Join(append(p.env(r.app), p.rankEnv(i)...)...))
		fmt.Fprintf(w, "  processors   %s\n", linux.FormatList(r.place.cpus))
		if when := p.command.apps[r.app].after; when != "" {
			fmt.Fprintf(w, "  starts       --after %s\n", when)
		}
		if p.command.stopped.has(i) {
			fmt.Fprintln(w, "  stopped before its first instruction")
		}
	}
}
