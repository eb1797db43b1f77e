// Conformancepage writes docs/conformance.md. For each part of package nd the page gives its name in NetworkDirect, the
// scenarios that use it, and whether they pass. For each row of the conformance table it says whether the row passes.
// The texts of the rows are in nd/ndtest/ROWS.txt, which it writes too.
//
// Both files are generated. The names come from the comments of package nd. The uses come from the types of package
// ndtest and of the tests of packages nd and endpoint. The results come from runs of the suite. The page contains no
// results of other tests.
//
//	go -C tools run ./conformancepage                 runs the suite and writes the page
//	go -C tools run ./conformancepage -check          runs the suite and fails if the page is out of date
//	go -C tools run ./conformancepage -results FILE   takes the results that TestConformance of package endpoint has
//	                                                  written into the file that SOFTND_CONFORMANCE names
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/softnd/softnd/nd/ndtest"
)

const (
	pageFile = "../docs/conformance.md"
	rowsFile = "../nd/ndtest/ROWS.txt"
)

func main() {
	check := flag.Bool("check", false, "compare the page with the results instead of writing it")
	results := flag.String("results", "", "a `file` of results; the suite is run if there is none")
	flag.Parse()
	if err := run(*check, *results); err != nil {
		fmt.Fprintln(os.Stderr, "conformancepage:", err)
		os.Exit(1)
	}
}

// results are what TestConformance writes.
type results struct {
	Runs   []Run
	Tables []Table
}

func run(check bool, file string) error {
	if file == "" {
		dir, err := os.MkdirTemp("", "conformance-*")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		file = filepath.Join(dir, "results.json")
		if err := runSuite(file); err != nil {
			return err
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var r results
	if err := json.Unmarshal(text, &r); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	page, err := Render("..", r.Runs, r.Tables)
	if err != nil {
		return err
	}
	return errors.Join(put(check, pageFile, page), put(check, rowsFile, rowTexts()))
}

// put writes a file, or compares it.
func put(check bool, name string, text []byte) error {
	if !check {
		return os.WriteFile(name, text, 0o644)
	}
	if old, err := os.ReadFile(name); err != nil || !bytes.Equal(old, text) {
		return fmt.Errorf("%s is out of date (%v): run go -C tools run ./conformancepage", name, err)
	}
	return nil
}

// rowTexts is the file of the rows of the suite, with the property that each of them checks.
func rowTexts() []byte {
	var b bytes.Buffer
	for _, s := range ndtest.Scenarios() {
		fmt.Fprintf(&b, "%s %s\n", s.ID, s.Title)
	}
	return b.Bytes()
}

// runSuite lets TestConformance write its results into a file.
func runSuite(file string) error {
	cmd := exec.Command("go", "test", "-count=1", "-run", "TestConformance$", "./endpoint")
	cmd.Dir, cmd.Env = "..", append(os.Environ(), "SOFTND_CONFORMANCE="+file)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd, err, text)
	}
	return nil
}
