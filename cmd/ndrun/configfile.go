package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/kballard/go-shellquote"
)

// readConfigFile reads programs in the format of the MPI standard. Each line is a program with
// its options. Lines that begin with # are comments. A backslash at the end continues the line.
// Words are quoted as in a shell; a colon is an ordinary word.
func (c *command) readConfigFile() error {
	content, err := os.ReadFile(c.configFile)
	if err != nil {
		return fmt.Errorf("option -configfile: %w: check the path", err)
	}
	const byteOrderMark = "\ufeff" // some editors begin a file with it
	lines := strings.Split(strings.TrimPrefix(string(content), byteOrderMark), "\n")
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
	if len(c.apps) == 0 {
		return fmt.Errorf("%s: no program given: write one per line, such as -n 2 ./heat", c.configFile)
	}
	return nil
}

func (c *command) readConfigLine(words []string) error {
	if err := c.readApp(words); err != nil {
		return err
	}
	p := c.app()
	switch {
	case len(p.args) > 0:
	case p.appOption != "":
		return fmt.Errorf("no program given: name it after %s", p.appOption)
	default: // the line has options of the job only
		c.apps = c.apps[:len(c.apps)-1]
	}
	return nil
}
