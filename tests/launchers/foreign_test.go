// Package launchers tests jobs under launchers other than ndrun, and without any.
package launchers

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/meet/pmi"
	"github.com/softnd/softnd/internal/meet/unixsock"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/ranktest"
)

func TestMain(m *testing.M) {
	proctest.Main()
	os.Exit(m.Run())
}

// foreignJob is a job that this test starts in the way of another launcher.
type foreignJob struct {
	word   string // part of the name of the fabric
	ranks  []*proctest.Process
	server *pmi.Server // of PMI, else nil
}

// foreign has, for each kind of launcher, the variables that a rank gets besides its socket for PMI.
var foreign = map[string]func(word string, rank, size int) []string{
	"PMI": func(_ string, rank, size int) []string {
		return []string{fmt.Sprint("PMI_RANK=", rank), fmt.Sprint("PMI_SIZE=", size), "PMI_FD=3"}
	},
	"Open MPI": func(word string, rank, size int) []string {
		return []string{fmt.Sprint("OMPI_COMM_WORLD_RANK=", rank), fmt.Sprint("OMPI_COMM_WORLD_SIZE=", size),
			fmt.Sprint("OMPI_COMM_WORLD_LOCAL_SIZE=", size), "PMIX_NAMESPACE=" + word}
	},
	"Slurm": func(word string, rank, size int) []string {
		return []string{fmt.Sprint("SLURM_PROCID=", rank), fmt.Sprint("SLURM_STEP_NUM_TASKS=", size),
			"SLURM_STEP_NUM_NODES=1", "SLURM_STEP_ID=0", "SLURM_JOB_ID=" + word}
	},
}

// startForeign starts a job of ranks that play role. change, unless nil, is called for
// each of them before it is started.
func startForeign(t *testing.T, way, role string, size, n int, change func(rank int, cmd *exec.Cmd)) *foreignJob {
	t.Helper()
	j := &foreignJob{word: fmt.Sprintf("test-%d-%s", os.Getpid(), t.Name())}
	if way == "PMI" {
		j.server = pmi.NewServer(size, sentenceFor(j.word), pmi.Notices{Abort: func(int, int, string) {}, Refused: func(int, string) {}})
	}
	for number := range size {
		var files []*os.File
		if j.server != nil {
			files = append(files, pmiSocket(t, j.server, number))
		}
		cmd := proctest.Command(role, strconv.Itoa(n))
		cmd.Env = append(cmd.Env, foreign[way](j.word, number, size)...)
		cmd.ExtraFiles = files
		if change != nil {
			change(number, cmd)
		}
		r := proctest.Start(t, cmd)
		for _, file := range files {
			file.Close()
		}
		j.ranks = append(j.ranks, r)
	}
	return j
}

func sentenceFor(word string) string { return strings.NewReplacer("/", "-", " ", "-").Replace(word) }

// pmiSocket makes a socket of the server for a rank and returns the rank's end.
func pmiSocket(t *testing.T, server *pmi.Server, rank int) *os.File {
	t.Helper()
	ours, theirs, err := unixsock.Pair(unix.SOCK_STREAM)
	if err != nil {
		t.Fatal(err)
	}
	server.Serve(rank, ours)
	t.Cleanup(func() { _ = server.Ended(rank) })
	return theirs
}

// noFabric fails the test if a socket of the user's fabrics is left whose name has word
// in it, or its digest.
func noFabric(t *testing.T, words ...string) {
	t.Helper()
	sockets, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(sockets) {
		for _, word := range words {
			if bytes.Contains(line, []byte("@softnd-fabric")) && bytes.Contains(line, []byte(word)) {
				t.Errorf("left behind: %s", line)
			}
		}
	}
}

func eachWay(t *testing.T, test func(t *testing.T, way string)) {
	for way := range foreign {
		t.Run(way, func(t *testing.T) { test(t, way) })
	}
}

func TestInitUnderForeignLaunchers(t *testing.T) {
	eachWay(t, func(t *testing.T, way string) {
		j := startForeign(t, way, ranktest.RoleRounds, 3, 5, func(_ int, cmd *exec.Cmd) { cmd.Env = append(cmd.Env, softnd.EnvDebug+"=1") })
		for number, r := range j.ranks {
			r.Wait()
			if j.server != nil {
				if err := j.server.Ended(number); err != nil {
					t.Errorf("rank %d: %v", number, err)
				}
			}
			_, name, ok := strings.Cut(strings.TrimSpace(r.Err.String()), "meeting as ")
			if want := fmt.Sprintf("softnd: rank %d of 3, started by ", number); !ok || !strings.HasPrefix(r.Err.String(), want) {
				t.Errorf("%q, want %q", r.Err.String(), want)
			} else if number == 2 {
				noFabric(t, name)
			}
		}
	})
}

// Where a launcher leaves the others alone when one rank dies, they get errors.
func TestForeignRanksSeeDeath(t *testing.T) {
	eachWay(t, func(t *testing.T, way string) {
		j := startForeign(t, way, ranktest.RoleVictim, 3, 10, nil)
		for number, r := range j.ranks {
			if number < 2 {
				r.Wait()
				if !strings.Contains(r.Out.String(), " has died or left") { // rank 2, or one that went at the loss of it
					t.Errorf("rank %d: %q", number, r.Out)
				}
				continue
			}
			r.WaitKilled()
			if j.server != nil && j.server.Ended(number) == nil {
				t.Error("the launcher takes the victim's end for a good one")
			}
		}
	})
}

// A rank that dies before it has come is not waited for.
func TestInitFailsAfterDeathOfAForeignRank(t *testing.T) {
	j := startForeign(t, "PMI", ranktest.RoleRounds, 2, 1, func(rank int, cmd *exec.Cmd) {
		if rank == 1 {
			cmd.Path = "/bin/true"
		}
	})
	j.ranks[1].Wait()
	_ = j.server.Ended(1)
	if err := j.ranks[0].End(); err == nil || !strings.Contains(j.ranks[0].Err.String(), "pmi: barrier_in: refused by the launcher: rc=-1 rank_1_has_gone") {
		t.Errorf("%v: %s", err, j.ranks[0].Err)
	}
}

// Without ndrelay, ranks in two network namespaces cannot meet. All of them get the error.
func TestInitOverHostsNeedsRelay(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start a process in a network namespace of its own")
	}
	j := startForeign(t, "PMI", ranktest.RoleRounds, 3, 1, func(rank int, cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, "SOFTND_RELAY=/no/such/ndrelay", "SOFTND_HOST_ADDRESS=10.0.0.1")
		if rank == 2 {
			cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET
		}
	})
	for number, r := range j.ranks {
		if err := r.End(); err == nil || !strings.Contains(r.Err.String(), "host 1 (of rank 2): SOFTND_RELAY: ") {
			t.Errorf("rank %d: %v: %s", number, err, r.Err)
		}
	}
}

func TestInitReportsBadEnvironment(t *testing.T) {
	for _, tc := range []struct {
		name string
		env  []string // "name=value"
		want string
	}{
		{"no descriptor", []string{"PMI_FD=x"}, `PMI_FD="x": not a descriptor number`},
		{"closed", []string{"PMI_FD=987654", "PMI_RANK=0", "PMI_SIZE=1"}, "descriptor 987654 (PMI_FD): not inherited"},
		{"no memory", []string{"SOFTND_RANK=0", "SOFTND_SIZE=1"}, "SOFTND_RANK or SOFTND_SIZE is set, but none of SOFTND_ARENA_FD, SOFTND_CONTROL and SOFTND_ROOT"},
		{"no rank", []string{"PMI_FD=0", "PMI_SIZE=1"}, `PMI_RANK="" (PMI_SIZE="1"): not a valid rank`},
		{"rank too large", []string{"PMI_FD=0", "PMI_RANK=1", "PMI_SIZE=1"}, `PMI_RANK="1" (PMI_SIZE="1"): not a valid rank`},
		{"by port", []string{"PMI_ID=0", "PMI_PORT=host:1"}, "over the network only (PMI_PORT)"},
		{"Open MPI without size", []string{"OMPI_COMM_WORLD_RANK=0"}, `OMPI_COMM_WORLD_SIZE="", set by Open MPI's mpirun: want a number`},
		{"Open MPI, wrong rank", []string{"OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2"}, "OMPI_COMM_WORLD_RANK=2 is not a rank of OMPI_COMM_WORLD_SIZE=2"},
		{"Open MPI without job", []string{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2"}, "but none of PMIX_NAMESPACE"},
		{"Open MPI, two hosts", []string{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_SIZE=2"}, "runs the job on several hosts (OMPI_COMM_WORLD_LOCAL_SIZE is 2, not 4)"},
		{"Slurm, two hosts", []string{"SLURM_PROCID=0", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=4", "SLURM_STEP_NUM_NODES=2"}, "runs the job on several hosts (SLURM_STEP_NUM_NODES is 2, not 1)"},
		{"debug", []string{"SOFTND_DEBUG=yes"}, `SOFTND_DEBUG: invalid value "yes": want 0 or 1`},
		{"line", []string{"SOFTND_RANK=0", "SOFTND_CONTROL=x"}, `SOFTND_CONTROL="x": want name:secret:identity`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, v := range tc.env {
				name, value, _ := strings.Cut(v, "=")
				t.Setenv(name, value)
			}
			ctx := proctest.Context(t)
			job, err := softnd.Init(ctx)
			if err == nil {
				job.Close()
			}
			if err == nil || !strings.HasPrefix(err.Error(), "softnd: init: ") || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

// Launchers that speak PMI let a process in once.
func TestInitTwiceUnderPMIFails(t *testing.T) {
	j := startForeign(t, "PMI", roleAgain, 1, 0, nil)
	j.ranks[0].Wait()
	if err := j.server.Ended(0); err != nil {
		t.Error(err)
	}
}

var roleAgain = ranktest.Role("again", runAgain)

func runAgain(ctx context.Context, j *softnd.Job, _ int) error {
	if err := j.Close(); err != nil {
		return err
	}
	if _, err := softnd.Init(ctx); err == nil || !strings.Contains(err.Error(), "that this process uses PMI once") {
		return fmt.Errorf("a second Init: %v", err)
	}
	return nil
}

var roleAbort = ranktest.Role("abort", runAbort)

// runAbort ends the job from rank 1, while the others wait for it.
func runAbort(ctx context.Context, j *softnd.Job, code int) error {
	if err := j.Barrier(ctx); err != nil {
		return err
	}
	if j.Rank() == 1 {
		softnd.Abort(code, "there is nothing to do")
	}
	_ = j.Barrier(ctx) // fails when rank 1 has gone
	select {}          // stopped by the launcher
}
