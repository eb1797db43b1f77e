// Conformancepage writes docs/conformance.md. For each part of package nd the page gives its name in NetworkDirect, the
// scenarios that use it, and whether they pass. For each row of the conformance table it says whether the row passes.
//
// The whole page is generated. The names come from the comments of package nd. The uses come from the types of package
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
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

const pageFile = "../docs/conformance.md"

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
	if !check {
		return os.WriteFile(pageFile, page, 0o644)
	}
	if old, err := os.ReadFile(pageFile); err != nil || !bytes.Equal(old, page) {
		return fmt.Errorf("%s is out of date (%v): run go -C tools run ./conformancepage", pageFile, err)
	}
	return nil
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
