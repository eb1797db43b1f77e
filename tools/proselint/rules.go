package main

import (
	_ "embed"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

//go:embed rules.txt
var rulesText string

//go:embed allowed.txt
var allowedText string

// kind says where a text comes from.
type kind string

const (
	comment kind = "comment"
	page    kind = "page"
	heading kind = "heading"
	quoted  kind = "string"
	name    kind = "name"
	field   kind = "field"
	test    kind = "test"
)

var (
	proseKinds = []kind{comment, page, heading, quoted}
	allKinds   = []kind{comment, page, heading, quoted, name, field, test}
)

// rule is one paragraph of rules.txt.
type rule struct {
	name      string
	in        []kind
	only, not []string // paths
	find      *regexp.Regexp
	unless    []*regexp.Regexp
	advice    string
	bad, good []string
}

// parseRules reads rules.txt.
func parseRules(text string) ([]rule, error) {
	var rules []rule
	for _, paragraph := range strings.Split(text, "\n\n") {
		var r rule
		for line := range strings.Lines(paragraph) {
			line = strings.TrimSpace(line)
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			key, value, ok := strings.Cut(line, ": ")
			if !ok {
				return nil, fmt.Errorf("%q: no key", line)
			}
			if err := r.set(key, value); err != nil {
				return nil, fmt.Errorf("%q: %w", line, err)
			}
		}
		if r.name == "" && r.find == nil {
			continue
		}
		if r.name == "" || r.find == nil || r.advice == "" || len(r.bad) == 0 || len(r.good) == 0 {
			return nil, fmt.Errorf("rule %q, find %v: wants rule, find, say or do, bad and good", r.name, r.find)
		}
		if r.in == nil {
			r.in = proseKinds
		}
		rules = append(rules, r)
	}
	return rules, nil
}

func (r *rule) set(key, value string) (err error) {
	switch key {
	case "rule":
		r.name = value
	case "in":
		for _, f := range strings.Fields(value) {
			if !slices.Contains(allKinds, kind(f)) {
				return fmt.Errorf("unknown kind %q: want some of %v", f, allKinds)
			}
			r.in = append(r.in, kind(f))
		}
	case "only":
		r.only = strings.Fields(value)
	case "not":
		r.not = strings.Fields(value)
	case "find":
		r.find, err = regexp.Compile("(?i)" + value)
	case "unless":
		var e *regexp.Regexp
		e, err = regexp.Compile("(?i)" + value)
		r.unless = append(r.unless, e)
	case "say":
		r.advice = "say " + value + " instead"
	case "do":
		r.advice = value
	case "bad":
		r.bad = append(r.bad, value)
	case "good":
		r.good = append(r.good, value)
	default:
		return fmt.Errorf("unknown key %q", key)
	}
	return err
}

// isFor reports whether the rule applies to a kind of text in a file.
func (r *rule) isFor(k kind, file string) bool {
	below := func(p string) bool { return isBelow(file, p) }
	return slices.Contains(r.in, k) && !slices.ContainsFunc(r.not, below) && (r.only == nil || slices.ContainsFunc(r.only, below))
}

// matches returns the spans in text that the rule refuses.
func (r *rule) matches(text string) [][]int {
	found := r.find.FindAllStringIndex(text, -1)
	if found == nil {
		return nil
	}
	return slices.DeleteFunc(found, func(at []int) bool {
		for _, e := range r.unless {
			for _, good := range e.FindAllStringIndex(text, -1) {
				if good[0] < at[1] && at[0] < good[1] {
					return true
				}
			}
		}
		return false
	})
}

// isBelow reports whether file is p, below the directory p, or matches the pattern p.
func isBelow(file, p string) bool {
	if matched, _ := path.Match(p, file); matched {
		return true
	}
	return strings.HasPrefix(file, strings.TrimSuffix(p, "/")+"/")
}

// exception is one line of allowed.txt.
type exception struct {
	line              int
	path, rule, words string
	used              bool
}

type exceptions []*exception

// parseAllowed reads allowed.txt: a path, a rule, words that the sentence or name holds, and a reason in each line,
// separated by bars.
func parseAllowed(text string) (exceptions, error) {
	var all exceptions
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		cells := strings.Split(line, "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if len(cells) != 4 || slices.Contains(cells, "") {
			return nil, fmt.Errorf("line %d: want path | rule | words | reason", number)
		}
		all = append(all, &exception{line: number, path: cells[0], rule: cells[1], words: strings.ToLower(cells[2])})
	}
	return all, nil
}

// lets reports whether a finding is allowed.
func (all exceptions) lets(f finding) bool {
	for _, e := range all {
		if e.rule == f.rule && isBelow(f.path, e.path) && strings.Contains(strings.ToLower(f.context), e.words) {
			e.used = true
			return true
		}
	}
	return false
}

// unused returns a finding for each entry that has let nothing through.
func (all exceptions) unused() (found []finding) {
	for _, e := range all {
		if !e.used {
			found = append(found, finding{path: "tools/proselint/allowed.txt", line: e.line, text: e.words, rule: "unused",
				advice: "the entry allows nothing: delete it"})
		}
	}
	return found
}
