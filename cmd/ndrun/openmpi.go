package main

import (
	"debug/elf"
	"fmt"
	"slices"
	"strings"
)

// openMPILibrary is the library of programs in C of Open MPI 4 and 5. That of MPICH and its relatives is libmpi.so.12.
const openMPILibrary = "libmpi.so.40"

// openMPI returns a warning about each program that is linked with Open MPI. Open MPI does not know ndrun: each process becomes the
// only rank of an MPI job of its own.
func (p *plan) openMPI() (warnings []string) {
	for app, prog := range p.programs {
		path := prog.path
		if prog.file != nil {
			path = fmt.Sprintf("/proc/self/fd/%d", prog.file.Fd())
		}
		if ranks := p.command.apps[app].ranks; ranks > 1 && isOpenMPI(path) {
			warnings = append(warnings, fmt.Sprintf("program %s is linked with Open MPI (%s), which does not know ndrun: each of its %d ranks becomes an MPI job of one rank: "+
				"start it with Open MPI's mpirun, under which softnd works too, or build it with MPICH", prog.name, openMPILibrary, ranks))
		}
	}
	return warnings
}

func isOpenMPI(path string) bool {
	file, err := elf.Open(path)
	if err != nil {
		return false // a script
	}
	defer file.Close()
	needed, err := file.ImportedLibraries()
	return err == nil && slices.ContainsFunc(needed, func(name string) bool { return strings.HasPrefix(name, openMPILibrary) })
}
