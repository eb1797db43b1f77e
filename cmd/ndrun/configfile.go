package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/kballard/go-shellquote"
)

// readConfigFile reads the parts of the job from lines as the MPI standard has them:
// each line is a part, one that begins with # a comment, and a backslash at the end
// continues the line on the next. Words are quoted as in a shell, a colon is one like
// any other.
func (c *command) readConfigFile() error {
	content, err := os.ReadFile(c.configFile)
	if err != nil {
		return fmt.Errorf("-configfile: %w; check the path", err)
	}
	lines := strings.Split(string(content), "\n")
	for i := 0; i < len(lines); i++ {
		first, line := i+1, strings.TrimSuffix(lines[i], "\r")
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		for strings.HasSuffix(line, `\`) && i+1 < len(lines) {
			i++
			line = strings.TrimSuffix(line, `\`) + " " + strings.TrimSuffix(lines[i], "\r")
		}
		words, err := shellquote.Split(line)
		if err == nil && len(words) > 0 {
			err = c.readConfigLine(words)
		}
		if err != nil {
			if _, asked := err.(text); asked {
				return err
			}
			return fmt.Errorf("%s:%d: %w", c.configFile, first, err)
		}
	}
	if len(c.parts) == 0 {
		return fmt.Errorf("%s has no line with a program; write one a line, such as: -n 2 ./heat", c.configFile)
	}
	return nil
}

func (c *command) readConfigLine(words []string) error {
	if err := c.readPart(words); err != nil {
		return err
	}
	p := c.part()
	switch {
	case len(p.args) > 0:
	case p.given != "":
		return fmt.Errorf("no program is named; put it behind %s", p.given)
	default: // options of the job alone, which hold for all lines
		c.parts = c.parts[:len(c.parts)-1]
	}
	return nil
}
