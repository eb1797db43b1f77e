package softnd

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/softnd/softnd/shm"
)

// The test binary plays the ranks too: with a role in the environment it runs the role instead of
// the tests.
const roleVariable = "SOFTND_TEST_ROLE"

// watchdog ends calls and processes that hang. No test depends on how long anything takes.
const watchdog = 60 * time.Second

// roles are functions of a rank: each gets the rank's job, and the number in the argument.
var roles = map[string]func(ctx context.Context, j *Job, n int) error{
	"rounds":  playRounds,
	"victim":  playVictim,
	"hidden":  playHidden,
	"many":    playMany,
	"closing": playClosing,
	"crossed": playCrossed,
	"timed":   playTimed,
	"again":   playAgain,
	"abort":   playAbort,
}

func TestMain(m *testing.M) {
	if role, ok := os.LookupEnv(roleVariable); ok {
		if role == reaperRole {
			os.Exit(reap())
		}
		if role == scribbledRole {
			os.Exit(playScribbled())
		}
		if err := play(role); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func play(role string) error {
	ctx, cancel := context.WithTimeout(context.Background(), watchdog)
	defer cancel()
	n, err := strconv.Atoi(os.Args[1])
	if err != nil {
		return err
	}
	j, err := Init(ctx)
	if err != nil {
		return err
	}
	if err := roles[role](ctx, j, n); err != nil {
		return fmt.Errorf("rank %d: %w", j.Rank(), err)
	}
	return j.Close()
}

// rank is a process that plays a rank of a job.
type rank struct {
	cmd      *exec.Cmd
	out, err bytes.Buffer
}

// newRank returns a process of the test binary in a role, with arguments, variables of the
// environment, and files, of which the first is descriptor 3.
func newRank(t testing.TB, role string, args, env []string, files ...*os.File) *rank {
	r := &rank{cmd: exec.CommandContext(t.Context(), "/proc/self/exe", args...)}
	r.cmd.Env = append(append(os.Environ(), roleVariable+"="+role), env...)
	r.cmd.ExtraFiles = files
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.err
	return r
}

// start starts the process, which ends with the test.
func (r *rank) start(t testing.TB) {
	t.Helper()
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // fails for processes that the test has waited for
		r.cmd.Process.Kill()
		r.cmd.Wait()
	})
}

// inArena returns what ndrun sets for a rank that gets the arena as descriptor 3.
func inArena(rank, size int) []string {
	return []string{EnvArenaFD + "=3", EnvRank + "=" + strconv.Itoa(rank), EnvSize + "=" + strconv.Itoa(size)}
}

// start starts a job in which all ranks play the same role.
func start(t testing.TB, ranks int, role string, n int) []*rank {
	t.Helper()
	arena, err := shm.Create(shm.Config{Ranks: ranks})
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	all := make([]*rank, ranks)
	for i := range all {
		all[i] = newRank(t, role, []string{strconv.Itoa(n)}, inArena(i, ranks), arena.File())
		all[i].start(t)
	}
	return all
}

// finish waits until the process has ended, and fails the test unless it succeeded.
func (r *rank) finish(t testing.TB) {
	t.Helper()
	if err := r.cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, &r.err)
	}
}

// waitKilled waits until the process has ended, and fails the test unless SIGKILL ended it.
func (r *rank) waitKilled(t testing.TB) {
	t.Helper()
	if err := r.cmd.Wait(); r.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the rank that kills itself: %v: %s", err, &r.err)
	}
}
