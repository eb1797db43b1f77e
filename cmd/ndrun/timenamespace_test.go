package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

// inTimeNamespaces returns the arguments of a job of two ranks in which the clock of rank 1, or of rank 0, is ahead
// by 10,000,000 seconds; no test takes as long.
func inTimeNamespaces(t *testing.T, ahead int, role string, args ...string) []string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can make time namespaces")
	}
	if _, err := os.Stat("/proc/self/ns/time"); err != nil {
		t.Skip("the kernel has no time namespaces")
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		t.Skipf("unshare is not installed (Debian: util-linux): %v", err)
	}
	if out, err := exec.Command(unshare, "--time", "true").CombinedOutput(); err != nil {
		t.Skipf("this process cannot make time namespaces: %v: %s", err, out)
	}
	script := fmt.Sprintf(`[ $%s = %d ] || exec "$@"; exec %s --time --monotonic 10000000 "$@"`, softnd.EnvRank, ahead, unshare)
	return append([]string{"-n", "2", "-env", proctest.RoleEnv + "=" + role, "/bin/sh", "-c", script, "sh", testBinary(t)}, args...)
}

// The rank that caused the end of a job is the first to fail, also if its clock is not that of its victim.
func TestCauseInTimeNamespaces(t *testing.T) {
	for ahead := range 2 {
		for cause := range 2 {
			t.Run(fmt.Sprintf("rank %d is ahead, rank %d fails", ahead, cause), func(t *testing.T) {
				args := inTimeNamespaces(t, ahead, "cause", "error past Endpoint.Close", fmt.Sprint(cause), "poll")
				got, _, errOut := proctest.Run(t, ndrun(t, args...))
				for tries := 0; tries < 5 && strings.Contains(errOut, "the other rank was stopped"); tries++ {
					got, _, errOut = proctest.Run(t, ndrun(t, args...)) // the machine was too busy for the cause to end in time
				}
				if got != proctest.ExitError || !strings.Contains(errOut, diskFull) || !strings.Contains(errOut, fmt.Sprintf("ndrun: rank %d (", cause)) ||
					strings.Contains(errOut, fmt.Sprintf("ndrun: rank %d (", 1-cause)) {
					t.Errorf("exit status %d, and rank %d is not the first to fail:\n%s", got, cause, errOut)
				}
			})
		}
	}
}

// The report of a hang names the cause, and the time that each rank has waited.
func TestHangInTimeNamespaces(t *testing.T) {
	t.Parallel()
	for ahead := range 2 {
		t.Run(fmt.Sprintf("rank %d is ahead", ahead), func(t *testing.T) {
			t.Parallel()
			args := inTimeNamespaces(t, ahead, "hang", "lost notify")
			cmd := func(hangAfter string) *exec.Cmd {
				return ndrun(t, append([]string{"--hang-after", hangAfter}, args...)...)
			}
			endHanging(t, cmd, "ndrun: likely cause: rank 0 waits in notify \\(NotifySolicited\\) at completion queue 1, which already holds results",
				`ndrun: rank 0 \(.*\): notify .* for [0-9.]*[1-9][0-9.]*m?s`, `ndrun: rank 1 \(.*\): barrier 3 for [0-9.]*[1-9][0-9.]*m?s`)
		})
	}
}
