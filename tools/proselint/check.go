package main

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxWords is the number of words in the longest sentence without a warning. The style asks for 25; 30 leaves room for a
// sentence that names several objects.
const maxWords = 30

// block is text of one kind: a paragraph, an item of a list, a table's cell, a string, a name.
type block struct {
	kind kind
	text string
	at   []mark // where its lines begin
}

// mark says that the text from offset on comes from a line of the file.
type mark struct{ offset, line int }

// add appends a line's text to the block.
func (b *block) add(text string, line int) {
	if b.text != "" {
		b.text += " "
	}
	b.at = append(b.at, mark{len(b.text), line})
	b.text += text
}

func (b *block) lineOf(offset int) int {
	line := 0
	for _, m := range b.at {
		if m.offset > offset {
			break
		}
		line = m.line
	}
	return line
}

// extracted is everything in a file that rules apply to, and the findings of rules that need its syntax.
type extracted struct {
	blocks   []block
	findings []finding
}

// extractor returns the function that extracts the prose of a file, nil if its kind is not known.
func extractor(file string) func(file, text string) (extracted, error) {
	base := path.Base(file)
	switch path.Ext(base) {
	case ".go":
		return fromGo
	case ".md":
		return fromMarkdown
	case ".pml":
		return fromModel
	case ".c", ".h":
		return fromC
	case ".sh", ".yml", ".yaml", ".mk":
		return fromScript
	}
	if base == "Makefile" || base == "CODEOWNERS" || base == "go.mod" || path.Base(path.Dir(file)) == ".ci" {
		return fromScript
	}
	return nil
}

// check applies the rules to a file.
func check(rules []rule, file, text string) ([]finding, error) {
	ex, err := extractor(file)(file, text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	ex.blocks = append(ex.blocks, nameOfFile(file))
	found := ex.findings
	for i := range ex.blocks {
		found = append(found, checkBlock(rules, file, &ex.blocks[i])...)
	}
	for i := range found {
		found[i].path = file
	}
	slices.SortStableFunc(found, func(a, b finding) int { return cmp.Compare(a.line, b.line) })
	return found, nil
}

func checkBlock(rules []rule, file string, b *block) (found []finding) {
	switch b.kind {
	case name, field, test:
		return checkName(rules, file, b.kind, b.text, b.lineOf(0))
	}
	for _, s := range sentences(b.text) {
		text := b.text[s[0]:s[1]]
		for i := range rules {
			if !rules[i].isFor(b.kind, file) {
				continue
			}
			for _, at := range rules[i].matches(text) {
				found = append(found, finding{line: b.lineOf(s[0] + at[0]), text: strings.TrimSpace(text[at[0]:at[1]]),
					rule: rules[i].name, advice: rules[i].advice, context: text})
			}
		}
		if b.kind == comment || b.kind == page {
			found = append(found, checkLength(b, text, s[0])...)
		}
		for _, at := range nameInProse.FindAllStringIndex(text, -1) {
			found = append(found, checkName(rules, file, name, text[at[0]:at[1]], b.lineOf(s[0]+at[0]))...)
		}
	}
	return found
}

// checkLength checks the length of a sentence at an offset in the block. A semicolon ends it too, for the sake of
// enumerations.
func checkLength(b *block, text string, offset int) (found []finding) {
	for part := range strings.SplitSeq(text, ";") {
		if n := countWords(part); n > maxWords {
			found = append(found, finding{line: b.lineOf(offset), text: firstWords(part), rule: "length", isWarning: true,
				advice: fmt.Sprintf("the sentence has %d words: are they one thought? (at most %d read easily)", n, maxWords), context: text})
		}
		offset += len(part) + 1
	}
	return found
}

// nameInProse is a name with capitals inside, or the label of a synchronising pair.
var nameInProse = regexp.MustCompile(`\b[A-Za-z]+[a-z][A-Z][A-Za-z]*\b|\bORDER [a-z][a-z-]*(, [a-z][a-z-]*)*`)

func checkName(rules []rule, file string, k kind, text string, line int) (found []finding) {
	words := text
	if k != test {
		words = splitName(text)
	}
	for i := range rules {
		if !rules[i].isFor(k, file) {
			continue
		}
		if at := rules[i].matches(words); len(at) > 0 {
			found = append(found, finding{line: line, text: text, rule: rules[i].name, advice: rules[i].advice, context: text})
		}
	}
	return found
}

// splitName writes a name as its words: "freeList" as "-free-list-", "HTTPProxy" as "-http-proxy-".
func splitName(s string) string {
	var words strings.Builder
	runes := []rune(s)
	words.WriteByte('-')
	for i, r := range runes {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			words.WriteByte('-')
			continue
		}
		if i > 0 && unicode.IsUpper(r) &&
			(!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			words.WriteByte('-')
		}
		words.WriteRune(unicode.ToLower(r))
	}
	words.WriteByte('-')
	return manyHyphens.ReplaceAllString(words.String(), "-")
}

var manyHyphens = regexp.MustCompile(`-+`)

// nameOfFile returns the file's name without what follows its first full stop.
func nameOfFile(file string) block {
	base, _, _ := strings.Cut(strings.TrimPrefix(path.Base(file), "."), ".")
	return block{name, base, []mark{{0, 1}}}
}

// abbreviations end with a full stop that ends no sentence.
var abbreviations = map[string]bool{"e.g": true, "i.e": true, "vs": true, "cf": true, "etc": true, "no": true}

// sentences returns where the sentences of a text begin and end.
func sentences(text string) (all [][2]int) {
	start := 0
	for i := 0; i < len(text); i++ {
		if !strings.ContainsRune(".?!", rune(text[i])) {
			continue
		}
		end := i + 1
		for end < len(text) && strings.IndexByte("\"')]*_", text[end]) >= 0 {
			end++
		}
		next := end
		for next < len(text) && text[next] == ' ' {
			next++
		}
		if next == end && end < len(text) {
			continue
		}
		if r, _ := utf8.DecodeRuneInString(text[next:]); end < len(text) && unicode.IsLower(r) {
			continue
		}
		word := text[start:i]
		word = strings.ToLower(strings.TrimLeft(word[strings.LastIndexByte(word, ' ')+1:], "("))
		if text[i] == '.' && end < len(text) && abbreviations[word] {
			continue
		}
		all = append(all, [2]int{start, end})
		start, i = next, next-1
	}
	if start < len(text) {
		all = append(all, [2]int{start, len(text)})
	}
	return all
}

// countWords counts what has a letter or a digit, or is the place of inline code.
func countWords(text string) (n int) {
	for _, f := range strings.Fields(text) {
		if strings.ContainsFunc(f, func(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }) {
			n++
		}
	}
	return n
}

func firstWords(text string) string {
	words := strings.Fields(text)
	if len(words) > 6 {
		words = append(words[:6:6], "...")
	}
	return strings.Join(words, " ")
}
