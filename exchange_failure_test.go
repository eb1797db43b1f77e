package softnd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// A rank whose Exchange fails keeps its blob: another rank may still copy it, and succeed. Later calls allocate nothing.
func TestFailedExchangeKeepsBlob(t *testing.T) {
	const ranks, slow, fails = 3, 2, 0
	ctx := proctest.Context(t)
	var jobs [ranks]*Job
	var done sync.WaitGroup
	for rank := range ranks {
		done.Go(func() {
			var err error
			if jobs[rank], err = Join(ctx, fmt.Sprint("softnd-test-failed-", os.Getpid()), rank, ranks); err != nil {
				t.Error(err)
			}
		})
	}
	if done.Wait(); t.Failed() {
		return
	}
	failing, cancel := context.WithCancel(ctx)
	defer cancel()
	before := jobs[fails].member.InUse()
	end := make(chan error, 2)
	go func() {
		_, err := jobs[fails].Exchange(failing, []byte("hello"))
		end <- err
	}()
	other := make(chan error, 1)
	go func() {
		_, err := jobs[1].Exchange(ctx, []byte("hello"))
		other <- err
	}()
	// The slow rank makes the steps of Exchange: it publishes nothing, waits until all ranks have published, and copies.
	g := jobs[slow].group
	g.Publish(0, 0)
	first := g.Arrive()
	proctest.Eventually(t, "all ranks have published", func() bool { return g.Passed(first) })
	proctest.Eventually(t, "the others wait at the end", func() bool { return jobs[slow].arena.BarrierArrivals() == uint64(first)+ranks-1 })
	cancel()
	if err := proctest.Receive(t, "the exchange fails", end); !errors.Is(err, nd.Canceled) {
		t.Errorf("the exchange returns %v, want %v", err, nd.Canceled)
	}
	if b, err := g.Published(fails, 100); string(b) != "hello" || err != nil {
		t.Errorf("the slow rank copies %q, %v", b, err)
	}
	last := g.Arrive()
	if err := proctest.Receive(t, "the other exchange ends", other); err != nil || !g.Passed(last) {
		t.Errorf("the other rank's exchange returns %v", err)
	}
	kept := jobs[fails].member.InUse()
	if kept == before {
		t.Error("the blob is free")
	}
	if _, err := jobs[fails].Exchange(ctx, []byte("hello")); !errors.Is(err, nd.InvalidDeviceState) || jobs[fails].member.InUse() != kept {
		t.Errorf("a later exchange returns %v, and %d bytes are in use, %d before", err, jobs[fails].member.InUse(), kept)
	}
	for _, j := range jobs {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}
}
