package relay

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/scale"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndtest"
	"github.com/softnd/softnd/relay/internal/nstest"
	"github.com/softnd/softnd/shm"
)

// How long a Send waits for a Receive, at ranks and relays. longTimeout is longer than a scenario may take.
const (
	longTimeout  = time.Hour
	shortTimeout = 500 * time.Millisecond // for scenarios that are Timed
)

// hosted is a provider whose member leaves when it is closed.
type hosted struct {
	*endpoint.Provider
	member *shm.Member
}

func (h hosted) Close() error { return errors.Join(h.Provider.Close(), h.member.Leave()) }

func openerIn(arena *shm.Arena, executor endpoint.Executor, timeout time.Duration) func() (nd.Provider, error) {
	return func() (nd.Provider, error) {
		member, err := arena.Join(shm.NoRank)
		if err != nil {
			return nil, err
		}
		p, err := endpoint.New(member, endpoint.Options{Executor: executor, ReceiveTimeout: timeout})
		if err != nil {
			return nil, errors.Join(err, member.Leave())
		}
		return hosted{p, member}, nil
	}
}

var conformanceRole = proctest.Role("conformance", runConformance)

// runConformance is the passive side of the suite: a process at host 2.
func runConformance(self *proctest.Self) error {
	arena, err := shm.Attach(self.Ctx, self.File(0))
	if err != nil {
		return err
	}
	executor, err := endpoint.ParseExecutor(self.Args[0])
	if err != nil {
		return err
	}
	return errors.Join(ndtest.Serve(struct {
		io.Reader
		io.WriteCloser
	}{os.Stdin, os.Stdout}, ndtest.Config{Open: openerIn(arena, executor, longTimeout), OpenTimed: openerIn(arena, executor, shortTimeout)}), arena.Close())
}

// farSide is the stream to it. Close ends the process and waits for it.
type farSide struct {
	io.Reader
	io.WriteCloser
	*proctest.Process
	t testing.TB
}

// Close fails the test for a process that failed, unless the scenario killed it.
func (f farSide) Close() error {
	err := f.WriteCloser.Close()
	_ = f.End() // the state says more
	if status := f.Cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() && status.Signal() != syscall.SIGKILL || !status.Signaled() && status.ExitStatus() != 0 {
		f.t.Errorf("the other process: %v\n%s", f.Cmd.ProcessState, f.Err)
	}
	return err
}

func startFarSide(t testing.TB, arena *shm.Arena, executor string) (io.ReadWriteCloser, error) {
	cmd := proctest.Command(conformanceRole, executor)
	cmd.ExtraFiles = []*os.File{arena.File()}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return farSide{out, in, proctest.Start(t, cmd).NoLimit(), t}, nil
}

// watchful are the rows that expect that the other side has seen a canceled Connect after a barrier.
var watchful = []string{"C034", "C046", "C047", "C228"}

// conformanceRuns are the ways in which the suite runs.
var conformanceRuns = []struct {
	executor string
	private  bool
}{{"auto", false}, {"target", true}, {"auto", true}, {"target", false}}

// eachConformanceRun runs a test in some of these ways; in all of them if SOFTND_RUNS is set. The test has a part for each
// of parts, with relays of its own, which have that time-out. Each relay has a network namespace of its own if the machine can have them.
func eachConformanceRun(t *testing.T, parts []time.Duration, test func(t *testing.T, cfg ndtest.Config, part int)) {
	if testing.Short() {
		t.Skip("takes minutes")
	}
	missing := nstest.Missing()
	if missing != "" {
		t.Logf("both hosts are this one: %s", missing)
	}
	for i, c := range conformanceRuns {
		if i >= 2 && os.Getenv("SOFTND_RUNS") == "" {
			break
		}
		for part, timeout := range parts {
			t.Run(fmt.Sprintf("%s, private %t, part %d", c.executor, c.private, part), func(t *testing.T) {
				t.Parallel() // scenarios that wait let others run
				executor, err := endpoint.ParseExecutor(c.executor)
				if err != nil {
					t.Fatal(err)
				}
				g := newRelays(t, missing == "", time.Minute, timeout)
				test(t, ndtest.Config{
					Open: openerIn(g.arenas[0], executor, longTimeout), OpenTimed: openerIn(g.arenas[0], executor, shortTimeout),
					Spawn:         func() (io.ReadWriteCloser, error) { return startFarSide(t, g.arenas[1], c.executor) },
					PrivateMemory: c.private, ReceiveTimeout: timeout, Delay: 20 * time.Millisecond,
				}, part)
				g.quit()
			})
		}
	}
}

// TestConformance runs the suite with the passive side at another host. SOFTND_ONLY selects rows, such as C034,C046.
func TestConformance(t *testing.T) {
	const untimed = 3 // parts without the scenarios that are Timed
	parts := append(slices.Repeat([]time.Duration{longTimeout}, untimed), shortTimeout)
	eachConformanceRun(t, parts, func(t *testing.T, cfg ndtest.Config, part int) {
		only := strings.Split(os.Getenv("SOFTND_ONLY"), ",")
		delayed := cfg
		delayed.Delay = 1500 * time.Millisecond
		for i, row := range ndtest.Scenarios() {
			switch {
			case row.Timed != (part == untimed), !row.Timed && i%untimed != part:
			case only[0] != "" && !slices.Contains(only, row.ID):
			case slices.Contains(watchful, row.ID):
				delayed.Only = append(delayed.Only, row.ID)
			default:
				cfg.Only = append(cfg.Only, row.ID)
			}
		}
		for _, c := range []ndtest.Config{cfg, delayed} {
			if len(c.Only) == 0 {
				continue
			}
			if report := ndtest.Run(t, c); report.Count(ndtest.Skipped) > 0 {
				t.Errorf("rows were skipped, but none needs what a relay lacks: %v", report.Reasons)
			}
		}
	})
}

// TestStress makes random requests between two hosts. SOFTND_SEEDS is the number of seeds, and SOFTND_SEED the first one.
func TestStress(t *testing.T) {
	seeds, first := scale.Number(t, "SOFTND_SEEDS", 2), uint64(scale.Number(t, scale.EnvSeed, 1))
	eachConformanceRun(t, []time.Duration{longTimeout}, func(t *testing.T, cfg ndtest.Config, _ int) {
		cfg.Delay = 0
		for seed := range seeds {
			ndtest.Stress(t, cfg, first+uint64(seed), 20)
		}
	})
}
