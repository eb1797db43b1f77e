package main

import (
	"regexp"
	"strings"
)

// code takes the place of inline code, so that a sentence with it keeps its words.
const code = "_"

var (
	inlineCode  = regexp.MustCompile("``[^`]+``|`[^`]+`")
	htmlComment = regexp.MustCompile(`<!--.*?-->|</?[a-z][^>]*>`)
	link        = regexp.MustCompile(`!?\[([^\]]*)\](\([^)]*\)|\[[^\]]*\])`)
	listItem    = regexp.MustCompile(`^\s*([-*+]|\d+[.)])\s+(\[[ x]\] )?`)
	tableRule   = regexp.MustCompile(`^\|?[\s|:-]+\|?$`)
	emphasis    = strings.NewReplacer("**", "", "__", "")
)

// plain removes the markup of a line. Inline code that ends in another line stays.
func plain(s string) string {
	s = inlineCode.ReplaceAllString(s, code)
	s = htmlComment.ReplaceAllString(s, "")
	s = link.ReplaceAllString(s, "$1")
	return emphasis.Replace(s)
}

// fromMarkdown extracts headings, paragraphs, items of lists and cells of tables. It leaves out fenced and indented code.
// It also leaves out a generated page, because the strings in the program that writes it are checked.
func fromMarkdown(_, text string) (ex extracted, err error) {
	if lead := text[:min(len(text), 200)]; strings.Contains(lead, "generates this page") {
		return ex, nil
	}
	var current block
	end := func() {
		if current.text != "" {
			ex.blocks = append(ex.blocks, joinCode(current))
		}
		current = block{kind: page}
	}
	end()
	fence, inCode, inList, inTable, wasBlank := "", false, false, false, true
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, " \t\r\n")
		trimmed := strings.TrimSpace(line)
		if fence != "" {
			if strings.HasPrefix(trimmed, fence) {
				fence = ""
			}
			continue
		}
		if strings.HasPrefix(trimmed, "```") || strings.HasPrefix(trimmed, "~~~") {
			end()
			fence = trimmed[:3]
			continue
		}
		isIndented := strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "\t")
		isItem := listItem.MatchString(line)
		if trimmed == "" {
			end()
			wasBlank, inTable = true, false
			continue
		}
		if isIndented && !isItem && !inList && (wasBlank || inCode) {
			inCode, wasBlank = true, false
			continue
		}
		inCode = false
		switch {
		case strings.HasPrefix(trimmed, "#"):
			end()
			current.kind = heading
			current.add(plain(strings.TrimLeft(trimmed, "# ")), number)
			end()
			inList = false
		case strings.HasPrefix(trimmed, "|"):
			end()
			if tableRule.MatchString(trimmed) {
				break
			}
			for _, cell := range cells(trimmed) {
				if !inTable {
					current.kind = heading
				}
				current.add(plain(cell), number)
				end()
			}
			inTable = true
		case isItem:
			end()
			inList = true
			current.add(listItem.ReplaceAllString(line, ""), number)
		default:
			if wasBlank && !strings.HasPrefix(line, " ") {
				inList = false
			}
			current.add(strings.TrimLeft(trimmed, "> "), number)
		}
		wasBlank = false
	}
	end()
	return ex, nil
}

// joinCode removes the markup of a block. A line whose last span ends in the next line is joined with it, so a finding
// there has the number of the first of these lines.
func joinCode(b block) block {
	clean := block{kind: b.kind}
	for i, m := range b.at {
		end := len(b.text)
		if i+1 < len(b.at) {
			end = b.at[i+1].offset
		}
		part := strings.TrimSpace(b.text[m.offset:end])
		if n := len(clean.at); n > 0 && isOpen(clean.text[clean.at[n-1].offset:]) {
			clean.text += " " + part
			continue
		}
		clean.add(part, m.line)
	}
	out := block{kind: b.kind}
	for i, m := range clean.at {
		end := len(clean.text)
		if i+1 < len(clean.at) {
			end = clean.at[i+1].offset
		}
		out.add(strings.TrimSpace(plain(clean.text[m.offset:end])), m.line)
	}
	return out
}

// isOpen reports whether a span of code, a link or an HTML comment begins in the text and does not end there.
func isOpen(s string) bool {
	s = inlineCode.ReplaceAllString(s, code)
	if strings.Contains(s, "`") {
		return true
	}
	s = htmlComment.ReplaceAllString(s, "")
	s = link.ReplaceAllString(s, "$1")
	return strings.LastIndex(s, "<!--") > strings.LastIndex(s, "-->") || strings.LastIndex(s, "[") > strings.LastIndex(s, "]") ||
		openTarget.MatchString(s)
}

var openTarget = regexp.MustCompile(`\]\([^)]*$`)

// cells splits a row of a table at the bars outside code.
func cells(row string) (all []string) {
	row = strings.ReplaceAll(row, `\|`, "/")
	row = inlineCode.ReplaceAllString(row, code)
	for _, c := range strings.Split(strings.Trim(row, "|"), "|") {
		if c = strings.TrimSpace(c); c != "" {
			all = append(all, c)
		}
	}
	return all
}
