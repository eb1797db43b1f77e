// Command ndinfo tells whether softnd jobs start on this machine, and what they find there: the
// adapter with its limits, and each thing of the machine that softnd needs or can use.
//
//	ndinfo          one line for each: ok, warn or fail, with a remedy where there is one
//	ndinfo --json   the same as one JSON object
//
// It exits with 0 if a default job would start, with 1 if not, and with 2 for wrong arguments.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main with everything that it touches as arguments; it returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("ndinfo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	asJSON := flags.Bool("json", false, "print one JSON object instead of lines")
	flags.Usage = func() {
		fmt.Fprintln(stderr, "usage: ndinfo [--json]\n\nTells whether softnd jobs start on this machine.")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		if err == flag.ErrHelp {
			return 0
		}
		return 2
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "ndinfo: unexpected argument %q; ndinfo takes only --json\n", flags.Arg(0))
		return 2
	}
	r := survey()
	write := r.print
	if *asJSON {
		write = r.printJSON
	}
	if err := write(stdout); err != nil {
		fmt.Fprintln(stderr, "ndinfo: writing the report:", err)
		return 1
	}
	if !r.Starts {
		return 1
	}
	return 0
}

// report is all that ndinfo finds out.
type report struct {
	Starts   bool      `json:"starts"` // a default job would start
	Checks   []check   `json:"checks"`
	Adapters []adapter `json:"adapters"`
}

// check is one line of the report.
type check struct {
	Name   string `json:"name"`
	Status status `json:"status"`
	Found  string `json:"found"`            // what is there
	Remedy string `json:"remedy,omitempty"` // what to do about it
}

type status string

const (
	ok   status = "ok"
	warn status = "warn" // jobs start, but something will be slow, small or missing
	fail status = "fail" // a default job does not start
)

func good(name, format string, args ...any) check {
	return check{Name: name, Status: ok, Found: fmt.Sprintf(format, args...)}
}

func bad(s status, name, found, remedy string) check {
	return check{Name: name, Status: s, Found: found, Remedy: remedy}
}

// survey makes all checks.
func survey() *report {
	r := &report{Adapters: []adapter{}}
	for _, c := range machineChecks {
		r.Checks = append(r.Checks, c())
	}
	job, adapters := tryJob()
	r.Checks = append(r.Checks, job)
	r.Adapters = append(r.Adapters, adapters...)
	// The trial decides, not the signs.
	r.Starts = job.Status != fail
	return r
}

func (r *report) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range r.Checks {
		text := c.Found
		if c.Remedy != "" {
			text += "; " + c.Remedy
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", c.Status, c.Name, text)
	}
	for _, a := range r.Adapters {
		fmt.Fprintf(t, "\nadapter %s at %s\n", a.ID, strings.Join(a.Addresses, ", "))
		for _, l := range a.limits() {
			fmt.Fprintf(t, "  %s\t%s\n", l.name, l.value)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	conclusion := "A default job starts here."
	if !r.Starts {
		conclusion = "A default job does not start here: see the lines that begin with fail."
	}
	_, err := fmt.Fprintf(w, "\n%s\n", conclusion)
	return err
}

func (r *report) printJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}
