package ndc

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/softnd/softnd/nd/ndtest"
	"github.com/softnd/softnd/shm"
)

// hostWays are the ways in which a test runs over two hosts.
var hostWays = []struct {
	executor string
	private  bool
}{{"auto", false}, {"target", true}, {"auto", true}, {"target", false}}

// overHosts runs a test in each pairing with the sides in two arenas, as those of two hosts, with a relay for each.
// SOFTND_RELAY names the program ndrelay. Each pairing has one of the ways, or all of them if NDC_ALL is set. The test has a
// part for each of parts, with relays of its own, which have that time-out.
func overHosts(t *testing.T, parts []time.Duration, test func(t *testing.T, cfg ndtest.Config, turn, part int)) {
	program := os.Getenv("SOFTND_RELAY")
	if program == "" {
		t.Skip("SOFTND_RELAY does not name the program ndrelay")
	}
	for turn, pair := range pairings {
		for i, way := range hostWays {
			if i != turn && os.Getenv("NDC_ALL") == "" {
				continue
			}
			for part, timeout := range parts {
				t.Run(fmt.Sprintf("%s-%s/%s, private %t, part %d", pair[0], pair[1], way.executor, way.private, part), func(t *testing.T) {
					t.Parallel() // scenarios that wait let others run
					arenas := startHosts(t, program, timeout)
					cfg := configIn(arenas[0], way.executor, pair[0])
					cfg.PrivateMemory, cfg.Spawn = way.private, spawn(t, arenas[1], pair[1], way.executor)
					test(t, cfg, turn, part)
				})
			}
		}
	}
}

// TestConformanceOverHosts runs the suite. Each pairing runs a third of the rows, or all of them if NDC_ALL is set.
func TestConformanceOverHosts(t *testing.T) {
	const untimed = 4 // parts without the scenarios that are Timed
	parts := append(slices.Repeat([]time.Duration{longTimeout}, untimed), shortTimeout)
	overHosts(t, parts, func(t *testing.T, cfg ndtest.Config, turn, part int) {
		cfg.Delay = 100 * time.Millisecond // what one side does takes time to reach the other
		only := os.Getenv("NDC_ONLY")
		for i, row := range ndtest.Scenarios() {
			all := os.Getenv("NDC_ALL") != "" || only != "" || i/untimed%len(pairings) == turn
			mine := !row.Timed && i%untimed == part || row.Timed && part == untimed
			if mine && all && (only == "" || only == row.ID) {
				cfg.Only = append(cfg.Only, row.ID)
			}
		}
		if len(cfg.Only) == 0 {
			return
		}
		if report := ndtest.Run(t, cfg); report.Count(ndtest.Skipped) > 0 {
			t.Errorf("rows were skipped, but none needs what a relay lacks: %v", report.Reasons)
		}
	})
}

// TestStressOverHosts makes random requests. NDC_SEEDS is the number of seeds.
func TestStressOverHosts(t *testing.T) {
	seeds, err := strconv.Atoi(os.Getenv("NDC_SEEDS"))
	if err != nil {
		seeds = 2
	}
	overHosts(t, []time.Duration{longTimeout}, func(t *testing.T, cfg ndtest.Config, _, _ int) {
		for seed := range seeds {
			ndtest.Stress(t, cfg, uint64(1+seed), 20)
		}
	})
}

// relay is the input and the output of a relay.
type relay struct {
	*json.Encoder
	*json.Decoder
}

func (r relay) say(t *testing.T, line any) {
	t.Helper()
	if err := r.Encode(line); err != nil {
		t.Fatal(err)
	}
}

// hear returns a field of the next answer.
func (r relay) hear(t *testing.T, field string) any {
	t.Helper()
	var answer map[string]any
	if err := r.Decode(&answer); err != nil || answer[field] == nil {
		t.Fatalf("a relay answers %v, %v", answer, err)
	}
	return answer[field]
}

// host is where the relay of a host runs.
type host struct {
	enter   []string // the begin of a command there
	address string
}

var hostsMade atomic.Int64

// newHosts makes two network namespaces that a veth pair joins. Where that is not possible, both hosts are loopback.
func newHosts(t *testing.T) (hosts [2]host) {
	t.Helper()
	id := fmt.Sprintf("ndc-%d-%d", os.Getpid(), hostsMade.Add(1))
	names := [2]string{id + "-0", id + "-1"}
	ip := func(args ...string) error {
		out, err := exec.Command("ip", args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip %v: %w: %s", args, err, out)
		}
		return nil
	}
	hosts = [2]host{{address: "127.0.0.1"}, {address: "127.0.0.1"}}
	for _, name := range names {
		if err := ip("netns", "add", name); err != nil {
			t.Logf("both hosts are this one: %v", err)
			return hosts
		}
		t.Cleanup(func() {
			if err := ip("netns", "delete", name); err != nil {
				t.Error(err)
			}
		})
	}
	if err := ip("link", "add", "eth0", "netns", names[0], "type", "veth", "peer", "name", "eth0", "netns", names[1]); err != nil {
		t.Logf("both hosts are this one: %v", err)
		return hosts
	}
	for i, name := range names {
		hosts[i] = host{[]string{"ip", "netns", "exec", name}, fmt.Sprintf("10.78.0.%d", 1+i)}
		if err := errors.Join(ip("-n", name, "addr", "add", hosts[i].address+"/24", "dev", "eth0"), ip("-n", name, "link", "set", "eth0", "up"), ip("-n", name, "link", "set", "lo", "up")); err != nil {
			t.Fatal(err)
		}
	}
	return hosts
}

// startHosts makes two arenas whose relays are linked, and wait for a Receive as long as timeout. The relays end with the test.
func startHosts(t *testing.T, program string, timeout time.Duration) (arenas [2]*shm.Arena) {
	t.Helper()
	hosts := newHosts(t)
	var relays [2]relay
	var control [2]string
	for host := range arenas {
		var err error
		if arenas[host], err = shm.Create(shm.Config{Host: host, Size: 4 << 30}); err != nil {
			t.Fatal(err)
		}
		command := append(hosts[host].enter, program)
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Env = append(os.Environ(), "SOFTND_RECEIVE_TIMEOUT="+timeout.String())
		cmd.ExtraFiles, cmd.Stderr = []*os.File{arenas[host].File()}, os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			in.Close()
			if err := cmd.Wait(); err != nil {
				t.Errorf("the relay of host %d: %v", host, err)
			}
			arenas[host].Close()
		})
		relays[host] = relay{json.NewEncoder(in), json.NewDecoder(out)}
		relays[host].say(t, map[string]any{"job": "conformance", "secret": make([]byte, 32), "host": host, "hosts": 2, "address": hosts[host].address})
		control[host] = fmt.Sprint(relays[host].hear(t, "control"))
	}
	for _, r := range relays {
		r.say(t, map[string]any{"relays": control})
	}
	for _, r := range relays {
		r.hear(t, "ready")
	}
	return arenas
}
