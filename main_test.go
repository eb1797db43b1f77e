package softnd

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/softnd/softnd/shm"
)

// The test binary plays the ranks too: started with a role in the environment it
// does what the role says, and nothing else.
const roleVariable = "SOFTND_TEST_ROLE"

// watchdog ends what has hung. No test depends on how long anything takes.
const watchdog = 60 * time.Second

// roles get the job that they are a rank of, and a number.
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

// rank is a process that plays one.
type rank struct {
	cmd      *exec.Cmd
	out, err bytes.Buffer
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
		r := &rank{cmd: exec.CommandContext(t.Context(), "/proc/self/exe", strconv.Itoa(n))}
		r.cmd.Env = append(os.Environ(), roleVariable+"="+role, EnvArenaFD+"=3",
			EnvRank+"="+strconv.Itoa(i), EnvSize+"="+strconv.Itoa(ranks))
		r.cmd.ExtraFiles = []*os.File{arena.File()}
		r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.err
		if err := r.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // of those that nobody has waited for
			r.cmd.Process.Kill()
			r.cmd.Wait()
		})
		all[i] = r
	}
	return all
}

// finish waits for a rank's end, which has to be a good one.
func (r *rank) finish(t testing.TB) {
	t.Helper()
	if err := r.cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, &r.err)
	}
}
