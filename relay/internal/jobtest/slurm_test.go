package jobtest

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/slurmtest"
)

// slurm is a Slurm whose nodes are the hosts of a cluster.
type slurm struct {
	*cluster
	first slurmtest.Node
	env   []string
}

func newSlurm(t *testing.T) *slurm {
	t.Helper()
	c := newCluster(t)
	nodes := []slurmtest.Node{slurmtest.Namespaces("snda", addressA, c.names[0]), slurmtest.Namespaces("sndb", addressB, c.names[1])}
	return &slurm{c, nodes[0], append(c.env[:len(c.env):len(c.env)], slurmtest.Start(t, nodes...))}
}

// srun returns the command that starts a program with two ranks at each node. Only rank 3 has its standard input.
func (s *slurm) srun(program ...string) *exec.Cmd {
	args := append(s.first.Command("srun", "-N", "2", "--ntasks-per-node=2", "--mpi=pmi2", "--input=3"), program...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = s.env
	return cmd
}

// kill kills ranks, which ends the job.
func (s *slurm) kill(t *testing.T, r *proctest.Process, pids [4]int, victims ...int) {
	t.Helper()
	at := time.Now()
	for _, victim := range victims {
		if err := syscall.Kill(pids[victim], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	s.mustBeOver(t, r, "the death", at)
}

// mustBeOver waits until no process of the job is left, and logs how long that takes from an event.
func (s *slurm) mustBeOver(t *testing.T, r *proctest.Process, event string, at time.Time) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- r.End() }()
	if err := proctest.Receive(t, "the end of srun", ended, r.Err); err == nil { // before the limit of r ends it
		t.Errorf("srun has succeeded: %s", r.Err)
	}
	after := time.Since(at)
	s.mustBeEmpty()
	t.Logf("srun has ended %v after %s, the last process %v:\n%s", after, event, time.Since(at), r.Err)
}

func TestSlurmOverHosts(t *testing.T) {
	s := newSlurm(t)
	t.Run("heat", func(t *testing.T) {
		status, out, errOut := proctest.Run(t, s.srun(s.build("github.com/softnd/softnd/examples/heat"), "-verify"))
		if status != 0 || slurmtest.WithoutQueue(errOut) != "" {
			t.Errorf("exit status %d: %s", status, errOut)
		}
		mustBeSerial(t, out)
		s.mustBeEmpty()
	})
	t.Run("ndinfo", func(t *testing.T) {
		status, out, errOut := proctest.Run(t, s.srun(s.build("github.com/softnd/softnd/cmd/ndinfo"), "--hosts"))
		if status != 0 || slurmtest.WithoutQueue(errOut) != "" {
			t.Errorf("exit status %d: %s", status, errOut)
		}
		isHealthy(t, out, "snda", "sndb")
	})
	// srun without PMI sets numbers of ranks, and the ranks meet at SOFTND_ROOT.
	t.Run("heat at SOFTND_ROOT", func(t *testing.T) {
		args := s.first.Command("srun", "-N", "2", "--ntasks-per-node=2", "--mpi=none", s.build("github.com/softnd/softnd/examples/heat"), "-verify")
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = append(s.env[:len(s.env):len(s.env)], "SOFTND_ROOT="+addressA+":7000", "SOFTND_SECRET=a secret of the tests")
		status, out, errOut := proctest.Run(t, cmd)
		if status != 0 || slurmtest.WithoutQueue(errOut) != "" {
			t.Errorf("exit status %d: %s", status, errOut)
		}
		mustBeSerial(t, out)
		s.mustBeEmpty()
	})
	t.Run("abort", func(t *testing.T) {
		r := proctest.Start(t, s.srun(role(roleWaits)...))
		allReady(t, r)
		at := time.Now()
		r.Say("abort")
		s.mustBeOver(t, r, "softnd.Abort", at)
		if want := "softnd: rank 3 of 4 aborts the job with code 7: the disk is full\n"; !strings.Contains(r.Err.String(), want) {
			t.Errorf("no %q in %s", want, r.Err)
		}
	})
	// Local ranks that are the leader of their host or not, and all ranks of a host.
	for _, victims := range [][]int{{3}, {2}, {0}, {2, 3}} {
		t.Run(fmt.Sprint("killed ranks ", victims), func(t *testing.T) {
			r := proctest.Start(t, s.srun(role(roleWaits)...))
			s.kill(t, r, allReady(t, r), victims...)
		})
	}
	t.Run("the other ranks run after their leader has ended", func(t *testing.T) {
		status, _, errOut := proctest.Run(t, s.srun(role(roleLeaves, "2", "1s")...))
		if status != 0 || slurmtest.WithoutQueue(errOut) != "" {
			t.Errorf("exit status %d: %s", status, errOut)
		}
		s.mustBeEmpty()
	})
	t.Run("killed rank 3 after its leader has left", func(t *testing.T) { s.killAfterLeader(t, role(roleLeaves, "2")...) })
}

// killAfterLeader runs a program whose rank 2, the leader of the second host, leaves the job. When its process has ended,
// killAfterLeader kills the other rank of the host, which ends the job.
func (s *slurm) killAfterLeader(t *testing.T, program ...string) {
	t.Helper()
	r := proctest.Start(t, s.srun(program...))
	pids := allReady(t, r, "left")
	proctest.Eventually(t, "rank 2 has ended", func() bool { return syscall.Kill(pids[2], 0) == syscall.ESRCH })
	s.kill(t, r, pids, 3)
}

// allReady waits until the four ranks of a launcher have joined, and returns their processes' numbers. It also waits for other
// lines, which may come earlier than those of another host.
func allReady(t *testing.T, r *proctest.Process, others ...string) (pids [4]int) {
	t.Helper()
	for range len(pids) + len(others) {
		line := r.Hear()
		if slices.Contains(others, line) {
			continue
		}
		var rank, pid int
		if _, err := fmt.Sscanf(line, "ready %d %d", &rank, &pid); err != nil || rank >= len(pids) {
			t.Fatalf("rank %d: %v: %s", rank, err, r.Err)
		}
		pids[rank] = pid
	}
	return pids
}
