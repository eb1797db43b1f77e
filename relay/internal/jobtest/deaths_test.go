package jobtest

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/meet/rendezvous"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// roleDeparts has ranks 1 and 3 leave. Then ranks 0 and 2 connect to them, and late to each other.
var roleDeparts = proctest.Role("departs", func(s *proctest.Self) error {
	j, err := softnd.Init(s.Ctx, softnd.WithExit())
	if err != nil {
		return err
	}
	if j.Rank()%2 == 1 {
		return j.Close()
	}
	if _, err := s.Hear(); err != nil {
		return err
	}
	q, err := j.Adapter().CreateCompletionQueue(s.Ctx, 64)
	if err != nil {
		return err
	}
	cfg := nd.EndpointConfig{ReceiveCQ: q, InitiatorCQ: q}
	gone := 3 - j.Rank() // rank 0 waits for its request, rank 2 sends it one
	if _, err := j.Connect(s.Ctx, gone, cfg); !errors.Is(err, nd.HostUnreachable) || !strings.Contains(fmt.Sprint(err), "on another host has left or has ended the connection") {
		return fmt.Errorf("connect to rank %d, which has left: %w", gone, err)
	}
	if j.Rank() == 2 {
		time.Sleep(3 * time.Second) // rank 0 asks whether this rank is there
	}
	ep, err := j.Connect(s.Ctx, 2-j.Rank(), cfg)
	if err != nil {
		return err
	}
	s.Say("connected")
	_, err = s.Hear() // the other has connected, too
	return errors.Join(err, ep.Close(), j.Close())
})

func TestConnectToRankThatHasLeft(t *testing.T) {
	c := newCluster(t)
	all := c.atRoot(2, nil, role(roleDeparts)...)
	for _, rank := range []int{1, 3} {
		all[rank].Wait()
	}
	for _, rank := range []int{0, 2} {
		all[rank].Say("they have left")
	}
	for _, rank := range []int{0, 2} {
		all[rank].Expect("connected")
	}
	for _, rank := range []int{0, 2} {
		all[rank].Say("end")
	}
	for _, rank := range []int{0, 2} { // Close of rank 0 waits for rank 2
		all[rank].Wait()
	}
}

// roleWaits joins the job, says so, and waits until it is ended.
var roleWaits = proctest.Role("waits", func(s *proctest.Self) error {
	j, err := softnd.Init(s.Ctx, softnd.WithExit())
	if err != nil {
		return err
	}
	s.Say("ready %d %d", j.Rank(), os.Getpid())
	line, err := s.Hear()
	if err != nil {
		select {} // until it is ended
	}
	switch line {
	case "abort":
		softnd.Abort(7, "the disk is full")
	case "exchange":
		if err := exchanges(s, j, 8, 2000, 100_000); err != nil {
			return err
		}
	case "barrier":
		if err := j.Barrier(s.Ctx); !errors.Is(err, nd.ConnectionAborted) {
			return fmt.Errorf("barrier: %w", err)
		}
	}
	return j.Close()
})

// roleLeaves is roleWaits for all ranks but that of its argument. When all ranks have joined, that rank leaves the job, says so,
// and ends. With a second argument, the others leave and end when that time has passed.
var roleLeaves = proctest.Role("leaves", func(s *proctest.Self) error {
	j, err := softnd.Init(s.Ctx, softnd.WithExit())
	if err != nil {
		return err
	}
	s.Say("ready %d %d", j.Rank(), os.Getpid())
	if err := j.Barrier(s.Ctx); err != nil {
		return err
	}
	switch {
	case fmt.Sprint(j.Rank()) == s.Args[0]:
		defer s.Say("left")
	case len(s.Args) > 1:
		d, err := time.ParseDuration(s.Args[1])
		if err != nil {
			return err
		}
		time.Sleep(d)
	default:
		select {} // until it is ended
	}
	return j.Close()
})

// roleAborts joins the job. Rank 3 aborts it, and the others wait until they are ended.
var roleAborts = proctest.Role("aborts", func(s *proctest.Self) error {
	j, err := softnd.Init(s.Ctx, softnd.WithExit())
	if err != nil {
		return err
	}
	if err := j.Barrier(s.Ctx); err != nil {
		return err
	}
	if j.Rank() == 3 {
		softnd.Abort(7, "the disk is full")
	}
	select {}
})

// ready waits until all ranks have joined, and returns their processes' numbers.
func ready(t *testing.T, all []*proctest.Process) (pids []int) {
	t.Helper()
	for rank, r := range all {
		var got, pid int
		if _, err := fmt.Sscanf(r.Hear(), "ready %d %d", &got, &pid); err != nil || got != rank {
			t.Fatalf("rank %d: %v", rank, err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// ends waits for the end of a process with a code and a line.
func ends(t *testing.T, r *proctest.Process, code int, line string) {
	t.Helper()
	var exit *exec.ExitError
	if err := r.End(); !errors.As(err, &exit) || exit.ExitCode() != code || !strings.Contains(r.Err.String(), line) {
		t.Errorf("%v, want exit code %d and %q:\n%s", err, code, line, r.Err)
	}
}

// killAtRoot kills one of four ranks when all have joined. The others end, and nothing is left at any host.
func (c *cluster) killAtRoot(t *testing.T, all []*proctest.Process, victim int) {
	t.Helper()
	pids := ready(t, all)
	if err := syscall.Kill(pids[victim], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	all[victim].WaitKilled()
	for rank, r := range all {
		if rank != victim {
			ends(t, r, 1, fmt.Sprintf("softnd: rank %d of 4 ends with the job: rank %d ", rank, victim))
		}
	}
	c.mustBeEmpty()
}

// When a rank is killed, all ranks end, and nothing is left at any host.
func TestKilledRankEndsTheJob(t *testing.T) {
	c := newCluster(t)
	for _, victim := range []int{0, 1, 2} {
		t.Run(fmt.Sprintf("rank %d", victim), func(t *testing.T) {
			c.killAtRoot(t, c.atRoot(2, nil, role(roleWaits)...), victim)
		})
	}
	t.Run("Hydra", func(t *testing.T) {
		r := proctest.Start(t, c.hydra(2, role(roleWaits)...))
		var rank, pid int
		for range 4 {
			if _, err := fmt.Sscanf(r.Hear(), "ready %d %d", &rank, &pid); err != nil {
				t.Fatal(err)
			}
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if err := r.End(); err == nil {
			t.Error("mpiexec has succeeded")
		}
		if strings.Contains(r.Err.String(), "the launcher ends the job") {
			t.Errorf("a relay has ended the job, but Hydra does that by itself:\n%s", r.Err)
		}
		c.mustBeEmpty()
	})
}

// When the link to a host is down, its ranks and those of the other hosts end.
func TestCutOffHostEndsTheJob(t *testing.T) {
	c := newCluster(t)
	all := c.atRoot(1, []string{"SOFTND_RELAY_KEEPALIVE=10s"}, role(roleWaits)...)
	ready(t, all)
	at := time.Now()
	c.ip("-n", c.names[1], "link", "set", "eth0", "down")
	ends(t, all[0], 1, "softnd: rank 0 of 2 ends with the job: rank 1 ")
	ends(t, all[1], 1, "softnd: rank 1 of 2 ends with the job: rank 0 ")
	t.Logf("the ranks have ended after %v", time.Since(at))
}

func TestAbortEndsTheJobOverHosts(t *testing.T) {
	c := newCluster(t)
	t.Run("Hydra", func(t *testing.T) {
		status, _, errOut := proctest.Run(t, c.hydra(2, role(roleAborts)...))
		if want := "softnd: rank 3 of 4 aborts the job with code 7: the disk is full\n"; status != 7 || !strings.Contains(errOut, want) {
			t.Errorf("exit status %d, want 7 and %q: %s", status, want, errOut)
		}
		c.mustBeEmpty()
	})
	all := c.atRoot(1, nil, role(roleWaits)...)
	ready(t, all)
	all[1].Say("abort")
	ends(t, all[1], 7, "softnd: rank 1 of 2 aborts the job with code 7: the disk is full\n")
	ends(t, all[0], 7, "softnd: rank 0 of 2 ends with the job: rank 1 has aborted the job with code 7: the disk is full\n")
}

// If a relay dies, the connections between hosts end, and the next collective call fails in all ranks.
func TestKilledRelayFailsCollectiveCalls(t *testing.T) {
	c := newCluster(t)
	all := c.atRoot(2, nil, role(roleWaits)...)
	ready(t, all)
	relays := c.processes("ndrelay")
	if len(relays) != 2 {
		t.Fatalf("relays: %v", relays)
	}
	if err := syscall.Kill(relays[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		r.Say("barrier")
	}
	for _, r := range all {
		r.Wait()
	}
}

// When a rank of another host dies while Init connects the hosts, Init ends in the others: with an error in Go, with the process in C.
// Its relay listens, and says nothing.
func TestDeathWhileInitConnectsHosts(t *testing.T) {
	c := newCluster(t)
	for name, program := range map[string]func(t *testing.T) []string{
		"Go": func(*testing.T) []string { return role(roleMany) },
		"C":  func(t *testing.T) []string { return []string{cProgram(t), "refused"} },
	} {
		t.Run(name, func(t *testing.T) {
			const secret = "a secret of the tests"
			ctx := proctest.Context(t)
			at := proctest.FreeAddress(t)
			args := program(t)
			cmd := exec.Command(args[0], args[1:]...)
			cmd.Env = append(c.env[:len(c.env):len(c.env)], "SOFTND_ROOT="+at.String(), "SOFTND_SECRET="+secret, "SOFTND_RANK=0", "SOFTND_SIZE=2", "SOFTND_HOST_ADDRESS=127.0.0.1")
			r := proctest.Start(t, cmd)
			mute, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer mute.Close()
			m, err := rendezvous.Join(ctx, rendezvous.Config{Root: at, Secret: []byte(secret), Rank: 1, Size: 2})
			if err != nil {
				t.Fatal(err)
			}
			announcement := fmt.Sprintf(`{"Relay":"%s","Leader":"127.78.0.1","Error":""}`, mute.Addr())
			if err := errors.Join(m.Put(ctx, "softnd-host-1", "boot=b&host=b&network=n&user=0"), m.Barrier(ctx), m.Barrier(ctx),
				m.Put(ctx, "softnd-shared-relay-1", url.QueryEscape(announcement)), m.Barrier(ctx)); err != nil {
				t.Fatal(err)
			}
			proctest.Eventually(t, "rank 0 has its answers", func() bool {
				_, err := m.Get(ctx, "softnd-shared-relay-0")
				return err == nil && len(c.processes("ndrelay")) == 1
			})
			time.Sleep(200 * time.Millisecond) // it connects the relays
			if err := m.HangUp(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- r.End() }()
			err = proctest.Receive(t, "the end of rank 0", ended, r.Err) // the program in C succeeds if Init fails
			if text := r.Out.String() + r.Err.String(); (err == nil) != (name == "C") || !strings.Contains(text, "rank 1 (at 127.0.0.1") || !strings.Contains(text, "has died") {
				t.Errorf("%v: %s", err, text)
			}
			c.mustBeEmpty()
		})
	}
}

// A relay that dies while Init connects it fails Init in all ranks.
func TestRelayThatDiesDuringInit(t *testing.T) {
	c := newCluster(t)
	fake := c.script("fake", `#!/bin/sh
read -r first
echo '{"control":"`+addressB+`:9"}'
read -r second
exit 3
`)
	chosen := c.script("chosen", `#!/bin/sh
if ip addr show dev eth0 | grep -q `+addressB+`; then exec `+fake+`; fi
exec `+strings.TrimPrefix(c.env[len(c.env)-1], "SOFTND_RELAY=")+"\n")
	for rank, r := range c.atRoot(2, []string{"SOFTND_RELAY=" + chosen}, role(roleMany)...) {
		if err := r.End(); err == nil || !strings.Contains(r.Err.String(), "softnd: ") {
			t.Errorf("rank %d: %v: %s", rank, err, r.Err)
		}
	}
}
