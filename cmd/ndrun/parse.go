package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/agnivade/levenshtein"
)

// text is what an option such as -help prints. The option returns it as an error.
type text string

func (t text) Error() string { return string(t) }

// parse parses the command line. It returns a text if an option only prints something. Any other
// error says what to change.
func parse(args []string) (*command, error) {
	c := &command{}
	err := c.readLine(args)
	var asked text
	if errors.As(err, &asked) {
		return nil, asked
	}
	if err == nil && c.configFile != "" {
		err = c.readConfigFile()
		if errors.As(err, &asked) {
			return nil, asked
		}
	}
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return nil, fmt.Errorf(`parse command line: %w; "ndrun -h" lists the options`, err)
	}
	return c, nil
}

// readLine parses programs that are separated by colons.
func (c *command) readLine(args []string) error {
	parts := [][]string{nil}
	for _, arg := range args {
		if arg == ":" {
			parts = append(parts, nil)
			continue
		}
		parts[len(parts)-1] = append(parts[len(parts)-1], arg)
	}
	for i, words := range parts {
		if err := c.readApp(words); err != nil {
			return err
		}
		switch named := len(c.app().args) > 0; {
		case c.configFile != "" && i == 0 && len(parts) == 1 && !named:
			if given := c.app().appOption; given != "" {
				return fmt.Errorf("option %s: belongs to a program: move it to a line of %s", given, c.configFile)
			}
			c.apps = nil // the file has the programs
		case c.configFile != "":
			return fmt.Errorf("option -configfile: programs are given both in %s and on the command line: remove one of them", c.configFile)
		case !named && len(parts) == 1:
			return errors.New("no program given: name it after the options")
		case !named:
			return fmt.Errorf("program %d of %d: no program given: name it after its options or remove a colon", i+1, len(parts))
		}
	}
	return nil
}

// readApp parses the options up to the name of a program. The following words are the program's
// own.
func (c *command) readApp(words []string) error {
	p := &app{ranks: 1}
	c.apps = append(c.apps, p)
	for len(words) > 0 {
		word := words[0]
		if word == "--" {
			words = words[1:]
			break
		}
		if !strings.HasPrefix(word, "-") || word == "-" {
			break
		}
		used, err := c.readOption(words)
		if err != nil {
			return err
		}
		words = words[used:]
	}
	p.args = words
	return nil
}

// readOption parses the option at the start of words and returns the number of words that it
// took.
func (c *command) readOption(words []string) (used int, err error) {
	name, value, joined := strings.Cut(words[0], "=")
	o, perApp := findOption(name)
	if o == nil {
		return 0, fmt.Errorf("unknown option %s%s", name, suggestion(name))
	}
	used = 1
	switch {
	case o.value == "" && joined && o.choices == "":
		return 0, fmt.Errorf("option %s: unexpected value %q: remove it", name, value)
	case o.value != "" && !joined:
		if len(words) < 2 {
			return 0, fmt.Errorf("option %s: value missing: want %s %s", name, name, o.value)
		}
		value, used = words[1], 2
	}
	if first, _, two := strings.Cut(o.value, " "); two && !strings.Contains(value, "=") {
		if len(words) <= used {
			return 0, fmt.Errorf("option %s: value missing: want %s %s or %s %s=VALUE", name, name, o.value, name, first)
		}
		value += "=" + words[used]
		used++
	}
	if perApp {
		c.app().appOption = name
	}
	if err := o.set(c, value); err != nil {
		if _, asked := err.(text); asked {
			return 0, err
		}
		if o.value == "" && !joined {
			return 0, fmt.Errorf("option %s: %w", name, err)
		}
		return 0, fmt.Errorf("option %s: invalid value %q: %w", name, value, err)
	}
	return used, nil
}

// findOption returns the option with a name that has one or two dashes; nil if there is none.
func findOption(name string) (o *option, perApp bool) {
	bare := withoutDashes(name)
	for _, s := range sections {
		for i := range s.options {
			for _, known := range s.options[i].allNames() {
				if known == bare {
					return &s.options[i], s.perApp
				}
			}
		}
	}
	return nil, false
}

// withoutDashes removes up to two leading dashes.
func withoutDashes(name string) string {
	return strings.TrimPrefix(strings.TrimPrefix(name, "-"), "-")
}

// otherNames maps option names of other launchers to ours.
var otherNames = map[string]string{
	"ranks": "-n", "nranks": "-n", "procs": "-n", "nprocs": "-n", "processes": "-n", "ntasks": "-n", "c": "-n",
	"cwd": "-wdir", "chdir": "-wdir", "workdir": "-wdir", "export": "-x", "time-limit": "--timeout", "walltime": "--timeout",
	"bind": "--bind-to", "cpu-bind": "--bind-to", "tag-output": "--label", "prepend-rank": "--label",
}

// suggestion returns the end of the message about an unknown option: the option that was probably
// meant, or "".
func suggestion(unknown string) string {
	bare := strings.TrimLeft(unknown, "-")
	if own, ok := otherNames[strings.ToLower(bare)]; ok {
		return ": did you mean " + own + "?"
	}
	if name := strings.TrimRight(unknown, "0123456789"); name != unknown {
		if o, _ := findOption(name); o != nil && o.value != "" {
			return ": did you mean " + name + " " + unknown[len(name):] + "?"
		}
	}
	best, bestDistance := "", 0
	for _, s := range sections {
		for _, o := range s.options {
			for name := range strings.SplitSeq(o.names, ", ") {
				known := withoutDashes(name)
				if len(bare) > 1 && strings.HasPrefix(known, bare) {
					return ": did you mean " + name + "?"
				}
				d := levenshtein.ComputeDistance(bare, known)
				if isNear(d, bare, known) && (best == "" || d < bestDistance) {
					best, bestDistance = name, d
				}
			}
		}
	}
	if best == "" {
		return ""
	}
	return ": did you mean " + best + "?"
}

// isNear reports whether one of two words is a likely misspelling of the other, by their edit
// distance. At least half of a short word, and two thirds of a long one, must be right.
func isNear(distance int, a, b string) bool {
	return 2*distance <= min(len(a), len(b)) && distance <= len(a)/3+1
}

// check checks what depends on several options.
func (c *command) check() error {
	if n := c.size(); n > maxRanks {
		return fmt.Errorf("invalid number of ranks %d (in %d programs): want 1 to %d", n, len(c.apps), maxRanks)
	}
	if when := c.apps[0].after; when != "" {
		return fmt.Errorf("option --after %s: no program is before the first one: move it behind a colon", when)
	}
	for _, w := range c.wraps {
		if err := w.ranks.checkSize(c.size()); err != nil {
			return fmt.Errorf("option --wrap %s:%s: %w", w.ranks.text, w.words[0], err)
		}
	}
	if err := c.stopped.checkSize(c.size()); err != nil {
		return fmt.Errorf("option --stop-at-start %s: %w", c.stopped.text, err)
	}
	if err := c.output.check(c.size()); err != nil {
		return err
	}
	if c.checkIgnore != nil && !c.watch {
		return errors.New("option --check-ignore has no effect without --check: add --check")
	}
	for _, p := range c.apps {
		if p.dir != "" {
			// Shells and Go programs take the name of their working directory from PWD.
			p.env = append(p.env, "PWD="+p.dir)
		}
	}
	return nil
}
