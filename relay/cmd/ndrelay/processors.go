package main

import (
	"fmt"

	"github.com/softnd/softnd/internal/linux"
)

// envProcessors is the variable that lists the processors of the relay.
const envProcessors = "SOFTND_RELAY_CPUS"

// useProcessors lets the relay run on the processors of a list, or on all that the host allows if it is empty. The
// relay has inherited the processors of its leader, which may be one core that the leader itself keeps busy.
func useProcessors(list string) error {
	if list == "" {
		all := make([]int, linux.MaxCPU+1)
		for cpu := range all {
			all[cpu] = cpu
		}
		_ = linux.BindProcess(all) // a container may forbid it: then the relay keeps those of the leader
		return nil
	}
	cpus, err := linux.ParseList(list, linux.MaxCPU)
	if err == nil {
		err = linux.BindProcess(cpus)
	}
	if err != nil {
		return fmt.Errorf("%s=%q: %w: list processors of this host that its cgroup allows, or unset it", envProcessors, list, err)
	}
	return nil
}
