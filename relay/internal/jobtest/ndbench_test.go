package jobtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// ndbench builds the program, which needs packages that this module does not.
func (c *cluster) ndbench() string {
	c.t.Helper()
	return c.buildIn("../../..", "./cmd/ndbench")
}

// benchResult is what the tests check of a result.
type benchResult struct {
	Test, Provider, Note string
	Size, Hosts          int
	Value                float64
	Pinned               bool
	Repeats              []float64
	Limit                *struct {
		Name         string
		Value, Ratio float64
	}
}

// results parses the report of ndbench, and checks what all results have in common.
func results(t *testing.T, out string) []benchResult {
	t.Helper()
	var r struct{ Results []benchResult }
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, x := range r.Results {
		if x.Hosts != 2 || x.Pinned || !(x.Value > 0) || len(x.Repeats) != 2 || x.Limit == nil || !(x.Limit.Value > 0) || !(x.Limit.Ratio > 0) {
			t.Errorf("%+v", x)
		}
	}
	return r.Results
}

// ndbench measures between the hosts. The limit of each figure is a TCP connection. --beside adds a program of libfabric over
// the same link, or says that it is missing.
func TestNdbenchOverHosts(t *testing.T) {
	if testing.Short() {
		t.Skip("the programs are those of the run without -short")
	}
	c := newCluster(t)
	program := c.ndbench()
	for _, x := range []struct{ test, limit, beside string }{
		{"send_lat", "tcp_half_trip", "fi_pingpong"}, {"write_lat", "tcp_half_trip", ""}, {"read_lat", "tcp_round_trip", ""},
		{"write_bw", "tcp_stream", "fi_rma_bw"}, {"send_bw", "tcp_stream", ""}, {"msg_rate", "tcp_stream", ""},
	} {
		t.Run(x.test, func(t *testing.T) {
			args := []string{program, x.test, "-s", "70000", "-n", "20", "-w", "5", "-r", "2", "--validate", "--json=-"}
			if x.beside != "" {
				args = append(args, "--beside")
			}
			status, out, errOut := proctest.Run(t, c.hydra(1, args...))
			if status != 0 {
				t.Fatalf("exit status %d: %s", status, errOut)
			}
			all := results(t, out)
			if len(all) == 0 || all[0].Test != x.test || all[0].Provider != "softnd" || all[0].Limit.Name != x.limit || !strings.Contains(all[0].Note, "verified") {
				t.Fatalf("%s", out)
			}
			want := 1
			switch _, err := exec.LookPath(x.beside); {
			case x.beside == "":
			case err != nil:
				if note := x.beside + " is not installed at the host of rank 0 and rank 1"; !strings.HasSuffix(all[0].Note, note) {
					t.Errorf("note %q, want %q", all[0].Note, note)
				}
			default:
				want = 2
				if len(all) == 2 && (all[1].Provider != "libfabric" || !strings.HasPrefix(all[1].Note, x.beside+" -p tcp")) {
					t.Errorf("%+v", all[1])
				}
			}
			if len(all) != want {
				t.Errorf("%d results, want %d: %s", len(all), want, out)
			}
		})
	}
	t.Run("refusal", func(t *testing.T) {
		refused := ""
		for _, r := range c.atRoot(1, nil, program, "send_lat", "--pin") {
			if err := r.End(); err == nil {
				t.Error("a rank has succeeded")
			}
			refused += r.Err.String()
		}
		if want := "--pin: the ranks run on two hosts"; !strings.Contains(refused, want) {
			t.Errorf("want %q: %s", want, refused)
		}
	})
	t.Run("killed rank", func(t *testing.T) {
		all := c.measuring(program)
		if err := syscall.Kill(all[1].PID(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		all[1].WaitKilled()
		if err := all[0].End(); err == nil || all[0].Err.String() == "" { // by the news of the job, or by the end of a connection
			t.Errorf("rank 0: %v: %q", err, all[0].Err.String())
		}
		c.mustBeEmpty()
	})
	t.Run("killed relay", func(t *testing.T) {
		all := c.measuring(program)
		relays := c.processes("ndrelay")
		if len(relays) != 2 {
			t.Fatalf("relays: %v", relays)
		}
		if err := syscall.Kill(relays[0], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for rank, r := range all {
			if err := r.End(); err == nil || r.Err.String() == "" {
				t.Errorf("rank %d: %v: %s", rank, err, r.Err)
			}
		}
		c.mustBeEmpty()
	})
}

// measuring starts a measurement, and returns its ranks when they are in the middle of it.
func (c *cluster) measuring(program string) []*proctest.Process {
	c.t.Helper()
	all := c.atRoot(1, nil, program, "write_lat", "--duration", "1h", "--repeats", "100")
	const more = 30 // ticks than Init takes
	proctest.Eventually(c.t, "the ranks measure", func() bool {
		return len(c.processes("ndrelay")) == 2 && processorTime(c.t, all[0].PID()) > more
	})
	return all
}

// processorTime returns the user and system time of a process in ticks.
func processorTime(t *testing.T, pid int) (ticks int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // from the third on
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return ticks
}

// TestMeasure prints the figures between two hosts. It asserts nothing.
func TestMeasure(t *testing.T) {
	if os.Getenv("SOFTND_MEASURE") == "" {
		t.Skip("SOFTND_MEASURE=1 measures, on an idle machine")
	}
	c := newCluster(t)
	program := c.ndbench()
	measure := func(args string, wrapper ...string) {
		_, out, errOut := proctest.Run(t, c.hydra(1, slices.Concat(wrapper, []string{program}, strings.Fields(args))...))
		load, _ := os.ReadFile("/proc/loadavg")
		t.Logf("load %s\n%s%s", load, out, errOut)
	}
	for _, args := range []string{"send_lat --beside -s 8", "send_lat --beside -s 8 --events=false", "write_bw --beside -s 1M", "write_lat -s 8", "read_lat -s 8", "send_bw -s 1M", "msg_rate"} {
		measure(args)
	}
	t.Log("many connections beside one, and beside one with as much memory in use")
	many := []string{"write_bw -s 1M -t 16", "write_bw -s 64M -t 2", "write_bw -s 1M -t 16 --pairs 64", "write_bw -s 16K -t 64", "write_bw -s 16K -t 64 --pairs 64"}
	for _, args := range many {
		measure(args)
	}
	t.Log("again, with a core for each host")
	for _, args := range many {
		measure(args, "sh", "-c", `exec taskset -c "$PMI_RANK" "$@"`, "sh")
	}
}
