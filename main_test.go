package softnd

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/shm"
)

func TestMain(m *testing.M) {
	proctest.Main()
	os.Exit(m.Run())
}

// rankRole registers a role of a rank. The role gets the rank's job, and the number in the argument.
func rankRole(name string, play func(ctx context.Context, j *Job, n int) error) string {
	return proctest.Role(name, func(s *proctest.Self) error {
		n, err := strconv.Atoi(s.Args[0])
		if err != nil {
			return err
		}
		j, err := Init(s.Ctx)
		if err != nil {
			return err
		}
		if err := play(s.Ctx, j, n); err != nil {
			return fmt.Errorf("rank %d: %w", j.Rank(), err)
		}
		return j.Close()
	})
}

// rankCommand returns the command of a rank that gets its arena as ndrun passes it.
func rankCommand(arena *shm.Arena, role string, rank, size int, args ...string) *exec.Cmd {
	cmd := proctest.Command(role, args...)
	cmd.Env = append(cmd.Env, EnvArenaFD+"=3", EnvRank+"="+strconv.Itoa(rank), EnvSize+"="+strconv.Itoa(size))
	cmd.ExtraFiles = []*os.File{arena.File()}
	return cmd
}

// start starts a job in which all ranks play the same role.
func start(t testing.TB, ranks int, role string, n int) []*proctest.Process {
	t.Helper()
	arena, err := shm.Create(shm.Config{Ranks: ranks})
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	all := make([]*proctest.Process, ranks)
	for i := range all {
		all[i] = proctest.Start(t, rankCommand(arena, role, i, ranks, strconv.Itoa(n)))
	}
	return all
}
