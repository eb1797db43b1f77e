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
	for _, page := range append(pages, "../../../README.md", "../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range name.FindAllString(string(text), -1) {
			if !known[m] {
				t.Errorf("%s names %s, which is not in softnd.h", filepath.Base(page), m)
			}
		}
	}
}
