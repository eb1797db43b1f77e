package endpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/scale"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndtest"
	"github.com/softnd/softnd/shm"
)

// How long a side waits for the other one. longTimeout is longer than a scenario may take, so one that waits for a time-out without being
// Timed fails.
const (
	longTimeout  = time.Hour
	shortTimeout = 500 * time.Millisecond // for scenarios that are Timed
)

// hosted is a provider whose member leaves when it is closed.
type hosted struct {
	*Provider
	member *shm.Member
}

func (h hosted) Close() error { return errors.Join(h.Provider.Close(), h.member.Leave()) }

// configIn returns the configuration of a side whose providers are in an arena. kind is that of parseKind, and privately behind it if
// adapters allocate memory of the process. weakOrder is nil or the seed of a weak order.
func configIn(arena *shm.Arena, kind string, weakOrder *uint64) ndtest.Config {
	return ndtest.Config{
		Open:           openerIn(arena, kind, weakOrder, longTimeout),
		OpenTimed:      openerIn(arena, kind, weakOrder, shortTimeout),
		ReceiveTimeout: shortTimeout, DisconnectTimeout: shortTimeout,
	}
}

// openerIn returns a function that opens such providers, which wait for the other side as long as timeout.
func openerIn(arena *shm.Arena, kind string, weakOrder *uint64, timeout time.Duration) func() (nd.Provider, error) {
	return func() (nd.Provider, error) {
		member, err := arena.Join(shm.NoRank)
		if err != nil {
			return nil, err
		}
		kind, isPrivate := strings.CutSuffix(kind, privately)
		o, err := parseKind(kind)
		if err != nil {
			return nil, errors.Join(err, member.Leave())
		}
		o.ReceiveTimeout, o.disconnectTimeout, o.WeakOrder = timeout, timeout, weakOrder
		p, err := New(member, o)
		if err != nil {
			return nil, errors.Join(err, member.Leave())
		}
		if isPrivate {
			return privateProvider{hosted{p, member}}, nil
		}
		return hosted{p, member}, nil
	}
}

// parseKind returns the options of a kind of provider: the name of an executor, and checked if payloads are checked.
func parseKind(kind string) (o Options, err error) {
	executor, isChecked := strings.CutSuffix(kind, checked)
	o.CheckPayloads = isChecked
	o.Executor, err = ParseExecutor(executor)
	return o, err
}

const (
	checked   = " checked"
	privately = " private"
)

var roleConformance = proctest.Role("conformance", runConformance)

// runConformance is the other process of a run. The arena is descriptor 3. The kind of its provider, and the
// seed of a weak order, if any, are in the environment.
func runConformance(self *proctest.Self) error {
	file := self.File(0)
	arena, err := shm.Attach(self.Ctx, file)
	if err != nil {
		return err
	}
	file.Close()
	var weakOrder *uint64
	if text, ok := os.LookupEnv(weakOrderVariable); ok {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return err
		}
		weakOrder = &seed
	}
	err = ndtest.Serve(struct {
		io.Reader
		io.WriteCloser
	}{os.Stdin, os.Stdout}, configIn(arena, os.Getenv(kindVariable), weakOrder))
	return errors.Join(err, arena.Close())
}

const (
	kindVariable      = "ENDPOINT_TEST_KIND"
	weakOrderVariable = "ENDPOINT_TEST_WEAK_ORDER"
)

// otherProcess is the stream to it. Close ends the process and waits for it.
type otherProcess struct {
	io.Reader
	io.WriteCloser
	*proctest.Process
	t testing.TB
}

// Close fails the test for a process that failed, unless the scenario killed it.
func (o otherProcess) Close() error {
	err := o.WriteCloser.Close()
	_ = o.End() // the state says more
	if status := o.Cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() && status.ExitStatus() != 0 || status.Signaled() && status.Signal() != syscall.SIGKILL {
		o.t.Errorf("the other process: %v\n%s", o.Cmd.ProcessState, o.Err)
	}
	return err
}

const allRuns = 2 * 2 * 2

// suiteRuns calls run for combinations of an executor, a kind of memory, and one process or two: for all, or for those that some selects.
// With the race detector they are others.
func suiteRuns(some func(target, private, processes bool) bool, run func(executor string, private, processes bool)) {
	for _, e := range []string{"auto", "target"} {
		for _, private := range []bool{false, true} {
			for _, processes := range []bool{false, true} {
				switch {
				case raceDetector && processes && e != "target":
					// the race detector sees nothing of another process, and slows it down
				case raceDetector && private != (e == "auto"):
					// one kind of memory with each executor: the locks are the same
				case raceDetector, scale.WholeSuite(), some(e == "target", private, processes):
					run(e, private, processes)
				}
			}
		}
	}
}

// conformanceRun is one run of the suite.
type conformanceRun struct {
	Name   string
	Report *ndtest.Report
}

// TestConformance runs the suite with every executor and memory: in half of the combinations, in which each two values meet, or in all.
func TestConformance(t *testing.T) {
	t.Parallel()
	runs := make([]conformanceRun, 0, allRuns)
	t.Cleanup(func() { writeResults(t, runs) }) // after the runs, which are parallel
	four := func(target, private, processes bool) bool { return target != (private == processes) }
	suiteRuns(four, func(executor string, private, processes bool) {
		name := fmt.Sprintf("%s/%s/%s", executor, choose(private, "private", "arena"), choose(processes, "processes", "goroutines"))
		runs = append(runs, conformanceRun{Name: name})
		run := &runs[len(runs)-1]
		t.Run(name, func(t *testing.T) {
			t.Parallel() // scenarios that wait let others run
			run.Report = testConformance(t, executor, private, processes)
		})
	})
}

func choose(b bool, yes, no string) string {
	if b {
		return yes
	}
	return no
}

// writeResults writes the results of the runs into a file, from which tools/conformancepage makes the page, if every row was run and none has failed. For some constants of package nd,
// it adds the test that has a subtest for each.
func writeResults(t *testing.T, runs []conformanceRun) {
	file := os.Getenv(scale.EnvConformance)
	if file == "" || len(runs) < allRuns {
		return
	}
	for _, r := range runs {
		if r.Report == nil || r.Report.Count(ndtest.NotRun) > 0 || r.Report.Count(ndtest.Failed) > 0 {
			return
		}
	}
	type table struct {
		Test    string
		Names   []string
		Without map[string]string // constants without a subtest, with the reason
	}
	text, err := json.Marshal(struct {
		Runs   []conformanceRun
		Tables []table
	}{runs, []table{
		{"endpoint.TestEveryStatusHasProducer", slices.Collect(maps.Keys(producers)), elsewhere},
		{"endpoint.TestEveryFlagHasEffect", slices.Collect(maps.Keys(effects)), inert},
	}})
	if err == nil {
		err = os.WriteFile(file, text, 0o644)
	}
	if err != nil {
		t.Error(err)
	}
}

func testConformance(t *testing.T, kind string, private, processes bool) *ndtest.Report {
	t.Helper()
	arena := newArena(t)
	cfg := configIn(arena, kind, nil)
	cfg.PrivateMemory = private
	if processes {
		cfg.Spawn = func() (io.ReadWriteCloser, error) { return startConformance(t, arena, kind, nil) }
	}
	return ndtest.Run(t, cfg)
}

// startConformance starts the other process of a run.
func startConformance(t testing.TB, arena *shm.Arena, kind string, weakOrder *uint64) (io.ReadWriteCloser, error) {
	cmd := proctest.Command(roleConformance)
	cmd.Env = append(cmd.Env, kindVariable+"="+kind)
	if weakOrder != nil {
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", weakOrderVariable, *weakOrder))
	}
	cmd.ExtraFiles = []*os.File{arena.File()}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return otherProcess{out, in, proctest.Start(t, cmd).NoLimit(), t}, nil
}
