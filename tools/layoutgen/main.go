// Layoutgen writes what Go and C share as text.
//
// From internal/layout/LAYOUT.txt it writes the C view of the arena's layout. The constants are in c/src/shm/layout.h. For each
// of them that a C structure must bear out, c/src/shm/layout_check.c has an assertion. Tests compare the text with the Go structures. From internal/layout/STATES.txt it writes the tables of the states of a connection, for Go and C.
//
//	go -C tools run ./layoutgen          # write the files
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
	headerFile       = "c/src/shm/layout.h"
	checkFile        = "c/src/shm/layout_check.c"
	goTableFile      = "endpoint/internal/cm/state_table.go"
	cTableHeaderFile = "c/src/endpoint/state_table.h"
	cTableFile       = "c/src/endpoint/state_table.c"
)

func main() {
	check := flag.Bool("check", false, "compare the files with their sources instead of writing them")
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
	files, err := generateAll()
	if err != nil {
		return err
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
			return fmt.Errorf("%s is out of date: run go -C tools run ./layoutgen", name)
		}
	}
	return nil
}

// generateAll returns all generated files. The folder is that of the repository.
func generateAll() (map[string][]byte, error) {
	text, err := os.ReadFile("internal/layout/STATES.txt")
	if err != nil {
		return nil, err
	}
	files, err := generateStates(string(text))
	if err != nil {
		return nil, fmt.Errorf("STATES.txt: %w", err)
	}
	files[headerFile], files[checkFile], err = generate(layout.Text)
	return files, err
}
