//go:build failpoints

package kill

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/testkit/failpoint"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/window"
)

// A process stops in the middle of a copy into memory of its peer. The peer ends the permission meanwhile. That takes
// effect only when the process has died, or has gone on and ended its copy. Nothing changes in the memory afterwards.

const (
	copyOwner, copier, copyRanks = 0, 1, 2

	copyMemory = 4 * window.ChunkSize
	copyStop   = 100 * time.Millisecond // how long the copier stops, at least
)

var roleCopier = proctest.Role("copier", runCopier)

// runCopier writes into the window that the owner describes, or waits while the owner reads its memory. Its
// arguments are the number of bytes to write, and the failpoint to arm.
func runCopier(s *proctest.Self) error {
	n, err := strconv.Atoi(s.Args[0])
	if err != nil {
		return err
	}
	j, err := softnd.Init(s.Ctx)
	if err != nil {
		return err
	}
	e, far, err := openCopyEnd(s.Ctx, j, copyOwner)
	if err != nil {
		return err
	}
	if err := failpoint.ArmFrom(s.Args[1]); err != nil {
		return err
	}
	s.Say("armed")
	if n > 0 {
		_ = e.ep.Write(1, nd.One(nd.SGEOf(e.memory, 0, n)), far.Address, far.Token, 0) // the owner may have ended it
	}
	if err := e.awaitEnd(s.Ctx); err != nil {
		return err
	}
	return j.Close()
}

// copyEnd is one end of the connection.
type copyEnd struct {
	ep     nd.Endpoint
	cq     nd.CompletionQueue
	memory nd.MemoryRegion
	window nd.MemoryWindow // bound by the owner only
}

// openCopyEnd connects with the peer, and exchanges descriptors: the copier's is that of its memory, the owner's that of
// a window.
func openCopyEnd(ctx context.Context, j *softnd.Job, peer int) (e *copyEnd, far nd.WindowDescriptor, err error) {
	a := j.Adapter()
	e = new(copyEnd)
	if e.cq, err = a.CreateCompletionQueue(ctx, 16); err != nil {
		return nil, far, err
	}
	if e.memory, err = a.Allocate(ctx, copyMemory, nd.AllowLocalWrite|nd.AllowRemoteRead|nd.AllowRemoteWrite); err != nil {
		return nil, far, err
	}
	if e.ep, err = j.Connect(ctx, peer, nd.EndpointConfig{ReceiveCQ: e.cq, InitiatorCQ: e.cq}); err != nil {
		return nil, far, err
	}
	near := nd.DescriptorOf(e.memory)
	if j.Rank() == copyOwner {
		if e.window, err = a.CreateMemoryWindow(ctx); err != nil {
			return nil, far, err
		}
		if err := e.ep.Bind(0, e.memory, e.window, e.memory.Bytes(), nd.AllowWrite); err != nil {
			return nil, far, err
		}
		if _, err := nd.WaitOne(ctx, e.cq, e.ep); err != nil {
			return nil, far, err
		}
		near = e.window.Descriptor()
	}
	all, err := j.ExchangeWindows(ctx, near)
	if err != nil {
		return nil, far, err
	}
	return e, all[peer], nil
}

// awaitEnd waits until the connection has ended.
func (e *copyEnd) awaitEnd(ctx context.Context) error {
	select {
	case <-e.ep.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stoppedCopy is the owner's side of a copy that has stopped at a point.
type stoppedCopy struct {
	*killJob
	*copyEnd
	bytes []byte // of the memory
}

// startCopy starts a copy of n bytes into the window. If n is 0, the copier executes a Read for the owner.
func startCopy(t *testing.T, point failpoint.Point, n int) *stoppedCopy {
	t.Helper()
	executor := "auto"
	if n == 0 {
		executor = "target"
	}
	k := startKillJob(t, copyRanks, executor, copier, roleCopier, strconv.Itoa(n), point.Name()+":1:"+string(failpoint.Stop))
	e, far, err := openCopyEnd(proctest.Context(t), k.survivors[copyOwner], copier)
	if err != nil {
		t.Fatal(err)
	}
	k.victim.Expect("armed")
	if n == 0 {
		if err := e.ep.Read(1, nd.One(nd.SGEOf(e.memory, 0, copyMemory)), far.Address, far.Token, 0); err != nil {
			t.Fatal(err)
		}
	}
	proctest.Watch(t, k.victim.PID()).AwaitState('T')
	return &stoppedCopy{k, e, e.memory.Bytes()}
}

// goOn lets the copier die, or continue.
func (c *stoppedCopy) goOn(dies bool) {
	c.t.Helper()
	if dies {
		c.victim.Kill()
		c.victim.WaitKilled()
	} else {
		c.victim.Resume()
	}
}

// mustKeep fills the memory, ends the connection, and checks that the copier does not change the memory.
func (c *stoppedCopy) mustKeep(dies bool) {
	c.t.Helper()
	pattern := bytes.Repeat([]byte{0x5c}, copyMemory)
	copy(c.bytes, pattern)
	if err := c.ep.Close(); err != nil {
		c.t.Error(err)
	}
	if !dies {
		c.victim.Wait()
	}
	if !bytes.Equal(c.bytes, pattern) {
		c.t.Error("memory has changed after the end of the permission")
	}
	if err := errors.Join(c.window.Close(context.Background()), c.memory.Close(context.Background()), c.cq.Close()); err != nil {
		c.t.Error(err)
	}
	c.mustReclaim().mustKeep(c.t)
	c.killJob.close()
}

func TestKillInCopy(t *testing.T) {
	repeats, _ := kills(t)
	invalidate := func(ctx context.Context, c *stoppedCopy) error {
		if err := c.ep.Invalidate(1, c.window, 0); err != nil {
			return err
		}
		r, err := nd.WaitOne(ctx, c.cq, c.ep)
		return errors.Join(nd.Explain(c.ep, r), err)
	}
	deregister := func(ctx context.Context, c *stoppedCopy) error {
		if err := c.window.Close(ctx); err != nil { // a region with a bound window cannot be deregistered
			return err
		}
		return c.memory.Deregister(ctx)
	}
	flush := func(ctx context.Context, c *stoppedCopy) error { return c.ep.Flush(ctx) }
	for _, test := range []struct {
		name string
		n    int
		end  func(context.Context, *stoppedCopy) error
	}{
		{"Invalidate, fast path", 8, invalidate},
		{"Invalidate, several chunks", copyMemory, invalidate},
		{"Flush", copyMemory, flush},
		{"Deregister, Read executed by the peer", 0, deregister},
	} {
		for _, point := range []failpoint.Point{failpoint.HazardPublished, failpoint.EntryChecked, failpoint.ChunkCopied, failpoint.EntryRechecked} {
			for _, dies := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%s/dies=%v", test.name, point.Name(), dies), func(t *testing.T) {
					for range repeats {
						killInCopy(t, point, test.n, test.end, dies)
					}
				})
			}
		}
	}
}

// killInCopy runs one job. end ends the permission of the copy.
func killInCopy(t *testing.T, point failpoint.Point, n int, end func(context.Context, *stoppedCopy) error, dies bool) {
	t.Helper()
	c := startCopy(t, point, n)
	ended := make(chan error, 1)
	go func() { ended <- end(proctest.Context(t), c) }()
	select {
	case err := <-ended:
		t.Fatalf("it has ended while a copy is in progress: %v", err)
	case <-time.After(copyStop):
	}
	c.goOn(dies)
	if err := proctest.Receive(t, "it ends", ended); err != nil {
		t.Fatal(err)
	}
	c.mustKeep(dies)
}
