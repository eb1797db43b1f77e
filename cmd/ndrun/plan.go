package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/launcher"
)

// plan is what becomes of the command line: what each rank is.
type plan struct {
	command  *command
	programs []program // by part
	ranks    []plannedRank
	files    []*os.File // what was built
	terminal bool       // what ranks print goes to a terminal
}

type plannedRank struct {
	part        int
	wrapper     []string // words that stand before the program
	wrapperPath string
	place       place
}

// makePlan finds everything that the command line names, and starts nothing.
func makePlan(c *command) (*plan, error) {
	p := &plan{command: c, terminal: launcher.IsTerminal(os.Stdout) && !c.output.jsonLines}
	wrappers, err := c.findWrappers()
	if err != nil {
		return nil, err
	}
	places, err := c.binding.places()
	if err != nil {
		return nil, err
	}
	for i, part := range c.parts {
		prog, err := find("program", part.args[0])
		if err != nil {
			return nil, err
		}
		p.programs = append(p.programs, prog)
		for range part.ranks {
			rank := len(p.ranks)
			r := plannedRank{part: i, wrapper: c.wrapper(rank), place: places[rank%len(places)]}
			if len(r.wrapper) > 0 {
				r.wrapperPath = wrappers[r.wrapper[0]]
			}
			p.ranks = append(p.ranks, r)
		}
	}
	return p, nil
}

// build builds the Go packages among the programs, each once.
func (p *plan) build(stderr io.Writer, signals <-chan os.Signal) error {
	built := make(map[string]*os.File)
	for i := range p.programs {
		prog := &p.programs[i]
		if !prog.isPackage {
			continue
		}
		if built[prog.path] == nil {
			file, err := build(prog.path, prog.name, stderr, signals)
			if err != nil {
				return err
			}
			built[prog.path] = file
			p.files = append(p.files, file)
		}
		prog.file = built[prog.path]
	}
	return nil
}

func (p *plan) close() {
	for _, file := range p.files {
		file.Close()
	}
}

// args are the arguments of a rank, from argv[0] on.
func (p *plan) args(r plannedRank) []string {
	prog, given := p.programs[r.part], p.command.parts[r.part].args[1:]
	if len(r.wrapper) == 0 {
		return slices.Concat([]string{prog.name}, given)
	}
	path := prog.path
	switch {
	case prog.file != nil:
		// A path that works in any process, as long as this one lives: /proc/self would
		// be the wrapper, whose descriptors are others.
		path = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), prog.file.Fd())
	case prog.isPackage:
		path = "(the program that is built)"
	}
	return slices.Concat(r.wrapper, []string{path}, given)
}

// env are the variables that the ranks of a part have besides ndrun's own.
func (p *plan) env(part int) []string {
	return slices.Concat(p.command.env, p.command.parts[part].env)
}

// rankEnv are the variables by which a rank finds its job.
func (p *plan) rankEnv(rank int) []string {
	var env []string
	if p.terminal {
		env = append(env, softnd.EnvTerminal+"=1")
	}
	return append(env,
		softnd.EnvRank+"="+strconv.Itoa(rank),
		softnd.EnvSize+"="+strconv.Itoa(len(p.ranks)),
		softnd.EnvAppNum+"="+strconv.Itoa(p.ranks[rank].part),
		softnd.EnvArenaFD+"="+strconv.Itoa(launcher.FirstFile))
}

// parts are the programs for the launcher: neighbours that run the same with the same
// arguments are one.
func (p *plan) parts() []launcher.Part {
	var parts []launcher.Part
	for i, r := range p.ranks {
		if i > 0 && r.part == p.ranks[i-1].part && slices.Equal(r.wrapper, p.ranks[i-1].wrapper) {
			parts[len(parts)-1].Ranks++
			continue
		}
		prog := p.programs[r.part]
		part := launcher.Part{
			Ranks:   1,
			Path:    prog.path,
			Program: prog.file,
			Args:    p.args(r),
			Dir:     p.command.parts[r.part].dir,
			Env:     append(os.Environ(), p.env(r.part)...),
		}
		if r.wrapperPath != "" {
			part.Path, part.Program = r.wrapperPath, nil
		}
		parts = append(parts, part)
	}
	return parts
}

// reportBindings tells where each rank may run.
func (p *plan) reportBindings(complain func(error)) {
	for rank, r := range p.ranks {
		complain(errors.New(p.command.binding.report(rank, r.place)))
	}
}
