package launchers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/meet/bootstrap"
	"github.com/softnd/softnd/internal/testkit/jobaccess"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/ranktest"
	"github.com/softnd/softnd/nd"
)

const rootSecret = "a secret of the tests"

// startAtRoot starts a job without a launcher, whose ranks meet at SOFTND_ROOT.
func startAtRoot(t *testing.T, role string, size, n int, change func(rank int, cmd *exec.Cmd)) []*proctest.Process {
	t.Helper()
	at := proctest.FreeAddress(t).String()
	all := make([]*proctest.Process, size)
	for rank := range all {
		cmd := proctest.Command(role, strconv.Itoa(n))
		cmd.Env = append(cmd.Env, bootstrap.EnvRoot+"="+at, bootstrap.EnvSecret+"="+rootSecret, softnd.EnvRank+"="+strconv.Itoa(rank), softnd.EnvSize+"="+strconv.Itoa(size))
		if change != nil {
			change(rank, cmd)
		}
		all[rank] = proctest.Start(t, cmd)
	}
	return all
}

func TestInitAtRoot(t *testing.T) {
	for rank, r := range startAtRoot(t, ranktest.RoleRounds, 3, 5, func(_ int, cmd *exec.Cmd) { cmd.Env = append(cmd.Env, softnd.EnvDebug+"=1") }) {
		r.Wait()
		_, name, ok := strings.Cut(strings.TrimSpace(r.Err.String()), "meeting as ")
		if want := fmt.Sprintf("softnd: rank %d of 3, of the job at 127.0.0.1:", rank); !ok || !strings.HasPrefix(r.Err.String(), want) {
			t.Errorf("%q, want %q", r.Err.String(), want)
		} else if rank == 2 {
			noFabric(t, name)
		}
	}
}

// endsAlone checks that a process has ended with a code and a line.
func endsAlone(t *testing.T, r *proctest.Process, code int, line string) {
	t.Helper()
	var exit *exec.ExitError
	if err := r.End(); !errors.As(err, &exit) || exit.ExitCode() != code || !strings.Contains(r.Err.String(), line) {
		t.Errorf("%v, want exit code %d and %q:\n%s", err, code, line, r.Err)
	}
}

// endByAbort checks that all ranks end because one of them aborts the job with code 7.
func endByAbort(t *testing.T, all []*proctest.Process, culprit int, reason string) {
	t.Helper()
	for rank, r := range all {
		line := fmt.Sprintf("softnd: rank %d of %d ends with the job: rank %d has aborted the job with code 7: %s\n", rank, len(all), culprit, reason)
		if rank == culprit {
			line = fmt.Sprintf("softnd: rank %d of %d aborts the job with code 7: %s\n", rank, len(all), reason)
		}
		endsAlone(t, r, 7, line)
	}
}

var roleWaits = ranktest.Role("waits", runWaits)

// runWaits is a rank that does nothing until it is ended.
func runWaits(ctx context.Context, j *softnd.Job, _ int) error {
	fmt.Println("ready")
	<-ctx.Done()
	return ctx.Err()
}

// The death of any rank ends the others.
func TestDeathAtRootEndsTheJob(t *testing.T) {
	for _, victim := range []int{0, 2} {
		t.Run(fmt.Sprintf("rank %d", victim), func(t *testing.T) {
			all := startAtRoot(t, roleWaits, 3, 0, nil)
			for _, r := range all {
				r.Expect("ready")
			}
			all[victim].Kill()
			for rank, r := range all {
				if rank != victim {
					endsAlone(t, r, 1, fmt.Sprintf("softnd: rank %d of 3 ends with the job: rank %d ", rank, victim))
				}
			}
		})
	}
}

// roleHears is a rank that ends by itself when another rank has ended the job.
var roleHears = proctest.Role("hears", func(s *proctest.Self) error {
	j, err := softnd.Init(s.Ctx)
	if err != nil {
		return err
	}
	if err := j.Err(); err != nil {
		return fmt.Errorf("at once: %w", err)
	}
	fmt.Println("ready")
	select {
	case <-j.Done():
	case <-s.Ctx.Done():
		return s.Ctx.Err()
	}
	if err := j.Err(); !errors.Is(err, nd.ConnectionAborted) {
		return fmt.Errorf("cause: %w", err)
	}
	fmt.Println(j.Err())
	if err := j.Close(); err != nil && !errors.Is(err, nd.ConnectionAborted) {
		return fmt.Errorf("close: %w", err)
	}
	return nil
})

// Without WithExit the library does not end the process of another rank.
func TestDeathAtRootIsReported(t *testing.T) {
	all := startAtRoot(t, roleHears, 3, 0, nil)
	for _, r := range all {
		r.Expect("ready")
	}
	all[2].Kill()
	for _, r := range all[:2] {
		r.Wait()
		if text := r.Out.String(); !strings.Contains(text, "nd: job: rank 2 ") {
			t.Errorf("the cause is %q", text)
		}
	}
}

// roleMain is a rank in softnd.Main. With the argument 1, rank 1 fails, and the others wait.
var roleMain = proctest.Role("main", func(s *proctest.Self) error {
	softnd.Main(func(ctx context.Context, j *softnd.Job) error {
		fails, err := strconv.Atoi(s.Args[0])
		switch {
		case err != nil || fails == 0:
			return err
		case j.Rank() == 1:
			return errors.New("the disk is full")
		}
		<-ctx.Done()
		return ctx.Err()
	})
	return errors.New("it has returned")
})

func TestMainEndsTheProcess(t *testing.T) {
	for _, r := range startAtRoot(t, roleMain, 2, 0, nil) {
		r.Wait()
	}
	all := startAtRoot(t, roleMain, 2, 1, nil)
	endsAlone(t, all[1], 1, "softnd: rank 1 of 2 aborts the job with code 1: the disk is full\n")
	endsAlone(t, all[0], 1, "softnd: rank 0 of 2 ends with the job: rank 1 has aborted the job with code 1: the disk is full\n")
}

var roleLeavesFirst = ranktest.Role("leaves first", runLeavesFirst)

// runLeavesFirst is a rank that waits until it is ended, but rank 0 leaves at once.
func runLeavesFirst(ctx context.Context, j *softnd.Job, _ int) error {
	if j.Rank() > 0 {
		arena := jobaccess.Of(j).Arena
		hasLeft := func() bool {
			id, _ := arena.MemberOf(0)
			p, err := arena.Peer(id)
			return err != nil || p.Gone()
		}
		for !hasLeft() {
			time.Sleep(time.Millisecond)
		}
		return runWaits(ctx, j, 0)
	}
	err := j.Close()
	if !errors.Is(err, nd.ConnectionAborted) {
		return fmt.Errorf("close: %w", err)
	}
	fmt.Println(err)
	return nil
}

// endedBeforeItLeft reports whether rank 0 had left the memory of the job, which is all that others see, and not yet the job when that ended.
func endedBeforeItLeft(rank0 *proctest.Process) bool {
	return strings.Contains(rank0.Err.String(), "softnd: rank 0 of 3 ends with the job: ")
}

// A death ends the job also if rank 0 has called Close before.
func TestDeathAtRootAfterRootLeaves(t *testing.T) {
	var all []*proctest.Process
	for tries := 0; ; tries++ {
		all = startAtRoot(t, roleLeavesFirst, 3, 0, nil)
		for _, r := range all[1:] {
			r.Expect("ready")
		}
		all[2].Kill()
		endsAlone(t, all[1], 1, "softnd: rank 1 of 3 ends with the job: rank 2 ")
		if all[0].End() == nil || tries == 5 || !endedBeforeItLeft(all[0]) {
			break
		}
	}
	all[0].Wait()
	if text := all[0].Out.String(); !strings.Contains(text, "has died") {
		t.Errorf("Close has returned %q", text)
	}
}

var roleAbortsLate = ranktest.Role("aborts late", runAbortsLate)

// runAbortsLate is a rank that waits until it is ended. Rank 0 closes the job, and then aborts it from another goroutine. A Barrier
// returns meanwhile.
func runAbortsLate(ctx context.Context, j *softnd.Job, code int) error {
	if j.Rank() > 0 {
		return runWaits(ctx, j, 0)
	}
	go func() {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		for err := error(nil); !errors.Is(err, nd.InvalidHandle); _, err = j.NextDeath(ended) {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(50 * time.Millisecond) // Close waits for the others
		if err := j.Barrier(ctx); !errors.Is(err, nd.InvalidHandle) {
			fmt.Println("barrier:", err)
		}
		softnd.Abort(code, "the others do not end")
	}()
	return fmt.Errorf("close: %w", j.Close())
}

// Abort ends the job also while rank 0 waits in Close.
func TestAbortAtRootDuringClose(t *testing.T) {
	all := startAtRoot(t, roleAbortsLate, 3, 7, nil)
	endByAbort(t, all, 0, "the others do not end")
	if text := all[0].Out.String(); strings.Contains(text, "barrier") {
		t.Error(text)
	}
}

var roleJoinsAgain = proctest.Role("joins again", func(s *proctest.Self) error {
	for n := range 5 {
		j, err := softnd.Init(s.Ctx)
		if err != nil {
			return err
		}
		if err := ranktest.Round(s.Ctx, j, n); err != nil {
			return err
		}
		if n == 2 && j.Rank() == 0 {
			time.Sleep(300 * time.Millisecond)
		}
		if err := j.Close(); err != nil {
			return err
		}
		if n == 2 && j.Rank() > 0 { // rank 0 joins first, and may get the record of another rank
			time.Sleep(time.Second)
		}
	}
	return nil
})

// After Close, the ranks can join again, in any order.
func TestInitAtRootAgain(t *testing.T) {
	for _, r := range startAtRoot(t, roleJoinsAgain, 3, 0, nil) {
		r.Wait()
	}
}

func TestAbortAtRootEndsTheJob(t *testing.T) {
	endByAbort(t, startAtRoot(t, roleAbort, 3, 7, nil), 1, "there is nothing to do")
}

// roleInitSoon is a rank that calls Init. A rank with an executor has a second for it, from when it is told.
var roleInitSoon = proctest.Role("init soon", func(s *proctest.Self) error {
	ctx, cancel := context.WithCancel(s.Ctx)
	if os.Getenv(softnd.EnvExec) != "" {
		if _, err := s.Hear(); err != nil {
			return err
		}
		ctx, cancel = context.WithTimeout(s.Ctx, time.Second)
	}
	defer cancel()
	_, err := softnd.Init(ctx)
	return err
})

// A rank that is refused ends, and a rank whose settings are wrong returns that error although it waits for others in vain.
func TestInitAtRootFailsWithARank(t *testing.T) {
	all := startAtRoot(t, roleInitSoon, 3, 1, func(rank int, cmd *exec.Cmd) {
		if rank == 1 {
			cmd.Env = append(cmd.Env, softnd.EnvSize+"=4")
		}
		if rank == 2 {
			cmd.Env = append(cmd.Env, softnd.EnvExec+"=unknown")
		}
	})
	endsAlone(t, all[1], 70, "refuses rank 1: it has 4 as the number of ranks, rank 0 has 3: set the same SOFTND_SIZE for all")
	all[2].Say("the other has met rank 0")
	endsAlone(t, all[2], 70, "SOFTND_EXEC")
	all[0].Kill()
	if text := all[0].Err.String(); !strings.Contains(text, "softnd: rank 0: refused rank 1 from 127.0.0.1:") {
		t.Error(text)
	}
}

// initWithin returns the error of an Init whose time ends after it has met what its error says, in any words.
func initWithin(t *testing.T, met string) (err error) {
	t.Helper()
	for limit := range proctest.Limits(t, "Init has got to the other ranks", 200*time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		j, e := softnd.Init(ctx)
		cancel()
		if err = e; err == nil {
			j.Close()
		}
		if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), met) {
			break
		}
	}
	return err
}

// Ranks that never come are named.
func TestInitAtRootNamesMissingRanks(t *testing.T) {
	t.Setenv(bootstrap.EnvRoot, proctest.FreeAddress(t).String())
	t.Setenv(bootstrap.EnvSecret, rootSecret)
	t.Setenv(softnd.EnvRank, "0")
	t.Setenv(softnd.EnvSize, "3")
	err := initWithin(t, "missing: ")
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "softnd: init: SOFTND_ROOT: barrier: context deadline exceeded; missing: rank 1, rank 2") {
		t.Error(err)
	}
	t.Setenv(softnd.EnvRank, "1")
	if err = initWithin(t, "connection refused"); err == nil || !strings.Contains(err.Error(), "connection refused): check that rank 0 runs") {
		t.Error(err)
	}
}
