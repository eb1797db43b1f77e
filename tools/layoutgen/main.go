// Layoutgen writes the C view of the arena's layout: the constants in c/src/shm/layout.h, and in
// c/src/shm/layout_check.c an assertion for each of them that a C structure must bear out. Its source is
// internal/layout/LAYOUT.txt, which tests compare with the Go structures.
//
//	go -C tools run ./layoutgen          # write both files
//	go -C tools run ./layoutgen -check   # fail if one of them is out of date
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"

	"github.com/softnd/softnd/internal/layout"
)

const (
	headerFile = "c/src/shm/layout.h"
	checkFile  = "c/src/shm/layout_check.c"
)

func main() {
	check := flag.Bool("check", false, "compare the files with internal/layout/LAYOUT.txt instead of writing them")
	flag.Parse()
	if err := run(*check); err != nil {
		fmt.Fprintln(os.Stderr, "layoutgen:", err)
		os.Exit(1)
	}
}

func run(check bool) error {
	if err := os.Chdir(".."); err != nil {
		return err
	}
	header, asserts, err := generate(layout.Text)
	if err != nil {
		return err
	}
	for name, want := range map[string][]byte{headerFile: header, checkFile: asserts} {
		if !check {
			if err := os.WriteFile(name, want, 0o644); err != nil {
				return err
			}
			continue
		}
		if have, err := os.ReadFile(name); err != nil {
			return err
		} else if !bytes.Equal(have, want) {
			return fmt.Errorf("%s is out of date: run go -C tools run ./layoutgen", name)
		}
	}
	return nil
}
