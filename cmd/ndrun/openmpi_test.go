package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// A program of Open MPI runs as jobs of one rank, and ndrun says so.
func TestOpenMPIProgram(t *testing.T) {
	t.Parallel()
	cc, err := exec.LookPath("mpicc.openmpi")
	if err != nil {
		t.Skip("Open MPI's compiler is not installed (Debian: libopenmpi-dev): ", err)
	}
	program := filepath.Join(t.TempDir(), "mpi")
	out, err := exec.CommandContext(t.Context(), cc, "-o", program, "testdata/mpi.c").CombinedOutput()
	if strings.Contains(string(out), "mpi.h: No such file") {
		t.Skipf("the headers of Open MPI are not installed (Debian: libopenmpi-dev): %s", out)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const warning = "ndrun: program mpi is linked with Open MPI (libmpi.so.40), which does not know ndrun: each of its 2 ranks becomes an MPI job of one rank: "
	for _, tc := range []struct {
		program, ranks string
		warned         bool
	}{{program, "2", true}, {program, "1", false}, {"/bin/true", "2", false}} {
		dir := filepath.Dir(tc.program)
		_, _, errOut := proctest.Run(t, ndrun(t, "-wdir", dir, "-n", tc.ranks, tc.program, "no such way"))
		if strings.Contains(errOut, strings.Replace(warning, "program mpi", "program "+tc.program, 1)) != tc.warned {
			t.Errorf("%+v: %s", tc, errOut)
		}
	}
}
