package launchers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/testkit/slurmtest"
)

// Programs of softnd under the launchers of others, as far as they are installed.

// installed returns the path of a launcher, or skips the test.
func installed(t *testing.T, name, debian string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("the launchers of others take seconds")
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed (Debian: %s): %v", name, debian, err)
	}
	return path
}

// hydra is MPICH's mpiexec.
func hydra(t *testing.T) []string {
	return []string{installed(t, "mpiexec.hydra", "mpich")}
}

func mpirun(t *testing.T) []string {
	return []string{installed(t, "mpirun.openmpi", "openmpi-bin"), "--allow-run-as-root", "--oversubscribe"}
}

// heat builds examples/heat.
func heat(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "heat")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "github.com/softnd/softnd/examples/heat").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// computes has a launcher start heat with four ranks, whose result has to be right.
func computes(t *testing.T, env, launcher []string, found string) {
	t.Helper()
	commandComputes(t, env, append(launcher, "-n", "4", heat(t), "-verify"), found)
}

func commandComputes(t *testing.T, env, command []string, found string) {
	t.Helper()
	env = append(env, softnd.EnvDebug+"=1")
	status, out, errOut := slurmtest.Launch(t, env, command...)
	if status != 0 || !strings.Contains(out, "heat: identical to the serial result\n") || !strings.Contains(out, ", 4 ranks, ") {
		t.Errorf("exit status %d, %s%s", status, out, errOut)
	}
	for rank := range 4 {
		_, rest, ok := strings.Cut(errOut, fmt.Sprintf("softnd: rank %d of 4, started by %s", rank, found))
		if !ok {
			t.Errorf("rank %d has not been started by %s:\n%s", rank, found, errOut)
			continue
		}
		_, name, _ := strings.Cut(rest, "meeting as ")
		name, _, _ = strings.Cut(name, "\n")
		noFabric(t, name)
	}
}

// aborts has a launcher start three ranks, of which one aborts. It returns the exit status.
func aborts(t *testing.T, env, launcher []string) int {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return commandAborts(t, append(env, slurmtest.ReapedRole+"="+roleAbort), append(launcher, "-n", "3", exe, "7"))
}

func commandAborts(t *testing.T, env, command []string) int {
	t.Helper()
	status, out, errOut := slurmtest.Launch(t, env, command...)
	if !strings.Contains(errOut, "softnd: rank 1 of 3 aborts the job with code 7: there is nothing to do\n") {
		t.Errorf("exit status %d, %s%s", status, out, errOut)
	}
	return status
}

func TestInitUnderHydra(t *testing.T) {
	launcher := hydra(t)
	t.Run("heat", func(t *testing.T) { computes(t, nil, launcher, "a launcher that speaks PMI (job kvs_") })
	t.Run("abort", func(t *testing.T) {
		if status := aborts(t, nil, launcher); status != 7 {
			t.Errorf("exit status %d, want 7", status)
		}
	})
}

func TestInitUnderOpenMPI(t *testing.T) {
	launcher := mpirun(t)
	t.Run("heat", func(t *testing.T) { computes(t, nil, launcher, "Open MPI's mpirun, ") })
	t.Run("abort", func(t *testing.T) {
		if status := aborts(t, nil, launcher); status != 7 {
			t.Errorf("exit status %d, want 7", status)
		}
	})
}
