package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/numlist"
)

// binding is what --bind-to says.
type binding struct {
	to   string // core, socket or list; "" is none
	cpus []int  // of list
}

// place is where a rank may run.
type place struct {
	cpus []int  // in ascending order; never empty
	name string // "core 1 of 2"
}

// maxCPU is the highest number of a processor that a mask of the kernel can name here.
const maxCPU = len(unix.CPUSet{})*64 - 1

func setBinding(c *command, s string) error {
	to, list, _ := strings.Cut(s, ":")
	switch {
	case s == "none":
		c.binding = binding{}
	case s == "core" || s == "socket":
		c.binding = binding{to: s}
	case to == "list":
		cpus, err := numlist.Parse(list, maxCPU)
		if err != nil {
			return err
		}
		c.binding = binding{to, cpus}
	default:
		return errors.New("write none, core, socket or list:CPUS")
	}
	return nil
}

// places are where ranks may run: rank r at place r modulo their number. Without a
// binding there is one, which has all processors of ndrun itself; processors that
// ndrun may not use are never in it.
func (b binding) places() ([]place, error) {
	allowed, err := allowedCPUs()
	if err != nil {
		return nil, fmt.Errorf("bind ranks: ask for ndrun's own processors: %w", err)
	}
	switch b.to {
	case "":
		return []place{{cpus: allowed}}, nil
	case "list":
		var places []place
		for _, cpu := range b.cpus {
			if !slices.Contains(allowed, cpu) {
				return nil, fmt.Errorf("bind ranks: processor %d is not there for ndrun, which may use %s; name some of these", cpu, numlist.Format(allowed))
			}
			places = append(places, place{cpus: []int{cpu}})
		}
		return places, nil
	}
	places, err := groups(os.DirFS("/sys/devices/system/cpu"), b.to, allowed)
	if err != nil {
		return nil, fmt.Errorf("bind ranks: %w; this machine does not tell its %ss: use --bind-to list:%s", err, b.to, numlist.Format(allowed))
	}
	return places, nil
}

func allowedCPUs() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, err
	}
	var cpus []int
	for cpu := range maxCPU + 1 {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// groups divides the allowed processors by core or socket, as sys tells them.
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
		together, err := numlist.Parse(strings.TrimSpace(string(list)), maxCPU)
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

// report tells where a rank may run.
func (b binding) report(rank int, p place) string {
	what := "processors "
	if len(p.cpus) == 1 {
		what = "processor "
	}
	what += numlist.Format(p.cpus)
	if b.to == "" {
		return fmt.Sprintf("rank %d is not bound and may run on %s", rank, what)
	}
	if p.name != "" {
		what += " (" + p.name + ")"
	}
	return fmt.Sprintf("rank %d is bound to %s", rank, what)
}
