package launchers

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// envCTests is the directory of the built programs of c/tests. Without it, tests of ranks in C are
// skipped: go test needs no C compiler.
const envCTests = "SOFTND_C_TESTS"

// cProgram returns the path of a built program of c/tests.
func cProgram(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv(envCTests)
	if dir == "" {
		t.Skipf("%s does not name the built programs of c/tests", envCTests)
	}
	return filepath.Join(dir, name)
}

// computesInC runs jobs with ranks in C under a launcher: C alone, and mixed with Go. mixed returns the
// arguments of a launcher that start two ranks of each program.
func computesInC(t *testing.T, env, launcher []string, found string, mixed func(first, second []string) []string) {
	c := []string{cProgram(t, "heat_c"), "-verify"}
	t.Run("heat", func(t *testing.T) {
		commandComputes(t, env, slices.Concat(launcher, []string{"-n", "4"}, c), found)
	})
	t.Run("heat with Go", func(t *testing.T) {
		commandComputes(t, env, slices.Concat(launcher, mixed([]string{heat(t), "-verify"}, c)), found)
	})
	t.Run("heat before Go", func(t *testing.T) {
		commandComputes(t, env, slices.Concat(launcher, mixed(c, []string{heat(t), "-verify"})), found)
	})
}

// abortsInC has a launcher start three ranks in C, of which one aborts. It returns the exit status.
func abortsInC(t *testing.T, env, launcher []string) int {
	return commandAborts(t, env, slices.Concat(launcher, []string{"-n", "3", cProgram(t, "test_hang"), "abort"}))
}

// colon is the form of mpiexec and mpirun for jobs of two programs.
func colon(first, second []string) []string {
	return slices.Concat([]string{"-n", "2"}, first, []string{":", "-n", "2"}, second)
}

func TestCUnderHydra(t *testing.T) {
	computesInC(t, nil, hydra(t), "a launcher that speaks PMI (job kvs_", colon)
	if status := abortsInC(t, nil, hydra(t)); status != 7 {
		t.Errorf("exit status %d after an abort, want 7", status)
	}
}

func TestCUnderOpenMPI(t *testing.T) {
	computesInC(t, nil, mpirun(t), "Open MPI's mpirun, ", colon)
	if status := abortsInC(t, nil, mpirun(t)); status != 7 {
		t.Errorf("exit status %d after an abort, want 7", status)
	}
}

func TestCUnderSlurm(t *testing.T) {
	cProgram(t, "")
	env := slurm(t)
	programs := func(first, second []string) []string {
		name := filepath.Join(t.TempDir(), "programs")
		text := fmt.Sprintf("0-1 %s %s\n2-3 %s %s\n", first[0], first[1], second[0], second[1])
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return []string{"-n", "4", "--multi-prog", name}
	}
	for _, tc := range []struct{ plugin, found string }{{"pmi2", "a launcher that speaks PMI (job "}, {"none", "Slurm's srun, "}} {
		t.Run(tc.plugin, func(t *testing.T) {
			computesInC(t, env, []string{"srun", "--mpi=" + tc.plugin}, tc.found, programs)
		})
	}
	if status := abortsInC(t, env, []string{"srun", "--mpi=pmi2"}); status == 0 {
		t.Error("exit status 0 after an abort")
	}
}
