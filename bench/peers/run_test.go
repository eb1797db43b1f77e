package peers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/bench/report"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

// portOption is the option for the port of the servers that TestMain plays.
var portOption = map[string]string{"ucx_perftest": "-p", "fi_rma_bw": "-B"}

// TestMain plays a program if it is started under that name: a server that never exits by itself, or a client that writes
// the text in the environment.
func TestMain(m *testing.M) {
	proctest.Main()
	port := portOption[filepath.Base(os.Args[0])]
	if port == "" {
		os.Exit(m.Run())
	}
	if slices.Contains(os.Args, "127.0.0.1") {
		fmt.Println(os.Getenv("PEERS_TEST_SAYS"))
		os.Exit(0)
	}
	address := "127.0.0.1:" + os.Args[slices.Index(os.Args, port)+1]
	if err := bindWithout(netip.MustParseAddrPort(address)); err == nil {
		fmt.Println("another process could have taken the port before the server")
		os.Exit(1)
	}
	if _, err := net.Listen("tcp", address); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	time.Sleep(time.Hour)
}

// bindWithout binds a socket as a program does that does not set SO_REUSEADDR.
func bindWithout(at netip.AddrPort) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Bind(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()})
}

// only sets a PATH that contains nothing but these scripts.
func only(t *testing.T, scripts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	return dir
}

func named(t *testing.T, name string) Peer {
	t.Helper()
	for _, p := range All() {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("no peer %s", name)
	return Peer{}
}

// nothingLeft fails the test if processes or files of Run remain at its end.
func nothingLeft(t *testing.T) {
	t.Helper()
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	inMemory := func() []string {
		names, _ := filepath.Glob(fmt.Sprintf("/dev/shm/ndbench-peers-%d-*", os.Getpid()))
		return names
	}
	t.Cleanup(func() {
		if names, _ := filepath.Glob(tmp + "/*"); len(names) > 0 {
			t.Errorf("left behind: %v", names)
		}
		for _, name := range inMemory() {
			t.Errorf("left behind: %s", name)
		}
		var left []string
		proctest.Eventually(t, "no process of Run is left", func() bool { // one that was killed takes a moment to end
			left = left[:0]
			files, _ := filepath.Glob("/proc/[0-9]*/environ")
			for _, f := range files {
				// TMPDIR tells the processes of this test from those of others.
				env, _ := os.ReadFile(f)
				if bytes.Contains(env, []byte(mark+"=")) && bytes.Contains(env, []byte(tmp)) {
					left = append(left, f)
				}
			}
			return len(left) == 0
		}, &left)
	})
}

// measureAll measures all figures of o that a peer has.
func measureAll(ctx context.Context, p Peer, o Options) (found []report.Result, failed error) {
	noOwn := func(context.Context, Figure) ([]report.Result, error) { return nil, nil }
	found, err := Run(ctx, []Peer{p}, o, noOwn, func(err error) { failed = errors.Join(failed, err) })
	return found, errors.Join(failed, err)
}

func TestMissingNamesThePackages(t *testing.T) {
	only(t, nil)
	want := map[string]string{
		"ucx":       "ucx-utils",
		"libfabric": "libfabric-bin",
		"openmpi":   "openmpi-bin libopenmpi-dev",
		"mpich":     "mpich libmpich-dev",
	}
	for _, p := range All() {
		if got := p.Missing(); got != want[p.Name] {
			t.Errorf("%s: missing %q, want %q", p.Name, got, want[p.Name])
		}
		if found, err := measureAll(t.Context(), p, Options{}); err != nil || len(found) != 0 {
			t.Errorf("%s is not installed, but has the results %v, %v", p.Name, found, err)
		}
	}
	if got := runnable(); len(got) != 0 {
		t.Errorf("installed without a PATH: %v", got)
	}
	only(t, map[string]string{"mpiexec.mpich": ""})
	if got := named(t, "mpich").Missing(); got != "libmpich-dev" {
		t.Errorf("without the compiler: missing %q", got)
	}
}

// TestHangIsEndedAndTriedAgain: a launcher that ignores SIGTERM, and has a child in a session of its own, is killed
// after the time-out and started again.
func TestHangIsEndedAndTriedAgain(t *testing.T) {
	nothingLeft(t)
	var limit time.Duration
	var results []report.Result
	var err error
	for limit = range proctest.Limits(t, "the launcher ends three times", time.Second) {
		dir := t.TempDir()
		only(t, map[string]string{"mpicc.mpich": "", "mpiexec.mpich": `
if [ -e ` + dir + `/first ]; then echo figure,10,50.0; echo >>` + dir + `/ends; exit; fi
: >` + dir + `/first
trap '' TERM
/usr/bin/setsid /bin/sleep 1000 &
echo figure,10,50.0
while :; do /bin/sleep 1000; done`})
		o := Options{Tests: []string{"msg_rate"}, Repeats: 3, timeout: limit}
		results, err = measureAll(t.Context(), named(t, "mpich"), o)
		if ends, _ := os.ReadFile(filepath.Join(dir, "ends")); len(ends) == 3 {
			break
		}
	}
	if err != nil || len(results) != 1 {
		t.Fatalf("results %v, %v", results, err)
	}
	r := results[0]
	if r.Value != 20e6 || len(r.Repeats) != 3 || r.Low > r.Value || r.High < r.Value || r.Provider != "mpich" {
		t.Errorf("result %+v", r)
	}
	for _, want := range []string{"mpiexec.mpich", "did not finish within " + limit.String(), "3 of 3"} {
		if !strings.Contains(r.Note, want) {
			t.Errorf("note %q does not tell %q", r.Note, want)
		}
	}
}

func TestHangIsNoFigure(t *testing.T) {
	nothingLeft(t)
	begun := filepath.Join(t.TempDir(), "begun")
	const hang = ": >%s; exec /bin/sleep 1000"
	only(t, map[string]string{"mpicc.openmpi": "", "mpiexec.openmpi": fmt.Sprintf(hang, begun), "fi_pingpong": fmt.Sprintf(hang, begun)})
	for _, name := range []string{"openmpi", "libfabric"} {
		var results []report.Result
		var err error
		for limit := range proctest.Limits(t, name+" begins", 500*time.Millisecond) {
			_ = os.Remove(begun)
			results, err = measureAll(t.Context(), named(t, name), Options{Tests: []string{"send_lat"}, Sizes: []int{8}, timeout: limit})
			if _, missing := os.Stat(begun); missing == nil {
				break
			}
		}
		if len(results) != 0 || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "send_lat of 8 B") {
			t.Errorf("%s: results %v, %v", name, results, err)
		}
	}
}

// TestEachRepeatHasItsOwnLimit: each repeat is compared with the limit before and after its own round.
func TestEachRepeatHasItsOwnLimit(t *testing.T) {
	nothingLeft(t)
	failOnce := filepath.Join(t.TempDir(), "failed")
	only(t, map[string]string{"mpicc.mpich": "", "mpiexec.mpich": "[ -e " + failOnce + " ] && echo figure,10,120.0\n: >" + failOnce})
	limits := []float64{60, 60, 15, 240}
	own := func(_ context.Context, f Figure) ([]report.Result, error) {
		l := &report.Limit{Name: "raw_line", Unit: "ns", Value: limits[0]}
		limits = limits[1:]
		return []report.Result{{Test: f.Test, Provider: "own", Limit: l}}, nil
	}
	o := Options{Tests: []string{"send_lat"}, Sizes: []int{8}, Repeats: 3}
	found, err := Run(t.Context(), []Peer{named(t, "mpich")}, o, own, func(err error) { t.Error(err) })
	if err != nil || len(found) != 2 || found[1].Provider != "mpich" || found[1].Limit == nil || found[1].Limit.Name != "raw_line" {
		t.Fatalf("results %+v, %v", found, err)
	}
	one := found[1]
	if want := []float64{2, 4, 2}; !slices.Equal(one.Limit.Ratios, want) || one.Limit.Ratio != 2 || one.Limit.Value != 60 {
		t.Errorf("limit %+v, want the ratios %v", one.Limit, want)
	}
}

// TestBrokenWayIsGivenUp: a way that fails repeatedly does not delay each round.
func TestBrokenWayIsGivenUp(t *testing.T) {
	tries := 0
	r := &runner{trials: map[Figure]*trial{{}: {ways: []*way{{name: "broken", run: func(context.Context) (sample, error) {
		tries++
		return sample{}, errors.New("no")
	}}}}}}
	for range 5 {
		r.repeat(t.Context(), Figure{})
	}
	if _, err := r.result(Figure{}, nil); err == nil || tries != maxFailures {
		t.Errorf("%d tries, %v", tries, err)
	}
}

func TestCancelling(t *testing.T) {
	nothingLeft(t)
	started := filepath.Join(t.TempDir(), "started")
	only(t, map[string]string{"mpicc.openmpi": "", "mpiexec.openmpi": ": >" + started + "\nexec /bin/sleep 1000"})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for ctx.Err() == nil {
			if _, err := os.Stat(started); err == nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	results, err := measureAll(ctx, named(t, "openmpi"), Options{})
	if len(results) != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("results %v, %v", results, err)
	}
}

func TestErrorQuotesProgramOutput(t *testing.T) {
	nothingLeft(t)
	only(t, map[string]string{
		"mpicc.mpich": "", "mpiexec.mpich": "echo oil on the road",
		"mpicc.openmpi": "echo no gcc; exit 1", "mpiexec.openmpi": "",
		"fi_pingpong": "echo no shm; exit 7",
	})
	for name, want := range map[string][]string{
		"mpich":     {"mpiexec.mpich", `"oil on the road"`, "expected figure,ITERATIONS"},
		"openmpi":   {"mpicc.openmpi", "does not compile", "no gcc"},
		"libfabric": {"fi_pingpong", "exit status 7", "no shm"},
	} {
		results, err := measureAll(t.Context(), named(t, name), Options{Tests: []string{"send_lat"}, Sizes: []int{8}})
		if len(results) != 0 {
			t.Errorf("%s: results %v", name, results)
		}
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: error %v does not name %s", name, err, w)
			}
		}
	}
}

// TestServerAndClient: a server that does not exit is killed after its client has exited.
func TestServerAndClient(t *testing.T) {
	nothingLeft(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(only(t, nil), "ucx_perftest")); err != nil {
		t.Fatal(err)
	}
	o := Options{Tests: []string{"posted"}, iterations: 10, Repeats: 1, Pinned: true}
	t.Setenv("PEERS_TEST_SAYS", "iterations,overall_mr\n10,25000000")
	results, err := measureAll(t.Context(), named(t, "ucx"), o)
	if err != nil || len(results) != 1 || results[0].Value != 40 || results[0].Iterations != 10 || !results[0].Pinned {
		t.Errorf("results %+v, %v", results, err)
	}
	t.Setenv("PEERS_TEST_SAYS", "oil on the road")
	results, err = measureAll(t.Context(), named(t, "ucx"), o)
	if len(results) != 0 || err == nil || !strings.Contains(err.Error(), `ucx_perftest: line "oil on the road"`) {
		t.Errorf("results %+v, %v", results, err)
	}
}

func TestBestWayCounts(t *testing.T) {
	takes := func(name string, ns float64) *way {
		return &way{name: name, run: func(context.Context) (sample, error) { return sample{ns, 5}, nil }}
	}
	fails := &way{name: "broken", run: func(context.Context) (sample, error) { return sample{}, errors.New("no") }}
	for _, test := range []string{"send_lat", "send_bw"} {
		f := Figure{test, 8, 2}
		r := &runner{s: new(session), trials: map[Figure]*trial{f: {ways: []*way{takes("slow", 90), takes("fast", 40), takes("slower", 95), fails}}}}
		r.repeat(t.Context(), f)
		one, err := r.result(f, nil)
		if one == nil || one.Note != "fast" {
			t.Errorf("%s: result %+v", test, one)
		}
		if err == nil || !strings.Contains(err.Error(), "broken") {
			t.Errorf("%s: error %v", test, err)
		}
	}
}
