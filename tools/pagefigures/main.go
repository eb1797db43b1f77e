// Pagefigures writes measured figures into the pages of the documentation, so that each figure is the same in all of them. The
// figures are those of the report docs/figures.json. A page names each figure in place. Pagefigures generates the text after the
// name, up to the next comment:
//
//	takes <!--figure posted size=8 depth=1-->23 ns<!--/--> here
//
// The first word is a test of the report, or "machine" for the machine. The others are settings of the result. With
// show=ratio, limit or range, the text is the ratio to the limit, the limit, or the interval, instead of the value.
//
// It also writes the picture of the packages and their imports, between <!--imports--> and <!--/imports-->.
//
//	go -C tools run ./pagefigures            writes the pages
//	go -C tools run ./pagefigures -check     names the differences, one in a line
//	go -C tools run ./pagefigures -measure   measures, writes the report and the pictures, then the pages
//
// Measure on an idle machine.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/softnd/softnd/bench/report"
)

const source = "docs/figures.json"

func main() {
	check := flag.Bool("check", false, "write nothing, and name each figure that differs from the report")
	again := flag.Bool("measure", false, "measure first")
	quick := flag.Bool("quick", false, "with -measure, fewer repeats, and no pictures")
	flag.Parse()
	if err := run(*check, *again, *quick); err != nil {
		fmt.Fprintln(os.Stderr, "pagefigures:", err)
		os.Exit(1)
	}
}

func run(check, again, quick bool) error {
	if err := os.Chdir(".."); err != nil {
		return err
	}
	if again {
		if err := measure(source, quick); err != nil {
			return err
		}
	}
	f, err := os.Open(source)
	if err != nil {
		return fmt.Errorf("%w: run it with go -C tools run ./pagefigures", err)
	}
	defer f.Close()
	rep, err := report.ReadJSON(f)
	if err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	paths, err := pages()
	if err != nil {
		return err
	}
	for _, path := range paths {
		err = errors.Join(err, page(path, rep, check))
	}
	return err
}

// pages returns all pages that may contain figures.
func pages() (all []string, err error) {
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// page writes the figures of one page. With check, it prints the differences instead.
func page(path string, rep *report.Report, check bool) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text, changes, err := fill(string(old), rep)
	if err == nil {
		var pictures []change
		text, pictures, err = fillPicture(text)
		changes = append(changes, pictures...)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if check {
		for _, c := range changes {
			fmt.Printf("%s:%d: %s is %q in the report and %q here: run go -C tools run ./pagefigures\n", path, c.line, c.name, c.want, c.have)
		}
		return nil
	}
	if text == string(old) {
		return nil
	}
	return os.WriteFile(path, []byte(text), 0o666)
}
