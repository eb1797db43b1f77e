// Package vectors holds inputs with their results, for what Go and C must do alike. A test of each package that does such a thing,
// and c/tests/vectors.c, compute the results and compare.
//
// A file has one case a line: words, a colon, and the words of the result. Numbers are hexadecimal, and bytes are pairs of
// hexadecimal digits, or - if there are none. A line that begins with # is a comment.
package vectors

import (
	"embed"
	"encoding/hex"
	"strconv"
	"strings"
	"testing"
)

//go:embed *.txt
var files embed.FS

// Case is the words of a case before the colon.
type Case struct {
	t     testing.TB
	place string
	words []string
}

// Check calls result for each case of a file, in order, and reports those with another result.
func Check(t testing.TB, file string, result func(c Case) string) {
	t.Helper()
	text, err := files.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for i, line := range strings.Split(string(text), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		in, want, ok := strings.Cut(line, ":")
		c := Case{t, file + ":" + strconv.Itoa(i+1), strings.Fields(in)}
		if !ok || len(c.words) == 0 {
			t.Fatalf("%s: %q is no case", c.place, line)
		}
		if got := result(c); got != strings.TrimSpace(want) {
			t.Errorf("%s: %s:\n have %s\n want %s", c.place, strings.TrimSpace(in), got, strings.TrimSpace(want))
		}
		count++
	}
	if count == 0 {
		t.Fatalf("%s has no cases", file)
	}
}

// Kind returns the first word, which says what a case is about.
func (c Case) Kind() string { return c.words[0] }

// Words returns the words from i on.
func (c Case) Words(i int) []string { return c.words[i:] }

// Number returns word i as a number.
func (c Case) Number(i int) uint64 {
	n, err := strconv.ParseUint(c.words[i], 16, 64)
	if err != nil {
		c.t.Fatalf("%s: %v", c.place, err)
	}
	return n
}

// Bytes returns word i as bytes.
func (c Case) Bytes(i int) []byte {
	if c.words[i] == "-" {
		return nil
	}
	b, err := hex.DecodeString(c.words[i])
	if err != nil {
		c.t.Fatalf("%s: %v", c.place, err)
	}
	return b
}

// Hex returns the word for bytes.
func Hex(b []byte) string {
	if len(b) == 0 {
		return "-"
	}
	return hex.EncodeToString(b)
}
