package launchers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/softnd/softnd/internal/testkit/slurmtest"
)

// helloPrograms names the programs that TestProgramsUnderOtherLaunchers starts, separated by colons. Each is the program of a
// quick start, in C, C++ or Fortran. They are built by .ci/c-install, because the tests here need no C compiler.
const helloPrograms = "SOFTND_TEST_HELLO_PROGRAMS"

func TestProgramsUnderOtherLaunchers(t *testing.T) {
	programs := filepath.SplitList(os.Getenv(helloPrograms))
	if len(programs) == 0 {
		t.Skipf("%s names no programs", helloPrograms)
	}
	for _, launcher := range []struct {
		name  string
		start func(*testing.T) (command, env []string)
	}{
		{"mpiexec.hydra", func(t *testing.T) (command, env []string) { return hydra(t), nil }},
		{"mpirun.openmpi", func(t *testing.T) (command, env []string) { return mpirun(t), nil }},
		{"srun", func(t *testing.T) (command, env []string) {
			return []string{"srun", "--mpi=pmi2"}, slurm(t)
		}},
	} {
		t.Run(launcher.name, func(t *testing.T) {
			command, env := launcher.start(t)
			for _, program := range programs {
				status, out, errOut := slurmtest.Launch(t, env, append(command, "-n", "2", program)...)
				for _, want := range []string{"rank 0 has 43\n", "rank 1 has 42\n"} {
					if status != 0 || !strings.Contains(out, want) {
						t.Errorf("%s: exit status %d, no %q in\n%s%s", program, status, want, out, errOut)
					}
				}
			}
		})
	}
}
