package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// hostsReport is the result of ndinfo --hosts.
type hostsReport struct {
	Starts bool        `json:"starts"` // no check failed
	Hosts  []hostFacts `json:"hosts"`
	Checks []check     `json:"checks"`
}

// hostFacts is what the leader of a host tells the others.
type hostFacts struct {
	Name         string `json:"name"`
	Address      string `json:"address,omitempty"`
	Softnd       string `json:"softnd"` // version
	Layout       string `json:"layout"`
	Architecture string `json:"architecture"`
	Ndrelay      string `json:"ndrelay,omitempty"` // version
	Protocol     int    `json:"protocol,omitempty"`
	Libfabric    string `json:"libfabric,omitempty"`
	Provider     string `json:"provider,omitempty"`

	Probe string `json:"probe,omitempty"` // address of its probeServer
}

// labelsOf returns a name of each host for people: its own, or its number if another host has the same.
func labelsOf(hosts []hostFacts) []string {
	count := make(map[string]int)
	for _, h := range hosts {
		count[h.Name]++
	}
	labels := make([]string, len(hosts))
	for i, h := range hosts {
		if labels[i] = h.Name; count[h.Name] > 1 || h.Name == "" {
			labels[i] = fmt.Sprintf("host-%d", i)
		}
	}
	return labels
}

// add appends checks, which are indexed by host.
func (r *hostsReport) add(labels []string, checks [][]check) {
	for host, some := range checks {
		for _, c := range some {
			c.Host = labels[host]
			r.Checks = append(r.Checks, c)
		}
	}
}

func (r *hostsReport) conclude() { r.Starts = !anyFailed(r.Checks) }

func anyFailed(checks []check) bool {
	return slices.ContainsFunc(checks, func(c check) bool { return c.Status == fail })
}

func (r *hostsReport) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range r.Checks {
		where := c.Host
		if c.Peer != "" {
			where += " to " + c.Peer
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", c.Status, where, c.Name, c.text())
	}
	if err := t.Flush(); err != nil {
		return err
	}
	conclusion := "No check of a job over several hosts failed on this host."
	switch {
	case !r.Starts:
		conclusion = "A job over several hosts does not start: see the lines that begin with fail."
	case len(r.Hosts) > 1:
		conclusion = fmt.Sprintf("A job over these %d hosts starts.", len(r.Hosts))
	}
	_, err := fmt.Fprintf(w, "\n%s\n", conclusion)
	return err
}

func (r *hostsReport) printJSON(w io.Writer) error { return writeJSON(w, r) }

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
