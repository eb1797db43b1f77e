package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/softnd/softnd/launcher"
)

const usage = `usage: ndrun [-n N] [-wdir DIR] [-env K=V]... program [argument]...

Runs program as N ranks of one job. If program is a directory that holds a Go
package, it is built first.

  -n N, -np N   number of ranks, 1 to 1024 (default 1)
  -wdir DIR     directory in which the ranks start (default: this one)
  -env K=V      variable for the ranks, besides those of ndrun; may be repeated
`

// options is the command line.
type options struct {
	ranks int
	dir   string   // absolute, or "" for the current one
	env   []string // "name=value"
	args  []string // the program and its arguments; never empty
}

var errHelp = flag.ErrHelp

// parse reads the command line up to the program's name. It returns errHelp if the
// user asked for help; any other error says what to change.
func parse(args []string) (*options, error) {
	o := &options{ranks: 1}
	fs := flag.NewFlagSet("ndrun", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // errors are printed by the caller
	fs.Func("n", "", o.setRanks)
	fs.Func("np", "", o.setRanks)
	fs.StringVar(&o.dir, "wdir", "", "")
	fs.Func("env", "", func(s string) error {
		if name, _, ok := strings.Cut(s, "="); !ok || name == "" {
			return errors.New("it must have the form NAME=VALUE")
		}
		o.env = append(o.env, s)
		return nil
	})
	const hint = `"ndrun -h" shows the options`
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, errHelp
		}
		return nil, fmt.Errorf("read the command line: %w; %s", err, hint)
	}
	o.args = fs.Args()
	if len(o.args) == 0 {
		return nil, fmt.Errorf("read the command line: no program is named; put it behind the options; %s", hint)
	}
	if o.dir == "" {
		return o, nil
	}
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return nil, fmt.Errorf("find the working directory %s: %w", o.dir, err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("find the working directory of the ranks: %w; give -wdir one that exists", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("find the working directory of the ranks: %s is not a directory; give -wdir one", o.dir)
	}
	o.dir = dir
	// Shells and Go programs ask PWD for the name by which the user knows the place.
	o.env = append(o.env, "PWD="+dir)
	return o, nil
}

func (o *options) setRanks(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > launcher.MaxRanks {
		return fmt.Errorf("a job has 1 to %d ranks", launcher.MaxRanks)
	}
	o.ranks = n
	return nil
}
