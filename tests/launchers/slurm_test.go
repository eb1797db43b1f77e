package launchers

import (
	"testing"

	"github.com/softnd/softnd/internal/testkit/slurmtest"
)

func TestInitUnderSlurm(t *testing.T) {
	env := slurm(t)
	t.Run("heat", func(t *testing.T) {
		computes(t, env, []string{"srun", "--mpi=pmi2"}, "a launcher that speaks PMI (job 1.0)")
	})
	t.Run("heat without PMI", func(t *testing.T) {
		computes(t, env, []string{"srun", "--mpi=none"}, "Slurm's srun, ")
	})
	t.Run("abort", func(t *testing.T) {
		if status := aborts(t, env, []string{"srun", "--mpi=pmi2"}); status == 0 {
			t.Error("exit status 0")
		}
	})
}

// slurm starts a Slurm of this host alone, and returns the variable that its commands need.
func slurm(t *testing.T) (env []string) {
	t.Helper()
	if testing.Short() {
		t.Skip("the launchers of others take seconds")
	}
	return []string{slurmtest.Start(t, slurmtest.ThisHost(t))}
}
