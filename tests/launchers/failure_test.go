package launchers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/slurmtest"
)

var roleInit = proctest.Role("init only", runInitOnly)

// runInitOnly prints the error of Init, and ends well in any case: no launcher ends the others because of that.
func runInitOnly(self *proctest.Self) error {
	j, err := softnd.Init(self.Ctx)
	fmt.Println(err)
	if err != nil {
		return nil
	}
	return j.Close()
}

// If Init fails in a rank because of a setting, the other ranks learn that it has gone, under each launcher.
func TestOthersLearnOfARefusedSetting(t *testing.T) {
	const gone = "has died or left" // rank 1, or a rank that has failed because of it
	eachWay(t, func(t *testing.T, way string) {
		t.Parallel()
		j := startForeign(t, way, roleInit, 3, 0, func(rank int, cmd *exec.Cmd) {
			if rank == 1 {
				cmd.Env = append(cmd.Env, softnd.EnvExec+"=wrong")
			}
		})
		for rank, want := range []string{gone, `SOFTND_EXEC: unknown executor "wrong"`, gone} {
			j.ranks[rank].Wait()
			if got := j.ranks[rank].Out.String(); !strings.Contains(got, want) {
				t.Errorf("rank %d: %q, want %q", rank, got, want)
			}
		}
	})
}

var roleLate = proctest.Role("late", runLate)

// runLate fails in Init of rank 0, because rank 1 is late. Rank 0 is slow to say so.
func runLate(self *proctest.Self) error {
	if os.Getenv("PMI_RANK") != "0" {
		time.Sleep(time.Minute) // until Hydra ends it
		return nil
	}
	ctx, cancel := context.WithTimeout(self.Ctx, 3*time.Second) // Hydra must have answered: it fails if a rank leaves meanwhile
	defer cancel()
	_, err := softnd.Init(ctx)
	time.Sleep(time.Second)
	return errors.Join(errors.New("printed by the program"), err)
}

// printsCause has Hydra start two ranks, in the first of which Init fails. It checks that the cause is printed.
func printsCause(t *testing.T, env []string, program ...string) {
	t.Helper()
	command := append(hydra(t), "-n", "2")
	status, out, errOut := slurmtest.Launch(t, env, append(command, program...)...)
	if status == 0 || !strings.Contains(errOut, "softnd: rank 0 of 2 cannot join the job: ") {
		t.Errorf("exit status %d, %s%s", status, out, errOut)
	}
}

// Hydra ends the ranks as soon as Init fails in one of them. The cause is printed before.
func TestCauseOfAFailedInitUnderHydra(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	printsCause(t, []string{slurmtest.ReapedRole + "=" + roleLate}, exe)
}

func TestCauseOfAFailedInitInCUnderHydra(t *testing.T) {
	printsCause(t, nil, cProgram(t, "test_hang"), "late")
}

// A rank in C that a setting refuses is known to the others, in C and Go.
func TestOthersLearnOfARefusedSettingInC(t *testing.T) {
	program := cProgram(t, "test_hang")
	eachWay(t, func(t *testing.T, way string) {
		t.Parallel()
		j := startForeign(t, way, roleInit, 3, 0, func(rank int, cmd *exec.Cmd) {
			if rank > 0 {
				cmd.Path, cmd.Args = program, []string{program, "init"}
			}
			if rank == 1 {
				cmd.Env = append(cmd.Env, softnd.EnvExec+"=wrong")
			}
		})
		for rank, want := range []string{"has died or left", "init: SOFTND_EXEC", "has died or left"} {
			j.ranks[rank].Wait()
			if got := j.ranks[rank].Out.String(); !strings.Contains(got, want) {
				t.Errorf("rank %d: %q, want %q", rank, got, want)
			}
		}
	})
}
