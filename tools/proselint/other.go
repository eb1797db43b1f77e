package main

import (
	"regexp"
	"strings"
)

var trailing = regexp.MustCompile(` #+ `)

// fromScript extracts the comments of a shell script, a Makefile or a YAML file: the lines that begin with #, and the
// text after a # between blanks. A line with a quote before the # is left out, since the # may be part of a string.
func fromScript(_, text string) (ex extracted, err error) {
	var current block
	end := func() {
		if current.text != "" {
			ex.blocks = append(ex.blocks, joinCode(current))
		}
		current = block{kind: comment}
	}
	end()
	number := 0
	for line := range strings.Lines(text) {
		number++
		trimmed := strings.TrimSpace(line)
		words, isComment := strings.CutPrefix(trimmed, "#")
		switch {
		case strings.HasPrefix(trimmed, "#!"):
			end()
		case isComment:
			words = strings.Trim(words, "#")
			if strings.HasPrefix(words, "\t") || strings.HasPrefix(words, "  ") || strings.Trim(words, "- ") == "" {
				end() // a command, or a blank line
				break
			}
			current.add(strings.Trim(words, "- "), number)
		default:
			end()
			if at := trailing.FindStringIndex(trimmed); at != nil && !strings.ContainsAny(trimmed[:at[0]], `'"`) {
				current.add(trimmed[at[1]:], number)
				end()
			}
		}
	}
	end()
	return ex, nil
}

var (
	modelComment = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)
	modelName    = regexp.MustCompile(`\b[A-Za-z_]\w*\b`)
	diagram      = regexp.MustCompile(`\S {3,}\S`) // a line of two columns
	modelString  = regexp.MustCompile(`"[^"\n]*"`)
)

// fromC extracts the comments of a C file.
func fromC(_, text string) (extracted, error) {
	return extracted{blocks: cComments(text)}, nil
}

// cComments extracts the comments of a text in C or Promela.
func cComments(text string) (blocks []block) {
	current := block{kind: comment}
	last := -1 // line of the comment before
	end := func() {
		if current.text != "" {
			blocks = append(blocks, current)
		}
		current = block{kind: comment}
	}
	for _, at := range modelComment.FindAllStringIndex(text, -1) {
		first := 1 + strings.Count(text[:at[0]], "\n")
		begin := strings.LastIndexByte(text[:at[0]], '\n') + 1
		if first != last+1 || strings.TrimSpace(text[begin:at[0]]) != "" {
			end()
		}
		for i, line := range strings.Split(text[at[0]:at[1]], "\n") {
			line = strings.Trim(line, "/* \t-")
			if line == "" || diagram.MatchString(line) {
				end()
			} else {
				current.add(line, first+i)
			}
			last = first + i
		}
	}
	end()
	return blocks
}

// fromModel extracts the comments of a Spin model, and each of its names once.
func fromModel(_, text string) (ex extracted, err error) {
	ex.blocks = cComments(text)
	blank := func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) }
	rest := modelString.ReplaceAllStringFunc(modelComment.ReplaceAllStringFunc(text, blank), blank)
	seen := make(map[string]bool)
	for number, line := range strings.Split(rest, "\n") {
		for _, s := range modelName.FindAllString(line, -1) {
			if !seen[s] {
				seen[s] = true
				ex.blocks = append(ex.blocks, block{name, s, []mark{{0, number + 1}}})
			}
		}
	}
	return ex, nil
}
