// Package ranktest runs ranks of a job in processes of a test.
package ranktest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/testkit/jobaccess"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/shm"
)

// Role registers a role of a rank. The role gets the rank's job, and the number in its argument.
func Role(name string, play func(ctx context.Context, j *softnd.Job, n int) error) string {
	return proctest.Role(name, func(s *proctest.Self) error {
		n, err := strconv.Atoi(s.Args[0])
		if err != nil {
			return err
		}
		j, err := softnd.Init(s.Ctx, softnd.WithExit())
		if err != nil {
			return err
		}
		if err := play(s.Ctx, j, n); err != nil {
			return fmt.Errorf("rank %d: %w", j.Rank(), err)
		}
		return j.Close()
	})
}

// Command returns the command of a rank that gets its arena as ndrun passes it.
func Command(arena *shm.Arena, role string, rank, size int, args ...string) *exec.Cmd {
	cmd := proctest.Command(role, args...)
	cmd.Env = append(cmd.Env, softnd.EnvArenaFD+"=3", softnd.EnvRank+"="+strconv.Itoa(rank), softnd.EnvSize+"="+strconv.Itoa(size))
	cmd.ExtraFiles = []*os.File{arena.File()}
	return cmd
}

// Start starts a job in which all ranks play the same role.
func Start(t testing.TB, ranks int, role string, n int) []*proctest.Process {
	t.Helper()
	arena, err := shm.Create(shm.Config{Ranks: ranks})
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	all := make([]*proctest.Process, ranks)
	for i := range all {
		all[i] = proctest.Start(t, Command(arena, role, i, ranks, strconv.Itoa(n)))
	}
	return all
}

// DropRequests refuses the requests that no rank has answered: until then their memory is in use.
func DropRequests(j *softnd.Job) {
	request := jobaccess.Of(j).Request
	for peer := range j.Size() {
		for c := request(peer); c != nil; c = request(peer) {
			c.Close()
		}
	}
}
