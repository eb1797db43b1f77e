// Verbsnames writes the version scripts and the stubs of libibverbs.so.1 and librdmacm.so.1 from c/verbs/names.txt, and the page of
// calls that are not built.
//
//	go -C tools run ./verbsnames          # write the files
//	go -C tools run ./verbsnames -check   # fail if one of them is out of date
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
)

const listFile = "c/verbs/names.txt"

func main() {
	check := flag.Bool("check", false, "compare the files with the list instead of writing them")
	flag.Parse()
	if err := run(*check); err != nil {
		fmt.Fprintln(os.Stderr, "verbsnames:", err)
		os.Exit(1)
	}
}

func run(check bool) error {
	if err := os.Chdir(".."); err != nil {
		return err
	}
	text, err := os.ReadFile(listFile)
	if err != nil {
		return err
	}
	files, err := generate(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", listFile, err)
	}
	for name, want := range files {
		if !check {
			if err := os.WriteFile(name, want, 0o644); err != nil {
				return err
			}
			continue
		}
		if have, err := os.ReadFile(name); err != nil {
			return err
		} else if !bytes.Equal(have, want) {
			return fmt.Errorf("%s is out of date: run go -C tools run ./verbsnames", name)
		}
	}
	return nil
}
