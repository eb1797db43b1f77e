package bindings

import (
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
	files, err := filepath.Glob("../../src/*/*.[ch]")
	if err != nil || len(files) < 100 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	all := map[string]bool{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range name.FindAllString(string(text), -1) {
			all[m] = true
		}
	}
	return all
}
