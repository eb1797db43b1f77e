// Proselint checks the English of the project: Markdown pages, Go comments, strings and names, and the comments of C
// files, Spin models, shell scripts and Makefiles. Most rules are in rules.txt. Three are in the code: the length of
// sentences, the form of error messages, and the first word of a doc comment.
//
//	go -C tools run ./proselint                    checks the whole tree
//	go -C tools run ./proselint endpoint nd/qp.go  checks directories and files
//	go -C tools run ./proselint -summary           counts the findings of each directory
//
// A finding is printed as file:line: "text": rule: advice, and the exit status is then 1. A long
// sentence is a warning only, because some thoughts need one. What allowed.txt lists is let through; an entry there that matches nothing is a finding in a check of the whole tree. The paths are relative to the root of the tree.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	summary := flag.Bool("summary", false, "count the findings of each directory and rule instead of printing them")
	flag.Parse()
	found, err := 0, os.Chdir("..")
	if err == nil {
		found, err = run(os.Stdout, *summary, flag.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "proselint:", err)
		os.Exit(2)
	}
	if found > 0 {
		os.Exit(1)
	}
}

// finding is one place that breaks a rule.
type finding struct {
	path    string
	line    int
	text    string // the words that are refused
	rule    string
	advice  string
	context string // the sentence or name that holds the text

	isWarning bool // for the author to consider; it fails nothing
}

func (f finding) String() string {
	rule := f.rule
	if f.isWarning {
		rule = "warning: " + rule
	}
	return fmt.Sprintf("%s:%d: %q: %s: %s", f.path, f.line, f.text, rule, f.advice)
}

// run checks the paths, or the whole tree if there are none, and returns the number of findings that are no
// warnings.
func run(out io.Writer, summary bool, paths []string) (int, error) {
	if _, err := os.Stat("go.mod"); err != nil {
		return 0, fmt.Errorf("%w: run it with go -C tools run ./proselint", err)
	}
	rules, err := parseRules(rulesText)
	if err != nil {
		return 0, fmt.Errorf("rules.txt: %w", err)
	}
	allowed, err := parseAllowed(allowedText)
	if err != nil {
		return 0, fmt.Errorf("allowed.txt: %w", err)
	}
	whole := len(paths) == 0
	if whole {
		paths = []string{"."}
	}
	files, err := filesIn(paths)
	if err != nil {
		return 0, err
	}
	var all []finding
	dirs := make(map[string]bool)
	for _, file := range files {
		if dir := path.Dir(file); !dirs[dir] {
			dirs[dir] = true
			for _, f := range checkName(rules, dir, name, path.Base(dir), 1) {
				f.path = dir
				all = append(all, f)
			}
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return 0, err
		}
		found, err := check(rules, file, string(text))
		if err != nil {
			return 0, err
		}
		all = append(all, found...)
	}
	all = slices.DeleteFunc(all, allowed.lets)
	if whole {
		all = append(all, allowed.unused()...)
	}
	printFindings(out, summary, all)
	all = slices.DeleteFunc(all, func(f finding) bool { return f.isWarning })
	return len(all), nil
}

// printFindings writes the findings, or their numbers.
func printFindings(out io.Writer, summary bool, all []finding) {
	w := bufio.NewWriter(out)
	defer w.Flush()
	if !summary {
		for _, f := range all {
			fmt.Fprintln(w, f)
		}
		return
	}
	byDir, byRule := make(map[string]int), make(map[string]int)
	for _, f := range all {
		byDir[path.Dir(f.path)]++
		byRule[f.rule]++
	}
	for _, counts := range []map[string]int{byDir, byRule} {
		for _, key := range slices.Sorted(maps.Keys(counts)) {
			fmt.Fprintf(w, "%6d %s\n", counts[key], key)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "%6d findings\n", len(all))
}

// filesIn lists the files to check below the paths. A path that names a file is checked if its kind is known.
func filesIn(paths []string) ([]string, error) {
	var files []string
	for _, p := range paths {
		p = strings.TrimSuffix(p, "/...")
		err := filepath.WalkDir(p, func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			name = filepath.ToSlash(filepath.Clean(name))
			if d.IsDir() {
				if isSkipped(name) {
					return filepath.SkipDir
				}
				return nil
			}
			if extractor(name) != nil {
				files = append(files, name)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(files)
	return slices.Compact(files), nil
}

// isSkipped reports whether a directory holds no prose of the project: inputs of tests, and git's own files. The module
// in ndtest's testdata is read, for providers take it as an example.
func isSkipped(dir string) bool {
	switch path.Base(dir) {
	case ".git":
		return true
	case "testdata":
		return dir != "nd/ndtest/testdata"
	}
	return false
}
