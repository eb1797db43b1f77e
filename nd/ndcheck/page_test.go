package ndcheck_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/softnd/softnd/nd/ndcheck"
)

var update = flag.Bool("update", false, "write the rules of docs/check.md instead of comparing them")

const pageFile = "../../docs/check.md"

// The page ends with a section for each rule, with the text of the rule but without the fix, which reports have.
func TestPage(t *testing.T) {
	page, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := bytes.Cut(page, []byte("\n### "))
	b := bytes.NewBuffer(bytes.Clone(head))
	for _, r := range ndcheck.Rules() {
		fmt.Fprintf(b, "\n### %s\n\n%s: %s. %s\n", r.ID, r.Severity, r.Title, r.Why)
	}
	if *update {
		if err := os.WriteFile(pageFile, b.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(page, b.Bytes()) {
		t.Errorf("%s is out of date: run go test ./nd/ndcheck -run TestPage -update", pageFile)
	}
}
