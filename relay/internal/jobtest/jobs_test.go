package jobtest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/meet/relayclient"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// mustBeSerial checks the output of heat -verify with four ranks.
func mustBeSerial(t *testing.T, out string) {
	t.Helper()
	mustBeSerialOf(t, out, 4)
}

func mustBeSerialOf(t *testing.T, out string, ranks int) {
	t.Helper()
	if !strings.Contains(out, "heat: identical to the serial result\n") || !strings.Contains(out, fmt.Sprintf(", %d ranks, ", ranks)) {
		t.Errorf("output %q", out)
	}
}

func TestHeatOverHosts(t *testing.T) {
	c := newCluster(t)
	heat := c.build("github.com/softnd/softnd/examples/heat")
	t.Run("Hydra", func(t *testing.T) {
		status, out, errOut := proctest.Run(t, c.hydra(2, heat, "-verify"))
		if status != 0 {
			t.Errorf("exit status %d: %s", status, errOut)
		}
		mustBeSerial(t, out)
		c.mustBeEmpty()
	})
	t.Run("SOFTND_ROOT, payload checks", func(t *testing.T) {
		all := c.atRoot(2, []string{softnd.EnvIntegrity + "=1"}, heat, "-verify")
		for _, r := range all {
			r.Wait()
		}
		mustBeSerial(t, all[0].Out.String())
	})
}

// Ranks of two hosts use one counter, one lock and one queue.
func TestAtomicsOverHosts(t *testing.T) {
	c := newCluster(t)
	for program, answer := range map[string]string{"counter": "counter: each task was done once\n", "lock": "lock: 600 increments, and none was lost\n",
		"queue": "queue: 1500 numbers arrived\n"} {
		t.Run(program, func(t *testing.T) {
			status, out, errOut := proctest.Run(t, c.hydra(2, c.build("github.com/softnd/softnd/examples/atomics/"+program)))
			if status != 0 || !strings.Contains(out, answer) {
				t.Errorf("exit status %d: %s\n%s", status, errOut, out)
			}
		})
	}
}

// A job runs with each tested provider of libfabric. libfabric 1.18 and newer have no net.
func TestHeatWithProviders(t *testing.T) {
	c := newCluster(t)
	heat := c.build("github.com/softnd/softnd/examples/heat")
	for _, provider := range []string{"tcp;ofi_rxm", "net"} {
		t.Run(provider, func(t *testing.T) {
			t.Setenv(relayclient.EnvProvider, provider)
			if info, err := relayclient.Check(proctest.Context(t), strings.TrimPrefix(c.env[len(c.env)-1], "SOFTND_RELAY="), "127.0.0.1", ""); err == nil && info.Error != "" && provider == "net" {
				t.Skipf("libfabric has no provider net: %s", info.Error)
			}
			all := c.atRoot(2, []string{relayclient.EnvProvider + "=" + provider}, heat, "-verify")
			for _, r := range all {
				r.Wait()
				if text := r.Err.String(); text != "" {
					t.Errorf("a rank has printed %q", text)
				}
			}
			mustBeSerial(t, all[0].Out.String())
			c.mustBeEmpty()
		})
	}
}

// roleMany is the life of a rank in a large job.
var roleMany = proctest.Role("many", func(s *proctest.Self) error {
	began := time.Now()
	j, err := softnd.Init(s.Ctx, softnd.WithExit())
	if err != nil {
		return err
	}
	if err := j.Barrier(s.Ctx); err != nil {
		return err
	}
	if err := exchanges(s, j, 8); err != nil {
		return err
	}
	larger := time.Now()
	if err := exchanges(s, j, 2000, 100_000); err != nil {
		return err
	}
	took := time.Since(larger)
	if err := j.Close(); err != nil {
		return err
	}
	if j.Rank() == 0 {
		fmt.Printf("%d ranks: Init, Barrier, Exchange of 8 bytes and Close %v, Exchange of 2,000 and of 100,000 bytes %v\n", j.Size(), time.Since(began)-took, took)
	}
	return nil
})

// exchanges passes blobs of each length. With many ranks, packs of 8 bytes fit into a message of the leaders, and those of 100,000 do not.
func exchanges(s *proctest.Self, j *softnd.Job, sizes ...int) error {
	for _, size := range sizes {
		blob := make([]byte, size)
		for i := range blob {
			blob[i] = byte(j.Rank() + i)
		}
		all, err := j.Exchange(s.Ctx, blob)
		if err != nil {
			return err
		}
		for rank, b := range all {
			if len(b) != size || b[size-1] != byte(rank+size-1) || b[0] != byte(rank) {
				return fmt.Errorf("blob of rank %d has %d bytes", rank, len(b))
			}
		}
	}
	return nil
}

func TestManyRanksOverHosts(t *testing.T) {
	c := newCluster(t)
	status, out, errOut := proctest.Run(t, c.hydra(32, role(roleMany)...))
	if status != 0 || !strings.HasPrefix(out, "64 ranks: ") {
		t.Errorf("exit status %d, %s%s", status, out, errOut)
	}
	t.Log(out)
}

// roleConnects connects every rank with every other one in each way, and sends messages. Each host has two ranks.
var roleConnects = proctest.Role("connects", func(s *proctest.Self) error {
	j, err := softnd.Init(s.Ctx, softnd.WithExit())
	if err != nil {
		return err
	}
	var want []softnd.Host
	for host := range j.Size() / 2 {
		want = append(want, softnd.Host{Address: netip.MustParseAddr(addressOf(host)), Ranks: []int{2 * host, 2*host + 1}})
	}
	if hosts := j.Hosts(); !reflect.DeepEqual(hosts, want) {
		return fmt.Errorf("hosts: %v, want %v", hosts, want)
	}
	q, err := j.Adapter().CreateCompletionQueue(s.Ctx, 1024)
	if err != nil {
		return err
	}
	mem, err := j.Adapter().Allocate(s.Ctx, 4096, nd.AllowLocalWrite|nd.AllowRemoteWrite|nd.AllowRemoteRead)
	if err != nil {
		return err
	}
	all, err := j.ConnectAll(s.Ctx, nd.EndpointConfig{ReceiveCQ: q, InitiatorCQ: q})
	if err != nil {
		return err
	}
	if s := j.Stats(); len(s.Endpoints) != j.Size()-1 || len(s.CompletionQueues) != 1 { // a leader has more
		return fmt.Errorf("counters of %d endpoints and %d queues", len(s.Endpoints), len(s.CompletionQueues))
	}
	windows, err := j.ExchangeWindows(s.Ctx, nd.DescriptorOf(mem))
	if err != nil {
		return err
	}
	for peer, ep := range all { // each rank writes its number into the memory of the others
		if ep == nil {
			continue
		}
		mem.Bytes()[2048+peer] = byte(j.Rank() + 1)
		if err := ep.Write(1, nd.One(nd.SGEOf(mem, 2048+peer, 1)), windows[peer].Address+uint64(j.Rank()), windows[peer].Token, 0); err != nil {
			return err
		}
		if r, err := nd.WaitOne(s.Ctx, q, ep); err != nil || r.Status != nd.Success {
			return fmt.Errorf("write to rank %d: %v, %w", peer, r, err)
		}
	}
	if err := j.Barrier(s.Ctx); err != nil {
		return err
	}
	for peer := range all {
		if peer != j.Rank() && mem.Bytes()[peer] != byte(peer+1) {
			return fmt.Errorf("rank %d has written %d", peer, mem.Bytes()[peer])
		}
	}
	if err := dialNext(s.Ctx, j, q); err != nil {
		return err
	}
	if err := j.Barrier(s.Ctx); err != nil {
		return err
	}
	return j.Close()
})

// dialNext lets each rank dial the next one.
func dialNext(ctx context.Context, j *softnd.Job, q nd.CompletionQueue) error {
	l, err := j.Listen(ctx)
	if err != nil {
		return err
	}
	if err := j.Barrier(ctx); err != nil {
		return err
	}
	dialled := make(chan error, 1)
	cfg := nd.EndpointConfig{ReceiveCQ: q, InitiatorCQ: q}
	go func() {
		_, err := j.Dial(ctx, (j.Rank()+1)%j.Size(), cfg)
		dialled <- err
	}()
	_, peer, err := l.Accept(ctx, cfg)
	if want := (j.Rank() + j.Size() - 1) % j.Size(); err == nil && peer != want {
		err = fmt.Errorf("rank %d has dialled, want rank %d", peer, want)
	}
	return errors.Join(err, <-dialled)
}

func TestConnectionsOverHosts(t *testing.T) {
	c := newCluster(t)
	for _, r := range c.atRoot(2, nil, role(roleConnects)...) {
		r.Wait()
	}
}

// Each relay has a link to each other one, and each leader exchanges messages with the others. A host that fails ends the
// job of all.
func TestThreeHosts(t *testing.T) {
	c := newClusterOf(t, 3)
	t.Run("heat", func(t *testing.T) {
		status, out, errOut := proctest.Run(t, c.hydra(2, c.build("github.com/softnd/softnd/examples/heat"), "-verify"))
		if status != 0 {
			t.Errorf("exit status %d: %s", status, errOut)
		}
		mustBeSerialOf(t, out, 6)
	})
	t.Run("connections", func(t *testing.T) {
		for _, r := range c.atRoot(2, nil, role(roleConnects)...) {
			r.Wait()
		}
	})
	t.Run("exchange", func(t *testing.T) {
		all := c.atRoot(2, nil, role(roleWaits)...)
		ready(t, all)
		for _, r := range all {
			r.Say("exchange")
		}
		for _, r := range all {
			r.Wait()
		}
	})
	t.Run("killed host", func(t *testing.T) {
		all := c.atRoot(2, nil, role(roleWaits)...)
		pids := ready(t, all)
		host := append(pids[2:4:4], c.processesAt(1, "ndrelay")...)
		if len(host) != 3 {
			t.Fatalf("processes of the second host: %v", host)
		}
		for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} { // stopped first: none learns that another one has died
			for _, pid := range host {
				if err := syscall.Kill(pid, signal); err != nil {
					t.Fatal(err)
				}
			}
		}
		for rank, r := range all {
			if rank == 2 || rank == 3 {
				r.WaitKilled()
			} else {
				ends(t, r, 1, fmt.Sprintf("softnd: rank %d of 6 ends with the job: rank ", rank))
			}
		}
		c.mustBeEmpty()
	})
}
