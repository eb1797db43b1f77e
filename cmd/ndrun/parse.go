package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/agnivade/levenshtein"
)

// text is what an option such as -help prints instead of starting a job.
type text string

func (t text) Error() string { return string(t) }

// parse reads the command line. It returns a text if an option only asks for one; any
// other error says what to change.
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
		return nil, fmt.Errorf(`read the command line: %w; "ndrun -h" shows the options`, err)
	}
	return c, nil
}

// readLine reads parts with colons between them.
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
		if err := c.readPart(words); err != nil {
			return err
		}
		switch named := len(c.part().args) > 0; {
		case c.configFile != "" && i == 0 && len(parts) == 1 && !named:
			if given := c.part().given; given != "" {
				return fmt.Errorf("%s belongs to a program: put it into a line of %s", given, c.configFile)
			}
			c.parts = nil // those of the file take its place
		case c.configFile != "":
			return fmt.Errorf("the programs stand in %s: name none here as well, or leave -configfile out", c.configFile)
		case !named && len(parts) == 1:
			return errors.New("no program is named; put it behind the options")
		case !named:
			return fmt.Errorf("part %d of %d names no program; put one behind its options, or take a colon away", i+1, len(parts))
		}
	}
	return nil
}

// readPart reads the options up to a program, and leaves the program's own alone.
func (c *command) readPart(words []string) error {
	p := &part{ranks: 1}
	c.parts = append(c.parts, p)
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

// readOption reads the option that words begin with and returns how many words it took.
func (c *command) readOption(words []string) (used int, err error) {
	name, value, joined := strings.Cut(words[0], "=")
	o, perPart := findOption(name)
	if o == nil {
		return 0, fmt.Errorf("unknown option %s%s", name, nearest(name))
	}
	used = 1
	switch {
	case o.value == "" && joined:
		return 0, fmt.Errorf("option %s takes no value; leave %q out", name, "="+value)
	case o.value != "" && !joined:
		if len(words) < 2 {
			return 0, fmt.Errorf("option %s needs a value: %s %s", name, name, o.value)
		}
		value, used = words[1], 2
	}
	if first, _, two := strings.Cut(o.value, " "); two && !strings.Contains(value, "=") {
		if len(words) <= used {
			return 0, fmt.Errorf("option %s needs two words: %s %s, or %s %s=VALUE", name, name, o.value, name, first)
		}
		value += "=" + words[used]
		used++
	}
	if perPart {
		c.part().given = name
	}
	if err := o.set(c, value); err != nil {
		if _, asked := err.(text); asked {
			return 0, err
		}
		return 0, fmt.Errorf("invalid value %q for %s: %w", value, name, err)
	}
	return used, nil
}

// findOption finds an option by a name with one dash or two.
func findOption(name string) (o *option, perPart bool) {
	bare := withoutDashes(name)
	for _, s := range sections {
		for i := range s.options {
			for _, known := range s.options[i].allNames() {
				if known == bare {
					return &s.options[i], s.perPart
				}
			}
		}
	}
	return nil, false
}

// withoutDashes takes one dash or two away.
func withoutDashes(name string) string {
	return strings.TrimPrefix(strings.TrimPrefix(name, "-"), "-")
}

// foreign are names of other launchers' options, and what ndrun calls them.
var foreign = map[string]string{
	"ranks": "-n", "nranks": "-n", "procs": "-n", "nprocs": "-n", "processes": "-n", "ntasks": "-n", "c": "-n",
	"cwd": "-wdir", "chdir": "-wdir", "workdir": "-wdir", "export": "-x", "time-limit": "--timeout", "walltime": "--timeout",
	"bind": "--bind-to", "cpu-bind": "--bind-to", "tag-output": "--label", "prepend-rank": "--label",
}

// nearest is what to put behind an unknown option: the one that was perhaps meant.
func nearest(name string) string {
	bare := withoutDashes(name)
	if own, ok := foreign[strings.ToLower(bare)]; ok {
		return "; did you mean " + own + "?"
	}
	best, distance := "", len(bare)/3+1 // of more slips than that nobody would recognise it
	for _, s := range sections {
		for _, o := range s.options {
			for shown := range strings.SplitSeq(o.names, ", ") {
				if len(bare) > 1 && strings.HasPrefix(withoutDashes(shown), bare) {
					return "; did you mean " + shown + "?"
				}
				if d := levenshtein.ComputeDistance(bare, withoutDashes(shown)); d <= distance && (best == "" || d < distance) {
					best, distance = shown, d
				}
			}
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

// check looks at what can be judged only when everything has been read.
func (c *command) check() error {
	if n := c.size(); n > maxRanks {
		return fmt.Errorf("%d ranks in %d parts: a job has 1 to %d", n, len(c.parts), maxRanks)
	}
	for _, w := range c.wraps {
		if err := w.ranks.within(c.size()); err != nil {
			return fmt.Errorf("--wrap %s:%s: %w", w.ranks.text, w.words[0], err)
		}
	}
	if err := c.stopped.within(c.size()); err != nil {
		return fmt.Errorf("--stop-at-start %s: %w", c.stopped.text, err)
	}
	if err := c.output.check(c.size()); err != nil {
		return err
	}
	for _, p := range c.parts {
		if p.dir != "" {
			// Shells and Go programs ask PWD for the name by which the user knows the place.
			p.env = append(p.env, "PWD="+p.dir)
		}
	}
	return nil
}
