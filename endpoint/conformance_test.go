package endpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndtest"
	"github.com/softnd/softnd/shm"
)

// conformanceTimeout is short, because some scenarios wait for it.
const conformanceTimeout = 300 * time.Millisecond

// hosted is a provider that takes its member along when it is closed.
type hosted struct {
	*Provider
	member *shm.Member
}

func (h hosted) Close() error { return errors.Join(h.Provider.Close(), h.member.Leave()) }

// openerIn returns what opens providers in an arena.
func openerIn(arena *shm.Arena, e Executor) func() (nd.Provider, error) {
	return func() (nd.Provider, error) {
		member, err := arena.Join(shm.NotRank)
		if err != nil {
			return nil, err
		}
		p, err := New(member, Options{Executor: e, ReceiveTimeout: conformanceTimeout, DisconnectTimeout: conformanceTimeout})
		if err != nil {
			return nil, errors.Join(err, member.Leave())
		}
		return hosted{p, member}, nil
	}
}

// playConformance is the other process of a run. The arena is descriptor 3, the
// executor is in the environment.
func playConformance(ctx context.Context) error {
	file := os.NewFile(3, "arena")
	arena, err := shm.Attach(ctx, file)
	if err != nil {
		return err
	}
	file.Close()
	e, err := ParseExecutor(os.Getenv(executorVariable))
	if err != nil {
		return err
	}
	err = ndtest.Serve(struct {
		io.Reader
		io.WriteCloser
	}{os.Stdin, os.Stdout}, ndtest.Config{Open: openerIn(arena, e)})
	return errors.Join(err, arena.Close())
}

const executorVariable = "ENDPOINT_TEST_EXECUTOR"

// otherProcess is the stream to it. Close ends the process and waits for it.
type otherProcess struct {
	io.Reader
	io.WriteCloser
	wait func() error
}

func (o otherProcess) Close() error { return errors.Join(o.WriteCloser.Close(), o.wait()) }

func TestConformance(t *testing.T) {
	for _, e := range []string{"auto", "initiator", "target"} {
		for _, private := range []bool{false, true} {
			for _, processes := range []bool{false, true} {
				name := fmt.Sprintf("%s/%s/%s", e, choose(private, "private", "arena"), choose(processes, "processes", "goroutines"))
				t.Run(name, func(t *testing.T) { testConformance(t, e, private, processes) })
			}
		}
	}
}

func choose(b bool, yes, no string) string {
	if b {
		return yes
	}
	return no
}

func testConformance(t *testing.T, executor string, private, processes bool) {
	t.Parallel() // scenarios that wait do not keep the others from running
	arena := newArena(t)
	e, err := ParseExecutor(executor)
	if err != nil {
		t.Fatal(err)
	}
	cfg := ndtest.Config{
		Open: openerIn(arena, e), Private: private,
		ReceiveTimeout: conformanceTimeout, DisconnectTimeout: conformanceTimeout,
	}
	if processes {
		cfg.Spawn = func() (io.ReadWriteCloser, error) { return startConformance(arena, executor) }
	}
	ndtest.Run(t, cfg)
}

// startConformance starts the other process of a run.
func startConformance(arena *shm.Arena, executor string) (io.ReadWriteCloser, error) {
	cmd := command(context.Background(), roleConformance)
	cmd.Env = append(cmd.Env, executorVariable+"="+executor)
	cmd.ExtraFiles = []*os.File{arena.File()}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return otherProcess{out, in, func() error { _ = cmd.Wait(); return nil }}, nil // how it ended is the scenario's affair
}
