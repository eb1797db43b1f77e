package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/softnd/softnd/internal/linux"
)

// binding is the value of --bind-to.
type binding struct {
	to   string // core, socket or list; "" means none
	cpus []int  // the processors of list
}

// place is a set of processors to which a rank is bound.
type place struct {
	cpus []int  // in ascending order; never empty
	name string // "core 1 of 2"
}

func setBinding(c *command, s string) error {
	to, list, _ := strings.Cut(s, ":")
	switch {
	case s == "none":
		c.binding = binding{}
	case s == "core" || s == "socket":
		c.binding = binding{to: s}
	case to == "list":
		cpus, err := linux.ParseList(list, linux.MaxCPU)
		if err != nil {
			return err
		}
		c.binding = binding{to, cpus}
	default:
		return errors.New("want none, core, socket or list:CPUS")
	}
	return nil
}

// places returns the places of the job. Rank r runs at place r modulo their number. Without
// binding, there is one place with all processors that ndrun may use. A place never has other
// processors.
func (b binding) places() ([]place, error) {
	allowed, err := linux.CPUs()
	if err != nil {
		return nil, fmt.Errorf("bind ranks: read processor affinity: %w", err)
	}
	switch b.to {
	case "":
		return []place{{cpus: allowed}}, nil
	case "list":
		var places []place
		for _, cpu := range b.cpus {
			if !slices.Contains(allowed, cpu) {
				return nil, fmt.Errorf("bind ranks: processor %d is not available: want some of %s", cpu, linux.FormatList(allowed))
			}
			places = append(places, place{cpus: []int{cpu}})
		}
		return places, nil
	}
	places, err := groups(os.DirFS("/sys/devices/system/cpu"), b.to, allowed)
	if err != nil {
		return nil, fmt.Errorf("bind ranks to %ss: %w: use --bind-to list:%s", b.to, err, linux.FormatList(allowed))
	}
	return places, nil
}

// groups divides the allowed processors into cores or sockets, as described by the directory sys.
func groups(sys fs.FS, by string, allowed []int) ([]place, error) {
	file := map[string]string{"core": "core_cpus_list", "socket": "package_cpus_list"}[by]
	var places []place
	grouped := make(map[int]bool)
	for _, cpu := range allowed {
		if grouped[cpu] {
			continue
		}
		list, err := fs.ReadFile(sys, fmt.Sprintf("cpu%d/topology/%s", cpu, file))
		if err != nil {
			return nil, err
		}
		together, err := linux.ParseList(strings.TrimSpace(string(list)), linux.MaxCPU)
		if err != nil {
			return nil, err
		}
		var p place
		for _, member := range together {
			if slices.Contains(allowed, member) {
				p.cpus = append(p.cpus, member)
				grouped[member] = true
			}
		}
		if !grouped[cpu] {
			return nil, fmt.Errorf("processor %d is in no %s", cpu, by)
		}
		slices.Sort(p.cpus)
		places = append(places, p)
	}
	for i := range places {
		places[i].name = fmt.Sprintf("%s %d of %d", by, i, len(places))
	}
	return places, nil
}

// report returns the message of --report-bindings for a rank.
func (b binding) report(rank int, p place) string {
	what := "processors "
	if len(p.cpus) == 1 {
		what = "processor "
	}
	what += linux.FormatList(p.cpus)
	if b.to == "" {
		return fmt.Sprintf("rank %d: not bound, may run on %s", rank, what)
	}
	if p.name != "" {
		what += " (" + p.name + ")"
	}
	return fmt.Sprintf("rank %d: bound to %s", rank, what)
}
