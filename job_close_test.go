package softnd

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// A Close that is deferred past a panic takes effect when the panic has been recovered.
func TestCloseWaitsForPanic(t *testing.T) {
	ctx := t.Context()
	j, err := Init(ctx)
	if err != nil {
		t.Fatal(err)
	}
	region, err := j.Adapter().Allocate(ctx, 4096, nd.AllowLocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic arrives")
			}
		}()
		defer func() {
			if err := j.Close(); !errors.Is(err, nd.Pending) {
				t.Errorf("Job.Close while a panic unwinds: %v, want Pending", err)
			}
		}()
		defer func() {
			if err := region.Close(); !errors.Is(err, nd.Pending) {
				t.Errorf("MemoryRegion.Close while a panic unwinds: %v, want Pending", err)
			}
		}()
		panic("for the test")
	}()
	if err := j.Barrier(ctx); err != nil {
		t.Errorf("the job right after the panic: %v", err)
	}
	proctest.Eventually(t, "the job is closed", func() bool { return errors.Is(j.Barrier(ctx), nd.InvalidHandle) })
	const want = "nd: barrier on job: the job is closed: invalid handle: make the call before Job.Close"
	if err := j.Barrier(ctx); err == nil || err.Error() != want {
		t.Errorf("Barrier: %v, want %s", err, want)
	}
	if err := j.Close(); err != nil {
		t.Errorf("Close again: %v", err)
	}
}

// TestConnectNamesRankThatLeft: Connect to a rank that has left says so, and does not advise to wait until it starts.
func TestConnectNamesRankThatLeft(t *testing.T) {
	ctx := proctest.Context(t)
	var jobs [2]*Job
	var joined sync.WaitGroup
	for rank := range jobs {
		joined.Go(func() {
			var err error
			if jobs[rank], err = Join(ctx, fmt.Sprint("softnd-test-left-", os.Getpid()), rank, len(jobs)); err != nil {
				t.Error(err)
			}
		})
	}
	joined.Wait()
	if t.Failed() {
		return
	}
	q, err := jobs[1].Adapter().CreateCompletionQueue(ctx, 16)
	if err == nil {
		err = jobs[0].Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = jobs[1].Connect(ctx, 0, nd.EndpointConfig{Receive: q, Initiator: q})
	if !errors.Is(err, nd.HostUnreachable) || !strings.Contains(err.Error(), "the rank has died or left") {
		t.Errorf("Connect to a rank that has left: %v", err)
	}
	if err := jobs[1].Close(); err != nil {
		t.Error(err)
	}
}
