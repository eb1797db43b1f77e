// Frozen prints the facts of a tree that a restructuring must not change: layout hash, conformance rows, tests, labels named
// ORDER, failpoints, models, tests of allocations, and public API. It also prints sizes, which are meant to change.
//
//	go -C tools run ./frozen                  prints the facts of this tree, sorted
//	go -C tools run ./frozen -of REV          prints those of a commit
//	go -C tools run ./frozen -since REV       prints what has changed since a commit; frozen/kept has the facts of some
//	go -C tools run ./frozen -speed REV       compares the speed of this tree with that of a commit
//
// A fact is a line of four fields, separated by tabs: its kind, its name, its value, and the files or packages where it is.
// A fact that has the same name and value elsewhere has moved. renamed.txt says which tests have other names. -since exits with 1 if a fact is lost or has another value.
//
// -speed builds ndbench of both and lets them measure alternately. The arguments are tests with their options; without any
// they are "posted -s 8" and "send_lat -s 8". It compares ratios to the limit of the machine as ndbench --compare does, and
// prints the quotient of the two ratios of a round: below 1, this tree is faster.
package main

import (
	"embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed kept
var kept embed.FS

func main() {
	tree := flag.String("tree", "..", "root `directory` of the tree")
	of := flag.String("of", "", "print the facts of a commit `REV` instead of the tree")
	since := flag.String("since", "", "print what has changed since a commit `REV`")
	than := flag.String("speed", "", "compare the speed with that of a commit `REV`")
	rounds := flag.Int("rounds", 30, "rounds of -speed")
	lang := flag.String("lang", "go", "languages of the ranks of -speed: go, c, go-c, c-go, or a list")
	flag.Parse()
	err := run(os.Stdout, *tree, *of, *since, *than, func(base string) error {
		return compareSpeed(os.Stdout, *tree, base, *rounds, *lang, flag.Args())
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "frozen:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, tree, of, since, than string, measure func(base string) error) error {
	switch {
	case than != "":
		return atCommit(tree, than, measure)
	case since != "":
		old, err := factsOf(tree, since)
		if err != nil {
			return err
		}
		facts, err := collect(tree)
		if err != nil {
			return err
		}
		if printChanges(out, rename(old, renamed), facts) {
			return errors.New("facts are lost or have changed")
		}
		return nil
	case of != "":
		return atCommit(tree, of, func(dir string) error { return printFacts(out, dir) })
	}
	return printFacts(out, tree)
}

// factsOf returns the kept facts of a commit, or else collects them.
func factsOf(tree, rev string) (facts []fact, err error) {
	if text, err := kept.ReadFile("kept/" + rev + ".txt"); err == nil {
		return parse(string(text)), nil
	}
	err = atCommit(tree, rev, func(dir string) error {
		facts, err = collect(dir)
		return err
	})
	return facts, err
}

// atCommit calls do with a temporary directory that contains the files of a commit.
func atCommit(tree, rev string, do func(dir string) error) error {
	dir, err := os.MkdirTemp("", "frozen-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	archive := filepath.Join(dir, "tar")
	if err := command(tree, "git", "archive", "-o", archive, rev); err != nil {
		return err
	}
	files := filepath.Join(dir, "tree")
	if err := os.Mkdir(files, 0o755); err != nil {
		return err
	}
	if err := command(files, "tar", "-xf", archive); err != nil {
		return err
	}
	return do(files)
}

// command runs a command in a directory. The error contains what it printed.
func command(dir, name string, args ...string) error {
	_, err := output(dir, name, args...)
	return err
}

func output(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	text, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%v: %w\n%s", cmd, err, text)
	}
	return string(text), nil
}

func printFacts(out io.Writer, tree string) error {
	facts, err := collect(tree)
	for _, f := range facts {
		fmt.Fprintln(out, f)
	}
	return err
}
