package softnd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// A rank that gives up and connects again, with a rank that is waiting for a third one,
// leaves nothing behind in either of them.
func TestConnectRetriesLeaveNothing(t *testing.T) {
	var longer time.Duration
	if os.Getenv("SOFTND_STRESS") == "1" {
		longer = 10 * time.Minute
	}
	ctx, cancel := context.WithTimeout(t.Context(), proctest.Timeout+longer)
	defer cancel()
	const ranks = 3
	name := fmt.Sprint("softnd-test-retry-", os.Getpid())
	var jobs [ranks]*Job
	var joined sync.WaitGroup
	for rank := range jobs {
		joined.Go(func() {
			var err error
			if jobs[rank], err = Join(ctx, name, rank, ranks); err != nil {
				t.Error(err)
			}
		})
	}
	joined.Wait()
	if t.Failed() {
		return
	}
	defer func() {
		for _, j := range jobs {
			if err := j.Close(); err != nil {
				t.Error(err)
			}
		}
	}()
	config := func(j *Job) nd.EndpointConfig {
		q, err := j.Adapter().CreateCompletionQueue(ctx, 16)
		if err != nil {
			t.Fatal(err)
		}
		return nd.EndpointConfig{Receive: q, Initiator: q}
	}
	waiting, stop := context.WithCancel(ctx)
	var busy sync.WaitGroup
	defer busy.Wait()
	defer stop()
	cfg := config(jobs[0])
	busy.Go(func() {
		if _, err := jobs[0].Connect(waiting, 1, cfg); !errors.Is(err, nd.Canceled) {
			t.Errorf("connect with a rank that does not: %v", err)
		}
	})
	cfg2 := config(jobs[2])
	retry := func(times int) (kept int, inUse uint64) {
		for range times {
			short, cancel := context.WithTimeout(ctx, 2*time.Millisecond)
			ep, err := jobs[2].Connect(short, 0, cfg2)
			cancel()
			if err == nil {
				ep.Close()
				t.Fatal("connected with a rank that waits for another")
			}
		}
		jobs[0].mu.Lock()
		kept = len(jobs[0].waiting[2])
		jobs[0].mu.Unlock()
		return kept, jobs[2].member.InUse()
	}
	const few, many, slack = 50, 400, 64 << 10
	_, before := retry(few)
	goroutines := runtime.NumGoroutine()
	end := time.Now().Add(longer)
	for again := true; again && !t.Failed(); again = time.Now().Before(end) {
		kept, after := retry(many)
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		t.Logf("after %d tries more: %d requests kept, %d bytes of the arena in use (%d at first), %d goroutines (%d), %d bytes of heap",
			many, kept, after, before, runtime.NumGoroutine(), goroutines, m.HeapAlloc)
		if kept > few {
			t.Errorf("%d requests that were given up are kept", kept)
		}
		// A try's endpoint and record are given back when the other side has let go of them.
		if after > before+slack {
			t.Errorf("%d bytes of the arena are in use, %d at first", after, before)
		}
		if n := runtime.NumGoroutine(); n > goroutines+few {
			t.Errorf("%d goroutines, %d at first", n, goroutines)
		}
	}
}
