package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// The ranks of a launcher that runs as a rank of ndrun find ndrun's variables and join as one
// rank. The error of Init has a command that starts this launcher correctly, and that command
// works.
func TestNestedLauncher(t *testing.T) {
	t.Parallel()
	for _, inner := range [][]string{
		{"mpiexec.hydra", "-n", "2"},
		{"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2"},
	} {
		t.Run(inner[0], func(t *testing.T) {
			if _, err := exec.LookPath(inner[0]); err != nil {
				t.Skipf("%s is not installed: %v", inner[0], err)
			}
			refused := filepath.Join(t.TempDir(), "refused")
			nested := func(how string, env ...string) (int, string, string) {
				args := append([]string{"-n", "1", "-env", proctest.RoleEnv + "=job"}, env...)
				return proctest.Run(t, ndrun(t, append(append(args, inner...), testBinary(t), how, refused)...))
			}
			_, out, errOut := nested("linger")
			_, advice, ok := strings.Cut(out+errOut, "already taken; if a launcher that runs under ndrun has started this process, start that launcher with ")
			advice, _, more := strings.Cut(advice, "; else start each rank once")
			if !ok || !more {
				t.Fatalf("no advice in %s%s", out, errOut)
			}
			status, out, errOut := nested("close", strings.Fields(advice)...)
			if status != 0 || strings.Count(out, "met 2") != 2 {
				t.Errorf("with %s: exit status %d, %s%s", advice, status, out, errOut)
			}
		})
	}
}
