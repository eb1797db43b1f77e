// Package layouttest compares structures and words of an arena with their descriptions in LAYOUT.txt.
package layouttest

import (
	"fmt"
	"math/bits"
	"reflect"
	"strings"
	"testing"

	"github.com/softnd/softnd/internal/layout"
)

// Sections returns the sections of LAYOUT.txt by their first lines.
func Sections() map[string]string {
	m := make(map[string]string)
	for section := range strings.SplitSeq(strings.TrimSpace(layout.Text), "\n\n") {
		title, _, _ := strings.Cut(section, "\n")
		m[title] = strings.TrimSpace(section) + "\n"
	}
	return m
}

// Check fails the test if LAYOUT.txt lacks one of the sections, or has others whose first lines begin
// with one of prefixes.
func Check(t *testing.T, prefixes []string, sections ...string) {
	t.Helper()
	have := Sections()
	for _, want := range sections {
		title, _, _ := strings.Cut(want, "\n")
		if have[title] != want {
			t.Errorf("internal/layout/LAYOUT.txt should have a section\n%s", want)
		}
		delete(have, title)
	}
	for title := range have {
		for _, prefix := range prefixes {
			if strings.HasPrefix(title, prefix) {
				t.Errorf("internal/layout/LAYOUT.txt has a section %q, which describes nothing in this package", title)
			}
		}
	}
}

// Struct returns the section for a structure T: one line for each field, with offset, size and name.
// It omits blank fields, which are padding.
func Struct[T any](name string) string {
	t := reflect.TypeFor[T]()
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d bytes\n", name, t.Size())
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Name == "_" {
			continue
		}
		fmt.Fprintf(&b, "  %4d %4d %s\n", f.Offset, f.Type.Size(), f.Name)
	}
	return b.String()
}

// Bits returns the line that describes some bits of a word.
func Bits(mask uint64, meaning string) string {
	first, last := bits.TrailingZeros64(mask), bits.Len64(mask)-1
	switch {
	case mask>>first != 1<<(last-first+1)-1:
		return fmt.Sprintf("  mask %#x has holes\n", mask)
	case first == last:
		return fmt.Sprintf("  bit      %d %s\n", first, meaning)
	}
	return fmt.Sprintf("  bits %2d..%2d %s\n", first, last, meaning)
}
