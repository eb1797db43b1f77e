package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/cmd/internal/verbs"
	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/launcher"
)

// plan says what each rank runs, according to the command line.
type plan struct {
	command  *command
	programs []program // indexed by app
	ranks    []plannedRank
	files    []*os.File // built programs
	terminal bool       // standard output is a terminal
}

type plannedRank struct {
	app         int
	wrapper     []string // words before the program
	wrapperPath string
	place       place
}

// makePlan looks up all programs of the command line. It starts nothing.
func makePlan(c *command) (*plan, error) {
	p := &plan{command: c, terminal: linux.IsTerminal(os.Stdout) && !c.output.jsonLines}
	wrappers, err := c.findWrappers()
	if err != nil {
		return nil, err
	}
	places, err := c.binding.places()
	if err != nil {
		return nil, err
	}
	for i, part := range c.apps {
		prog, err := find("program", part.args[0])
		if err != nil {
			return nil, err
		}
		p.programs = append(p.programs, prog)
		if c.verbs != nil {
			if err := verbs.Check(append(os.Environ(), p.env(i)...)); err != nil {
				return nil, fmt.Errorf("option --verbs: %w", err)
			}
		}
		for range part.ranks {
			rank := len(p.ranks)
			r := plannedRank{app: i, wrapper: c.wrapper(rank), place: places[rank%len(places)]}
			if len(r.wrapper) > 0 {
				r.wrapperPath = wrappers[r.wrapper[0]]
			}
			p.ranks = append(p.ranks, r)
		}
	}
	return p, nil
}

// build builds the Go packages and source files among the programs, each once.
func (p *plan) build(stderr io.Writer, signals <-chan os.Signal) error {
	built := make(map[string]*os.File)
	for i := range p.programs {
		prog := &p.programs[i]
		if !prog.isBuilt() {
			continue
		}
		if built[prog.path] == nil {
			file, err := buildProgram(prog, stderr, signals)
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
	prog, given := p.programs[r.app], p.command.apps[r.app].args[1:]
	if len(r.wrapper) == 0 {
		return slices.Concat([]string{prog.name}, given)
	}
	path := prog.path
	switch {
	case prog.file != nil:
		// A path that works in any process, as long as this one lives: /proc/self would
		// be the wrapper, whose descriptors are others.
		path = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), prog.file.Fd())
	case prog.isBuilt():
		path = "(the program that is built)"
	}
	return slices.Concat(r.wrapper, []string{path}, given)
}

// env returns the variables of a program's ranks in addition to ndrun's environment.
func (p *plan) env(app int) []string {
	env := slices.Concat(p.command.env, p.command.apps[app].env)
	if v := p.command.verbs; v != nil {
		env = append(env, v.Env(slices.Concat(os.Environ(), env))...)
	}
	return env
}

// rankEnv returns the variables by which a rank finds its job.
func (p *plan) rankEnv(rank int) []string {
	var env []string
	if p.terminal {
		env = append(env, softnd.EnvTerminal+"=1")
	}
	return append(env,
		softnd.EnvRank+"="+strconv.Itoa(rank),
		softnd.EnvSize+"="+strconv.Itoa(len(p.ranks)),
		softnd.EnvAppNum+"="+strconv.Itoa(p.ranks[rank].app),
		softnd.EnvArenaFD+"="+strconv.Itoa(launcher.FirstFile))
}

// apps returns the programs for the launcher. Consecutive ranks that run the same program with
// the same arguments form one App.
func (p *plan) apps() []launcher.App {
	var apps []launcher.App
	for i, r := range p.ranks {
		if i > 0 && r.app == p.ranks[i-1].app && slices.Equal(r.wrapper, p.ranks[i-1].wrapper) {
			apps[len(apps)-1].Ranks++
			continue
		}
		prog := p.programs[r.app]
		a := launcher.App{
			Ranks:   1,
			Path:    prog.path,
			Program: prog.file,
			Args:    p.args(r),
			Dir:     p.command.apps[r.app].dir,
			Env:     append(os.Environ(), p.env(r.app)...),
		}
		if r.wrapperPath != "" {
			a.Path, a.Program = r.wrapperPath, nil
		}
		if i > 0 && r.app > p.ranks[i-1].app {
			a.After = p.command.apps[r.app].delay
			if p.command.apps[r.app].after == afterListen {
				a.Listeners = p.command.apps[r.app-1].ranks
			}
		}
		apps = append(apps, a)
	}
	return apps
}

// reportBindings reports where each rank may run.
func (p *plan) reportBindings(printError func(error)) {
	for rank, r := range p.ranks {
		printError(errors.New(p.command.binding.report(rank, r.place)))
	}
}
