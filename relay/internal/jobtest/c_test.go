package jobtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/slurmtest"
	"github.com/softnd/softnd/nd"
)

// cProgram returns the path of c/tests/hosts.c as a program. Without SOFTND_C_TESTS, the directory of the built programs of
// c/tests, tests of ranks in C are skipped.
func cProgram(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("SOFTND_C_TESTS")
	if dir == "" {
		t.Skip("SOFTND_C_TESTS does not name the built programs of c/tests")
	}
	return filepath.Join(dir, "test_hosts")
}

// roleTalks does what c/tests/hosts.c does as talks.
var roleTalks = proctest.Role("talks", func(s *proctest.Self) error {
	j, err := softnd.Init(s.Ctx, softnd.WithExit())
	if err != nil {
		return err
	}
	q, err := j.Adapter().CreateCompletionQueue(s.Ctx, 1024)
	if err != nil {
		return err
	}
	mem, err := j.Adapter().Allocate(s.Ctx, 16384, nd.AllowLocalWrite|nd.AllowRemoteWrite|nd.AllowRemoteRead)
	if err != nil {
		return err
	}
	all, err := j.ConnectAll(s.Ctx, nd.EndpointConfig{ReceiveCQ: q, InitiatorCQ: q})
	if err != nil {
		return err
	}
	windows, err := j.ExchangeWindows(s.Ctx, nd.DescriptorOf(mem))
	if err != nil {
		return err
	}
	const from, received, message = 2048, 4096, 64
	each := func(results int, post func(peer int, ep nd.Endpoint) error) error {
		for peer, ep := range all {
			if ep != nil {
				if err := post(peer, ep); err != nil {
					return fmt.Errorf("rank %d: %w", peer, err)
				}
			}
		}
		var r [16]nd.Result
		for results *= j.Size() - 1; results > 0; {
			n, err := q.Wait(s.Ctx, r[:])
			if err != nil {
				return err
			}
			for i := range n {
				if r[i].Status != nd.Success {
					return fmt.Errorf("a result is %v", r[i].Status)
				}
			}
			results -= n
		}
		return j.Barrier(s.Ctx)
	}
	if err := each(1, func(peer int, ep nd.Endpoint) error {
		mem.Bytes()[from+peer] = byte(j.Rank() + 1)
		return ep.Write(1, nd.One(nd.SGEOf(mem, from+peer, 1)), windows[peer].Address+uint64(j.Rank()), windows[peer].Token, 0)
	}); err != nil {
		return err
	}
	if err := each(0, func(peer int, ep nd.Endpoint) error {
		if got := mem.Bytes()[peer]; got != byte(peer+1) {
			return fmt.Errorf("it has written %d", got)
		}
		return ep.Receive(2, nd.One(nd.SGEOf(mem, received+peer*message, message)))
	}); err != nil {
		return err
	}
	if err := each(2, func(peer int, ep nd.Endpoint) error {
		return ep.Send(3, nd.One(nd.SGEOf(mem, from+peer, 1)), 0)
	}); err != nil {
		return err
	}
	for peer := range all {
		if got := mem.Bytes()[received+peer*message]; peer != j.Rank() && got != byte(peer+1) {
			return fmt.Errorf("rank %d has sent %d", peer, got)
		}
	}
	if err := exchanges(s, j, 8, 2000, 100_000); err != nil {
		return err
	}
	if err := j.Barrier(s.Ctx); err != nil {
		return err
	}
	if err := j.Close(); err != nil {
		return err
	}
	fmt.Printf("rank %d of %d is done\n", j.Rank(), j.Size())
	return nil
})

func TestCOverHosts(t *testing.T) {
	c := &cCluster{newCluster(t), cProgram(t)}
	// First of their host or not, at the first host or not, and three at a host.
	for _, tc := range []struct{ languages, progress, integrity string }{
		{"CCCC", "", "0"}, {"GCGC", "auto", "1"}, {"CCGG", "", "0"}, {"GGCC", "", "1"}, {"CGCGCG", "", "0"},
	} {
		t.Run(tc.languages, func(t *testing.T) {
			cmd := c.hydra(len(tc.languages)/2, c.speaking(tc.languages))
			cmd.Env = append(cmd.Env[:len(cmd.Env):len(cmd.Env)], "TEST_PROGRESS="+tc.progress, softnd.EnvIntegrity+"="+tc.integrity)
			status, out, errOut := proctest.Run(t, cmd)
			if status != 0 || strings.Count(out, " is done\n") != len(tc.languages) {
				t.Errorf("exit status %d: %s%s", status, out, errOut)
			}
			c.mustBeEmpty()
		})
	}
	t.Run("mistakes", c.testMistakes)
	t.Run("killed rank", c.testKilledRank)
	t.Run("killed relay", c.testKilledRelay)
	t.Run("departed ranks", c.testDepartedRanks)
	t.Run("abort", c.testAbort)
	t.Run("refused", c.testRefused)
	t.Run("SOFTND_ROOT", c.testAtRoot)
}

func TestCUnderSlurmOverHosts(t *testing.T) {
	program := cProgram(t)
	s := newSlurm(t)
	t.Run("talks", func(t *testing.T) {
		status, out, errOut := proctest.Run(t, s.srun((&cCluster{s.cluster, program}).speaking("CGGC")))
		if status != 0 || slurmtest.WithoutQueue(errOut) != "" || strings.Count(out, " is done\n") != 4 {
			t.Errorf("exit status %d: %s%s", status, out, errOut)
		}
		s.mustBeEmpty()
	})
	t.Run("abort", func(t *testing.T) {
		r := proctest.Start(t, s.srun(program, "aborts", "3"))
		s.mustBeOver(t, r, "the start", time.Now())
		if want := "softnd: rank 3 of 4 aborts the job with code 7: the disk is full\n"; !strings.Contains(r.Err.String(), want) {
			t.Errorf("no %q in %s", want, r.Err)
		}
	})
	for _, victim := range []int{2, 3} {
		t.Run(fmt.Sprint("killed rank ", victim), func(t *testing.T) {
			r := proctest.Start(t, s.srun(program, "waits"))
			s.kill(t, r, allReady(t, r), victim)
		})
	}
	t.Run("killed rank 3 after its leader has left", func(t *testing.T) { s.killAfterLeader(t, program, "leaves", "2") })
}

// cCluster is a cluster with the program of ranks in C.
type cCluster struct {
	*cluster
	program string
}

// speaking returns a program that talks, as a rank in C or in Go by its number.
func (c *cCluster) speaking(languages string) string { return c.acting(languages, "talks", roleTalks) }

// acting returns a program that is a rank in C or in Go, by its number, with an act of c/tests/hosts.c or the same role.
func (c *cCluster) acting(languages, act, same string) string {
	goRank := strings.Join(role(same), " ")
	text := "#!/bin/sh\ncase ${PMI_RANK:-$SOFTND_RANK} in\n"
	for rank, language := range languages {
		if language == 'C' {
			text += fmt.Sprintf("%d) exec %s %s;;\n", rank, c.program, act)
		} else {
			text += fmt.Sprintf("%d) exec %s;;\n", rank, goRank)
		}
	}
	return c.script(act+"-"+languages, text+"esac\n")
}

// cReady waits until the ranks in C have joined, and returns their processes' numbers by rank.
func cReady(t *testing.T, r *proctest.Process, ranks int) []int {
	t.Helper()
	pids := make([]int, ranks)
	for range ranks {
		var rank, pid int
		if _, err := fmt.Sscanf(r.Hear(), "ready %d %d", &rank, &pid); err != nil || rank >= ranks {
			t.Fatalf("rank %d: %v", rank, err)
		}
		pids[rank] = pid
	}
	return pids
}

// Collective calls that do not fit together fail in every rank.
func (c *cCluster) testMistakes(t *testing.T) {
	status, out, errOut := proctest.Run(t, c.hydra(2, c.program, "mistakes"))
	if status != 0 {
		t.Errorf("exit status %d: %s%s", status, out, errOut)
	}
	c.mustBeEmpty()
}

// When the leader of the second host is killed, the job ends and nothing is left.
func (c *cCluster) testKilledRank(t *testing.T) {
	r := proctest.Start(t, c.hydra(2, c.program, "waits"))
	if err := syscall.Kill(cReady(t, r, 4)[2], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := r.End(); err == nil {
		t.Error("mpiexec has succeeded")
	}
	c.mustBeEmpty()
}

// If a relay dies, the next collective call fails in all ranks, which leave the job.
func (c *cCluster) testKilledRelay(t *testing.T) {
	r := proctest.Start(t, c.hydra(2, c.program, "barriers"))
	cReady(t, r, 4)
	relays := c.processes("ndrelay")
	if len(relays) != 2 {
		t.Fatalf("relays: %v", relays)
	}
	if err := syscall.Kill(relays[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.Wait()
	c.mustBeEmpty()
}

// A Connect to a rank of another host that has left the job fails.
func (c *cCluster) testDepartedRanks(t *testing.T) {
	status, out, errOut := proctest.Run(t, c.hydra(2, c.program, "departs"))
	if status != 0 || strings.Count(out, " has learnt that rank ") != 2 {
		t.Errorf("exit status %d: %s%s", status, out, errOut)
	}
	c.mustBeEmpty()
}

// Ranks meet without a launcher: in C alone, and with ranks in Go. Rank 0 of either language serves the others. The end of one rank
// ends all.
func (c *cCluster) testAtRoot(t *testing.T) {
	for _, languages := range []string{"CCCC", "CGGC", "GCCG"} {
		t.Run(languages, func(t *testing.T) {
			for rank, r := range c.atRoot(2, nil, c.speaking(languages)) {
				r.Wait()
				if want := fmt.Sprintf("rank %d of 4 is done\n", rank); r.Out.String() != want || r.Err.String() != "" {
					t.Errorf("rank %d has printed %q, %q", rank, r.Out, r.Err)
				}
			}
			c.mustBeEmpty()
		})
	}
	for _, victim := range []int{0, 3} {
		t.Run(fmt.Sprint("killed rank ", victim), func(t *testing.T) {
			c.killAtRoot(t, c.atRoot(2, nil, c.program, "waits"), victim)
		})
	}
	t.Run("killed rank after rank 0 has left", func(t *testing.T) {
		var all []*proctest.Process
		for tries := 0; ; tries++ {
			all = c.atRoot(2, nil, c.program, "leaves first")
			for rank, r := range all[1:] {
				if line := r.Hear(); !strings.HasPrefix(line, fmt.Sprintf("ready %d ", rank+1)) {
					t.Fatal(line)
				}
			}
			if err := syscall.Kill(all[3].PID(), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			all[3].WaitKilled()
			for rank := 1; rank < 3; rank++ {
				ends(t, all[rank], 1, fmt.Sprintf("softnd: rank %d of 4 ends with the job: rank 3 ", rank))
			}
			// The others see that rank 0 has left the memory of the job. It may not have left the job then, and ends with it.
			if all[0].End() == nil || tries == 5 || !strings.Contains(all[0].Err.String(), "softnd: rank 0 of 4 ends with the job: ") {
				break
			}
		}
		all[0].Wait()
		if text := all[0].Out.String(); !strings.HasPrefix(text, "connection aborted: close job: SOFTND_ROOT: rank 3 (at "+addressB+":") {
			t.Errorf("snd_job_close of rank 0 has returned %q", text)
		}
		c.mustBeEmpty()
	})
	// Rank 0 waits in snd_job_close until the others have called it, and they learn that it has left.
	t.Run("rank 0 leaves before a barrier of the other host", func(t *testing.T) {
		program := c.script("leaves-and-barriers", fmt.Sprintf("#!/bin/sh\ncase $SOFTND_RANK in\n0) exec %s 'leaves first';;\n*) exec %s barriers;;\nesac\n", c.program, c.program))
		all := c.atRoot(1, nil, program)
		all[1].Wait()
		all[0].Wait()
		if text := all[0].Out.String(); !strings.HasPrefix(text, "success") {
			t.Errorf("snd_job_close of rank 0 has returned %q", text)
		}
		c.mustBeEmpty()
	})
	t.Run("cut off host", func(t *testing.T) {
		all := c.atRoot(1, []string{"SOFTND_RELAY_KEEPALIVE=10s"}, c.program, "waits")
		ready(t, all)
		c.ip("-n", c.names[1], "link", "set", "eth0", "down")
		ends(t, all[0], 1, "softnd: rank 0 of 2 ends with the job: rank 1 ")
		ends(t, all[1], 1, "softnd: rank 1 of 2 ends with the job: rank 0 ")
		c.ip("-n", c.names[1], "link", "set", "eth0", "up")
		c.mustBeEmpty()
	})
	t.Run("abort", func(t *testing.T) {
		for rank, r := range c.atRoot(2, nil, c.program, "aborts", "3") {
			line := fmt.Sprintf("softnd: rank %d of 4 ends with the job: rank 3 has aborted the job with code 7: the disk is full\n", rank)
			if rank == 3 {
				line = "softnd: rank 3 of 4 aborts the job with code 7: the disk is full\n"
			}
			ends(t, r, 7, line)
		}
		c.mustBeEmpty()
	})
}

func (c *cCluster) testAbort(t *testing.T) {
	status, _, errOut := proctest.Run(t, c.hydra(2, c.program, "aborts", "3"))
	if status != 7 || !strings.Contains(errOut, "softnd: rank 3 of 4 aborts the job with code 7: the disk is full\n") {
		t.Errorf("exit status %d, want 7: %s", status, errOut)
	}
	c.mustBeEmpty()
}

// What no job over hosts can have is refused with the cause.
func (c *cCluster) testRefused(t *testing.T) {
	for _, tc := range []struct{ variable, want string }{
		{"SOFTND_RELAY=/no/such/ndrelay", "host 0 (of rank 0): init: SOFTND_RELAY=\"/no/such/ndrelay\" is no program that can be run"},
		{"SOFTND_RELAY=/bin/false", "(/bin/false): it has ended without an answer"},
		{"SOFTND_HOST_ADDRESS=here", "SOFTND_HOST_ADDRESS=\"here\": want an IP address of this host"},
	} {
		cmd := c.hydra(2, c.program, "refused")
		cmd.Env = append(cmd.Env[:len(cmd.Env):len(cmd.Env)], tc.variable)
		_, out, errOut := proctest.Run(t, cmd)
		if !strings.Contains(out, tc.want) {
			t.Errorf("%s: want %q: %s%s", tc.variable, tc.want, out, errOut)
		}
		c.mustBeEmpty()
	}
}
