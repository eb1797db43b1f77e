package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// report is the result of all checks.
type report struct {
	Starts   bool      `json:"starts"` // a job of that many ranks starts
	Ranks    int       `json:"ranks"`
	Checks   []check   `json:"checks"`
	Adapters []adapter `json:"adapters"`
}

// check is one line of the report.
type check struct {
	Host   string `json:"host,omitempty"` // of ndinfo --hosts: the host that has made the check
	Peer   string `json:"peer,omitempty"` // the other host of a pair
	Name   string `json:"name"`
	Status status `json:"status"`
	Found  string `json:"found"`            // the state of the feature
	Remedy string `json:"remedy,omitempty"` // how to improve it; "" if there is nothing to do
}

// text returns what was found, and the remedy.
func (c check) text() string {
	if c.Remedy == "" {
		return c.Found
	}
	return c.Found + "; " + c.Remedy
}

type status string

const (
	ok   status = "ok"
	warn status = "warn" // jobs start, but something will be slow, small or missing
	fail status = "fail" // a job of two ranks does not start
)

func good(name, format string, args ...any) check {
	return check{Name: name, Status: ok, Found: fmt.Sprintf(format, args...)}
}

func bad(s status, name, found, remedy string) check {
	return check{Name: name, Status: s, Found: found, Remedy: remedy}
}

// runChecks makes all checks, the trial job last.
func runChecks() *report {
	r := &report{Ranks: trialRanks, Adapters: []adapter{}}
	for _, c := range machineChecks {
		r.Checks = append(r.Checks, c())
	}
	job, adapters := bad(fail, jobCheck, "not tried, because the limit on processes is too low", ""), []adapter(nil)
	if r.check(processesCheck).Status != fail {
		job, adapters = tryJob()
	}
	if job.Status == fail && job.Remedy == "" {
		job.Remedy = "follow the message, or rerun under strace -f to see which call is refused"
		if r.failed() {
			job.Remedy = "fix the failed checks above first"
		}
	}
	r.Checks = append(r.Checks, job)
	r.Adapters = append(r.Adapters, adapters...)
	r.Starts = !r.failed()
	return r
}

// check returns the check of that name.
func (r *report) check(name string) check {
	for _, c := range r.Checks {
		if c.Name == name {
			return c
		}
	}
	return check{}
}

// failed reports whether any check failed. The trial job alone does not decide: it may succeed by
// chance if a limit is below the minimum.
func (r *report) failed() bool { return anyFailed(r.Checks) }

func (r *report) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range r.Checks {
		fmt.Fprintf(t, "%s\t%s\t%s\n", c.Status, c.Name, c.text())
	}
	for _, a := range r.Adapters {
		a.print(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	conclusion := fmt.Sprintf("A job of %d ranks starts here.", r.Ranks)
	if !r.Starts {
		conclusion = fmt.Sprintf("A job of %d ranks does not start here: see the lines that begin with fail.", r.Ranks)
	}
	_, err := fmt.Fprintf(w, "\n%s\n", conclusion)
	return err
}

func (r *report) printJSON(w io.Writer) error { return writeJSON(w, r) }
