//go:build linux

package ndcheck_test

import (
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/internal/meet/checkjournal"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/scale"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndcheck"
	"github.com/softnd/softnd/nd/ndtest"
	"github.com/softnd/softnd/shm"
)

type member struct {
	*ndcheck.Provider
	member *shm.Member
}

func (m member) Close() error { return errors.Join(m.Provider.Close(), m.member.Leave()) }

// watched returns the configuration of a side whose providers are watched, in an arena. They are the ranks first, first+step and so on of
// the journal.
func watched(arena *shm.Arena, e endpoint.Executor, journal *ndcheck.Journal, first, step int) ndtest.Config {
	var opened atomic.Int32
	opener := func(timeout time.Duration) func() (nd.Provider, error) {
		return func() (nd.Provider, error) {
			m, err := arena.Join(shm.NoRank)
			if err != nil {
				return nil, err
			}
			p, err := endpoint.New(m, endpoint.Options{Executor: e, ReceiveTimeout: timeout})
			if err != nil {
				return nil, errors.Join(err, m.Leave())
			}
			rank := first + step*int(opened.Add(1)-1)
			return member{ndcheck.Wrap(p, ndcheck.Options{Rank: rank, Journal: journal, Report: func(ndcheck.Finding) {}}), m}, nil
		}
	}
	return ndtest.Config{
		Open: opener(longTimeout), OpenTimed: opener(shortTimeout),
		PrivateMemory: e == endpoint.Target, ReceiveTimeout: shortTimeout,
	}
}

// How long a Send waits for a Receive. longTimeout is longer than a scenario may take.
const (
	longTimeout  = time.Hour
	shortTimeout = 500 * time.Millisecond // for scenarios that are Timed
)

var roleConformance = proctest.Role("conformance", runConformance)

// runConformance is the other process of a run. The arena is descriptor 3, the journal is descriptor 4.
func runConformance(self *proctest.Self) error {
	arena, err := shm.Attach(self.Ctx, self.File(0))
	if err != nil {
		return err
	}
	e, err := endpoint.ParseExecutor(self.Args[0])
	if err != nil {
		return err
	}
	journal, err := checkjournal.Open(int(self.File(1).Fd()))
	if err != nil {
		return err
	}
	return ndtest.Serve(struct {
		io.Reader
		io.WriteCloser
	}{os.Stdin, os.Stdout}, watched(arena, e, journal, 1, 2))
}

// process is the stream to the other process.
type process struct {
	io.Reader
	io.WriteCloser
	*proctest.Process
}

func (p process) Close() error {
	err := p.WriteCloser.Close()
	_ = p.End() // a scenario may have killed it
	return err
}

// conformance returns the configuration of a suite whose providers are watched, and the journal.
func conformance(t *testing.T, executor string, processes bool) (ndtest.Config, *ndcheck.Journal) {
	t.Helper()
	arena, err := shm.Create(shm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { arena.Close() })
	e, err := endpoint.ParseExecutor(executor)
	if err != nil {
		t.Fatal(err)
	}
	file, err := checkjournal.Create()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	journal, err := checkjournal.Open(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if !processes {
		return watched(arena, e, journal, 0, 1), journal
	}
	cfg := watched(arena, e, journal, 0, 2)
	cfg.Spawn = func() (io.ReadWriteCloser, error) {
		cmd := proctest.Command(roleConformance, executor)
		cmd.ExtraFiles = []*os.File{arena.File(), file}
		in, err := cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		return process{out, in, proctest.Start(t, cmd).NoLimit()}, nil
	}
	return cfg, journal
}

// expectClean reports the findings that the suite does not announce. It only counts the expectations that are not met, because
// some rows announce what depends on the moment of a copy.
func expectClean(t *testing.T, journal *ndcheck.Journal) {
	t.Helper()
	found, lost := journal.Findings()
	expected := 0
	for _, f := range found {
		if f.Expected != nil {
			expected++
		} else {
			t.Error(f)
		}
	}
	if lost > 0 {
		t.Errorf("%d findings are lost", lost)
	}
	t.Logf("%d expected findings, %d unmet expectations", expected, len(journal.Unmet()))
}

// longWaits are scenarios that take seconds in which they do not compute: the time limit of a Disconnect expires, and hundreds of
// notifications are canceled one after the other.
var longWaits = []string{"C226", "C018"}

// The checker changes nothing that the conformance suite sees, and finds nothing in it but what it announces.
func TestConformance(t *testing.T) {
	t.Parallel()
	for _, executor := range []string{"auto", "target"} {
		for _, processes := range []bool{false, true} {
			if processes != (executor == "target") && !scale.WholeSuite() {
				continue // two opposite combinations are enough beside the runs of package endpoint
			}
			t.Run(executor+map[bool]string{false: "/goroutines", true: "/processes"}[processes], func(t *testing.T) {
				t.Parallel()
				var others []string
				for _, s := range ndtest.Scenarios() {
					if !slices.Contains(longWaits, s.ID) {
						others = append(others, s.ID)
					}
				}
				for name, only := range map[string][]string{"suite": others, "long waits": longWaits} {
					t.Run(name, func(t *testing.T) {
						t.Parallel() // scenarios that wait let others run
						cfg, journal := conformance(t, executor, processes)
						cfg.Only = only
						t.Cleanup(func() { expectClean(t, journal) })
						t.Run("run", func(t *testing.T) { ndtest.Run(t, cfg) })
					})
				}
			})
		}
	}
}

var stressSeed = flag.Uint64("stress.seed", 0, "seed of TestStress; 0 = another one each time")

// TestStress makes random requests, all of which are legal, on several connections at once.
func TestStress(t *testing.T) {
	seed := *stressSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	for _, executor := range []string{"auto", "target"} {
		cfg, journal := conformance(t, executor, executor == "target")
		t.Run(executor, func(t *testing.T) { ndtest.Stress(t, cfg, seed, 30) })
		expectClean(t, journal)
	}
}
