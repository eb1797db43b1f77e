package launchers

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/meet/bootstrap"
	"github.com/softnd/softnd/internal/meet/rendezvous"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/shm"
)

// startInC starts a job without a launcher, whose ranks run programs, and meet at SOFTND_ROOT.
func startInC(t *testing.T, programs [][]string, change func(rank int, cmd *exec.Cmd)) []*proctest.Process {
	t.Helper()
	at := proctest.FreeAddress(t).String()
	all := make([]*proctest.Process, len(programs))
	for rank, program := range programs {
		cmd := exec.Command(program[0], program[1:]...)
		cmd.Env = append(cmd.Environ(), bootstrap.EnvRoot+"="+at, bootstrap.EnvSecret+"="+rootSecret, softnd.EnvRank+"="+strconv.Itoa(rank), softnd.EnvSize+"="+strconv.Itoa(len(programs)))
		if change != nil {
			change(rank, cmd)
		}
		all[rank] = proctest.Start(t, cmd)
	}
	return all
}

// hostsInC returns the programs of a job of three ranks in C, each of which has a role of c/tests/hosts.c.
func hostsInC(t *testing.T, role ...string) [][]string {
	t.Helper()
	program := append([]string{cProgram(t, "test_hosts")}, role...)
	return [][]string{program, program, program}
}

// readyInC waits until ranks in C say that they have joined.
func readyInC(t *testing.T, all []*proctest.Process) {
	t.Helper()
	for rank, r := range all {
		if line := r.Hear(); !strings.HasPrefix(line, "ready ") {
			t.Fatalf("process %d: %q", rank, line)
		}
	}
}

func TestCAtRoot(t *testing.T) {
	c, g := []string{cProgram(t, "heat_c"), "-verify"}, []string{heat(t), "-verify"}
	for _, languages := range []string{"CCCC", "CGCG", "GCCG"} { // rank 0 serves the others
		t.Run("heat "+languages, func(t *testing.T) {
			var programs [][]string
			for _, l := range languages {
				programs = append(programs, map[rune][]string{'C': c, 'G': g}[l])
			}
			all := startInC(t, programs, func(_ int, cmd *exec.Cmd) { cmd.Env = append(cmd.Env, softnd.EnvDebug+"=1") })
			for rank, r := range all {
				r.Wait()
				_, name, ok := strings.Cut(strings.TrimSpace(r.Err.String()), "meeting as ")
				if want := fmt.Sprintf("softnd: rank %d of 4, of the job at 127.0.0.1:", rank); !ok || !strings.HasPrefix(r.Err.String(), want) {
					t.Errorf("%q, want %q", r.Err, want)
				} else if rank == 3 {
					noFabric(t, name)
				}
			}
			if out := all[0].Out.String(); !strings.Contains(out, "heat: identical to the serial result\n") || !strings.Contains(out, ", 4 ranks, ") {
				t.Error(out)
			}
		})
	}
	t.Run("again", func(t *testing.T) {
		program := []string{cProgram(t, "test_again")}
		for _, r := range startInC(t, [][]string{program, program, program}, nil) {
			r.Wait()
		}
	})
	for _, victim := range []int{0, 2} {
		t.Run(fmt.Sprintf("death of rank %d", victim), func(t *testing.T) {
			all := startInC(t, hostsInC(t, "waits"), nil)
			readyInC(t, all)
			all[victim].Kill()
			for rank, r := range all {
				if rank != victim {
					endsAlone(t, r, 1, fmt.Sprintf("softnd: rank %d of 3 ends with the job: rank %d ", rank, victim))
				}
			}
		})
	}
	// Without exit_with_job the library does not end the process of another rank.
	t.Run("death that is reported", func(t *testing.T) {
		all := startInC(t, hostsInC(t, "hears"), nil)
		readyInC(t, all)
		all[2].Kill()
		for _, r := range all[:2] {
			r.Wait()
			if text := r.Out.String(); !strings.Contains(text, "wait for the end of the job: SOFTND_ROOT: rank 2 ") {
				t.Errorf("the cause is %q", text)
			}
		}
	})
	t.Run("death after rank 0 has left", func(t *testing.T) {
		var all []*proctest.Process
		for tries := 0; ; tries++ {
			all = startInC(t, hostsInC(t, "leaves first"), nil)
			readyInC(t, all[1:])
			all[2].Kill()
			endsAlone(t, all[1], 1, "softnd: rank 1 of 3 ends with the job: rank 2 ")
			if all[0].End() == nil || tries == 5 || !endedBeforeItLeft(all[0]) {
				break
			}
		}
		all[0].Wait()
		if text := all[0].Out.String(); !strings.HasPrefix(text, "connection aborted: close job: SOFTND_ROOT: rank 2 (at 127.0.0.1:") {
			t.Errorf("snd_job_close has returned %q", text)
		}
	})
	for _, culprit := range []int{0, 1} {
		t.Run(fmt.Sprintf("abort of rank %d", culprit), func(t *testing.T) {
			endByAbort(t, startInC(t, hostsInC(t, "aborts", strconv.Itoa(culprit)), nil), culprit, "the disk is full")
		})
	}
	t.Run("abort while rank 0 leaves", func(t *testing.T) {
		endByAbort(t, startInC(t, hostsInC(t, "leaves first", "aborts"), nil), 0, "the disk is full")
	})
	t.Run("failed ranks", func(t *testing.T) {
		all := startInC(t, hostsInC(t, "refused"), func(rank int, cmd *exec.Cmd) {
			if rank == 1 {
				cmd.Env = append(cmd.Env, softnd.EnvSize+"=4")
			}
			if rank == 2 {
				cmd.Env = append(cmd.Env, bootstrap.EnvSecret+"=another secret of the tests")
			}
		})
		for rank, want := range []string{1: "refuses rank 1: it has 4 as the number of ranks, rank 0 has 3: set the same SOFTND_SIZE for all",
			2: "does not know the secret of this job: give all ranks the same secret"} {
			if rank > 0 {
				all[rank].Wait()
				if text := all[rank].Out.String(); !strings.HasPrefix(text, "connection refused: init: SOFTND_ROOT: ") || !strings.Contains(text, want) {
					t.Errorf("rank %d: %q", rank, text)
				}
			}
		}
		proctest.Eventually(t, "rank 0 reports both", func() bool {
			text := all[0].Err.String()
			return strings.Contains(text, "softnd: rank 0: refused rank 1 from 127.0.0.1:") && strings.Contains(text, "softnd: rank 0: refused a connection to SOFTND_ROOT from 127.0.0.1:")
		})
		all[0].Kill()
	})
	t.Run("missing ranks are named", func(t *testing.T) {
		text := initWithinInC(t, 0, "missing: ")
		if !strings.HasPrefix(text, "I/O timeout: init: SOFTND_ROOT: not all ranks have arrived within the time limit of the call; missing: rank 1, rank 2") {
			t.Error(text)
		}
	})
	t.Run("nothing listens", func(t *testing.T) {
		if text := initWithinInC(t, 1, "refused"); !strings.HasPrefix(text, "I/O timeout: init: SOFTND_ROOT: connect to rank 0 at 127.0.0.1:") || !strings.Contains(text, ": Connection refused: check that rank 0 runs") {
			t.Error(text)
		}
	})
}

// initWithinInC returns what a rank of three prints whose time for init ends after it has met what its error says, in any words.
func initWithinInC(t *testing.T, rank int, met string) (text string) {
	t.Helper()
	for limit := range proctest.Limits(t, "init has got to the other ranks", 200*time.Millisecond) {
		r := startInC(t, hostsInC(t, "refused")[:1], func(_ int, cmd *exec.Cmd) {
			cmd.Env = append(cmd.Env, softnd.EnvSize+"=3", softnd.EnvRank+"="+strconv.Itoa(rank), fmt.Sprint("TEST_LIMIT=", limit.Seconds()))
		})[0]
		r.Wait()
		if text = r.Out.String(); !strings.HasPrefix(text, "I/O timeout: ") || strings.Contains(text, met) {
			break
		}
	}
	return text
}

// When a rank dies that has met the others, and has not come to their memory, Init fails in the others: in Go and C. The second one
// of them may notice the end of the first one before.
func TestDeathDuringInitAtRoot(t *testing.T) {
	const cause = "rank 2 (at 127.0.0.1"
	t.Run("Go", func(t *testing.T) {
		command := proctest.Command(roleWaits, "0")
		all := startWithTraitor(t, [][]string{command.Args, command.Args}, command.Env)
		for _, r := range all {
			endsAlone(t, r, 70, " has died")
		}
		if text := all[0].Err.String() + all[1].Err.String(); !strings.Contains(text, cause) {
			t.Error(text)
		}
	})
	t.Run("C", func(t *testing.T) {
		all := startWithTraitor(t, hostsInC(t, "refused")[:2], nil)
		for _, r := range all {
			r.Wait()
			if text := r.Out.String(); !strings.HasPrefix(text, "connection aborted: init: ") || !strings.Contains(text, " has died") {
				t.Error(text)
			}
		}
		if text := all[0].Out.String() + all[1].Out.String(); !strings.Contains(text, cause) {
			t.Error(text)
		}
	})
}

// startWithTraitor starts two ranks. A third one, of this process, meets them and dies.
func startWithTraitor(t *testing.T, programs [][]string, env []string) []*proctest.Process {
	t.Helper()
	ctx := proctest.Context(t)
	var at string
	all := startInC(t, programs, func(_ int, cmd *exec.Cmd) {
		at = strings.TrimPrefix(cmd.Env[len(cmd.Env)-4], bootstrap.EnvRoot+"=")
		cmd.Env = append(append(cmd.Env, env...), softnd.EnvSize+"=3")
	})
	m, err := rendezvous.Join(ctx, rendezvous.Config{Root: netip.MustParseAddrPort(at), Secret: []byte(rootSecret), Rank: 2, Size: 3})
	if err != nil {
		t.Fatal(err)
	}
	host := ""
	proctest.Eventually(t, "rank 0 says at which host it is", func() bool {
		host, err = m.Get(ctx, "softnd-host-0")
		return err == nil
	})
	if err := errors.Join(m.Put(ctx, "softnd-host-2", host), m.Barrier(ctx), m.Barrier(ctx)); err != nil {
		t.Fatal(err)
	}
	text, err := m.Get(ctx, "softnd-fabric")
	if err != nil {
		t.Fatal(err)
	}
	arena, err := shm.OpenFabric(ctx, strings.TrimPrefix(text, "name:"), shm.Config{Ranks: 3})
	if err != nil {
		t.Fatal(err)
	}
	proctest.Eventually(t, "ranks 0 and 1 have joined", func() bool {
		_, first := arena.MemberOf(0)
		_, second := arena.MemberOf(1)
		return first && second
	})
	if err := errors.Join(arena.Close(), m.HangUp()); err != nil {
		t.Fatal(err)
	}
	return all
}
