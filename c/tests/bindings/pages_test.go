package bindings

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Calls that the documentation names exist, in the header or the Fortran module.
func TestPagesNameCalls(t *testing.T) {
	pages, err := filepath.Glob("../../../docs/*.md")
	if err != nil || len(pages) < 20 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	known := map[string]bool{"snd_weak": true} // a file of the tests
	name := regexp.MustCompile(`\bsnd_[a-z0-9_]+`)
	for _, m := range name.FindAllString(read(t, "include/softnd/softnd.h")+strings.ToLower(read(t, "fortran/softnd.f90")), -1) {
		known[m] = true
	}
	internal := allNames(t, name) // functions of the library, which pages for maintainers name
	for _, page := range append(pages, "../../../README.md", "../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range name.FindAllString(string(text), -1) {
			base := filepath.Base(page)
			if !known[m] && !(maintainers[base] && internal[m]) {
				t.Errorf("%s names %s, which is not in softnd.h", base, m)
			}
		}
	}
}

// maintainers are the pages for people who change softnd. They may name any function of the library.
var maintainers = map[string]bool{"architecture.md": true, "new-request.md": true, "states.md": true}

// allNames returns the names in the sources of the library.
func allNames(t *testing.T, name *regexp.Regexp) map[string]bool {
	all := map[string]bool{}
	for _, m := range name.FindAllString(sources(t, "../../src/*/*.[ch]"), -1) {
		all[m] = true
	}
	return all
}

// sources returns the text of the files that match patterns.
func sources(t *testing.T, patterns ...string) string {
	var all strings.Builder
	for _, p := range patterns {
		files, err := filepath.Glob(p)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", p, len(files), err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(text)
		}
	}
	return all.String()
}

// The tables of steps name functions of Go and C, and after them in the cell the file that defines them.
func TestTablesOfStepsNameFunctions(t *testing.T) {
	rows := 0
	for _, page := range []string{"architecture.md", "model/README.md"} {
		text, err := os.ReadFile("../../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		inTable := false
		for line := range strings.Lines(string(text)) {
			inTable = strings.HasPrefix(line, "|") && (inTable || strings.HasPrefix(line, "| step | Go | C |"))
			if !inTable {
				continue
			}
			rows++
			cells := strings.Split(line, "|")
			checkCell(t, page, cells[2], "../../../", goFunction)
			checkCell(t, page, cells[3], "../../src/", cFunction)
		}
	}
	if rows < 60 {
		t.Errorf("found %d rows", rows)
	}
}

// Lines that begin the definition of a function: of a receiver, and with a name.
const (
	goFunction = `(?m)^func (\(\w+ \*?%s(?:\[\w+\])?\) )?%s\(`
	cFunction  = `(?m)^[A-Za-z]\w* [^;=\n]*\b%[2]s\(.*[^;\n]$`
)

// checkCell checks that each function in a cell is defined in the next file in it. Files without a folder are in root, or else in endpoint.
func checkCell(t *testing.T, page, cell, root, definition string) {
	var functions []string
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
		name := m[1]
		if ext := filepath.Ext(name); ext != ".go" && ext != ".c" && ext != ".h" {
			functions = append(functions, name)
			continue
		}
		if _, err := os.Stat(root + name); err != nil && !strings.Contains(name, "/") {
			name = "endpoint/" + name
		}
		text, err := os.ReadFile(root + name)
		if err != nil {
			t.Errorf("%s: %v", page, err)
		}
		for _, f := range functions {
			receiver, function, isMethod := strings.Cut(f, ".")
			if !isMethod {
				receiver, function = `\w+`, f
			}
			if !regexp.MustCompile(fmt.Sprintf(definition, receiver, function)).Match(text) {
				t.Errorf("%s: %s does not define %s", page, name, f)
			}
		}
		functions = nil
	}
	if len(functions) > 0 {
		t.Errorf("%s: no file after %v", page, functions)
	}
}

// The pages for people who change softnd name files that exist.
func TestPagesNameFiles(t *testing.T) {
	path := regexp.MustCompile("`([a-z][a-z0-9_]*/[a-zA-Z0-9_/.-]*\\.(?:go|c|h|txt|f90))`")
	found := 0
	for page := range maintainers {
		text, err := os.ReadFile("../../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range path.FindAllStringSubmatch(string(text), -1) {
			found++
			exists := false
			for _, root := range []string{"../../../", "../../src/"} {
				_, err := os.Stat(root + m[1])
				exists = exists || err == nil
			}
			if !exists {
				t.Errorf("%s names %s, which does not exist", page, m[1])
			}
		}
	}
	if found < 60 {
		t.Errorf("found %d files", found)
	}
}
