package ndc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	goside "github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndtest"
	"github.com/softnd/softnd/shm"
)

// How long a Send waits for a Receive, and in C a Disconnect for that of the peer. longTimeout is longer than a scenario may take.
const (
	longTimeout  = time.Hour
	shortTimeout = 500 * time.Millisecond // for scenarios that are Timed
)

// serveVariable makes the test binary the other process of a run. Its value is the language.
const serveVariable = "NDC_SERVE"

func TestMain(m *testing.M) {
	language := os.Getenv(serveVariable)
	if language == "" {
		os.Exit(m.Run())
	}
	file := os.NewFile(3, "arena")
	arena, err := shm.Attach(context.Background(), file)
	if err == nil {
		err = ndtest.Serve(struct {
			io.Reader
			io.WriteCloser
		}{os.Stdin, os.Stdout}, configIn(arena, os.Getenv("NDC_EXECUTOR"), language))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// hosted is a provider in Go whose member leaves when it is closed.
type hosted struct {
	*goside.Provider
	member *shm.Member
}

func (h hosted) Close() error { return errors.Join(h.Provider.Close(), h.member.Leave()) }

// configIn returns the configuration of a side whose providers are in an arena, with an executor. The providers are in the languages alternately.
func configIn(arena *shm.Arena, executor string, languages ...string) ndtest.Config {
	opener := func(timeout time.Duration) func() (nd.Provider, error) {
		var opened atomic.Int64
		return func() (nd.Provider, error) {
			language := languages[(opened.Add(1)-1)%int64(len(languages))]
			return open(arena, language, executor, timeout)
		}
	}
	return ndtest.Config{
		Open: opener(longTimeout), OpenTimed: opener(shortTimeout),
		ReceiveTimeout: shortTimeout, DisconnectTimeout: shortTimeout,
	}
}

// open opens a provider in a language, with an executor. After checked, it checks payloads; after weak and a seed, it has a
// weak order. It waits for a peer as long as timeout.
func open(arena *shm.Arena, language, executor string, timeout time.Duration) (nd.Provider, error) {
	var weakOrder *uint64
	executor, text, isWeak := strings.Cut(executor, weak)
	if isWeak {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return nil, err
		}
		weakOrder = &seed
	}
	executor, isChecked := strings.CutSuffix(executor, checked)
	if language == "C" {
		return Open(int(arena.File().Fd()), Options{Target: executor == "target", CheckPayloads: isChecked, WeakOrder: weakOrder, Timeout: timeout})
	}
	member, err := arena.Join(shm.NoRank)
	if err != nil {
		return nil, err
	}
	e, err := goside.ParseExecutor(executor)
	if err != nil {
		return nil, err
	}
	p, err := goside.New(member, goside.Options{Executor: e, CheckPayloads: isChecked, WeakOrder: weakOrder, ReceiveTimeout: timeout})
	return hosted{p, member}, err
}

const checked, weak = " checked", " weak "

// otherProcess is the stream to the other process.
type otherProcess struct {
	io.Reader
	io.WriteCloser
	t   testing.TB
	cmd *exec.Cmd
}

// Close fails the test for a process that failed, unless the scenario killed it.
func (o otherProcess) Close() error {
	err := o.WriteCloser.Close()
	_ = o.cmd.Wait()
	if s := o.cmd.ProcessState.Sys().(syscall.WaitStatus); s.Signaled() && s.Signal() != syscall.SIGKILL || !s.Signaled() && s.ExitStatus() != 0 {
		o.t.Errorf("the other process: %v", o.cmd.ProcessState)
	}
	return err
}

func spawn(t testing.TB, arena *shm.Arena, language, executor string) func() (io.ReadWriteCloser, error) {
	return func() (io.ReadWriteCloser, error) {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), serveVariable+"="+language, "NDC_EXECUTOR="+executor)
		cmd.ExtraFiles, cmd.Stderr = []*os.File{arena.File()}, os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		return otherProcess{out, in, t, cmd}, cmd.Start()
	}
}

// pairings are the languages of the sides. With threads, the providers of a run alternate between the two.
var pairings = [][2]string{{"C", "C"}, {"C", "Go"}, {"Go", "C"}}

var executors = []string{"auto", "target"}

// each runs f for each pairing, executor, kind of memory, in one process and in two.
func each(t *testing.T, executors []string, f func(t *testing.T, name string, cfg ndtest.Config)) {
	for _, pair := range pairings {
		for _, executor := range executors {
			for _, memory := range []string{"arena", "private"} {
				for _, where := range []string{"threads", "processes"} {
					if where == "threads" && pair[0] == "Go" {
						continue
					}
					name := pair[0] + "-" + pair[1] + "/" + executor + "/" + memory + "/" + where
					t.Run(name, func(t *testing.T) {
						t.Parallel() // scenarios that wait let others run
						arena, err := shm.Create(shm.Config{Size: 4 << 30})
						if err != nil {
							t.Fatal(err)
						}
						cfg := configIn(arena, executor, pair[:]...)
						if where == "processes" {
							cfg = configIn(arena, executor, pair[0])
							cfg.Spawn = spawn(t, arena, pair[1], executor)
						}
						cfg.PrivateMemory = memory == "private"
						if only := os.Getenv("NDC_ONLY"); only != "" {
							cfg.Only = []string{only}
						}
						f(t, name, cfg)
					})
				}
			}
		}
	}
}

// TestConformance runs the suite, and checks that the page shows the results.
func TestConformance(t *testing.T) {
	var runs results
	t.Parallel()
	t.Cleanup(func() { runs.check(t) }) // after the runs, which are parallel
	each(t, executors, func(t *testing.T, name string, cfg ndtest.Config) { runs.add(name, ndtest.Run(t, cfg)) })
}

// TestStress makes random requests, and compares results and memory with a model. NDC_SEED is the first seed, NDC_SEEDS
// their number.
func TestStress(t *testing.T) {
	number := func(name string, otherwise int) int {
		if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
			return n
		}
		return otherwise
	}
	first, seeds := number("NDC_SEED", 1), number("NDC_SEEDS", 1)
	each(t, append(executors, "auto"+checked, "target"+checked), func(t *testing.T, _ string, cfg ndtest.Config) {
		cfg.Watchdog = 2 * time.Minute
		for seed := range seeds {
			ndtest.Stress(t, cfg, uint64(first+seed), 20)
		}
	})
}

// TestChecksConform runs the suite where both sides check payloads.
func TestChecksConform(t *testing.T) {
	each(t, []string{"auto" + checked, "target" + checked}, func(t *testing.T, _ string, cfg ndtest.Config) { ndtest.Run(t, cfg) })
}
