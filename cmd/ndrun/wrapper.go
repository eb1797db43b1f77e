package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kballard/go-shellquote"
)

// wrap is a command that is started instead of some ranks' program. The program and its arguments
// follow the words of the command.
type wrap struct {
	ranks rankSet
	words []string // never empty
}

func addWrap(c *command, s string) error {
	ranks, line, ok := strings.Cut(s, ":")
	if !ok {
		return errors.New("want RANKS:COMMAND, such as 0:'gdb --args' or all:valgrind")
	}
	set, err := parseRanks(ranks)
	if err != nil {
		return err
	}
	words, err := shellquote.Split(line)
	if err != nil {
		return fmt.Errorf("split %q into words: %w", line, err)
	}
	if len(words) == 0 {
		return errors.New("no command after the colon: want RANKS:COMMAND")
	}
	c.wraps = append(c.wraps, wrap{set, words})
	return nil
}

// wrapper returns the words that precede rank's program. The first of several wraps is the
// outermost.
func (c *command) wrapper(rank int) []string {
	var words []string
	for _, w := range c.wraps {
		if w.ranks.has(rank) {
			words = append(words, w.words...)
		}
	}
	return words
}

// findWrappers looks up the wrapping commands as a shell does, and returns the path of each.
func (c *command) findWrappers() (map[string]string, error) {
	paths := make(map[string]string)
	for _, w := range c.wraps {
		p, err := find("wrapper", w.words[0])
		if err != nil {
			return nil, err
		}
		switch {
		case p.isPackage:
			return nil, fmt.Errorf("find wrapper %s: is a directory: give an executable", w.words[0])
		case p.language != nil:
			return nil, fmt.Errorf("find wrapper %s: is a source file: give an executable", w.words[0])
		}
		paths[w.words[0]] = p.path
	}
	return paths, nil
}
