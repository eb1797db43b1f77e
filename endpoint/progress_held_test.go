package endpoint

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

// TestLockedEndpointKeepsThreadsIdle: neither the engine nor a wait spins while another goroutine
// holds an endpoint, because that goroutine needs the processor more.
func TestLockedEndpointKeepsThreadsIdle(t *testing.T) {
	const hold = 500 * time.Millisecond
	for _, waiting := range []bool{false, true} {
		p := newPair(t, setup{})
		s := p.b
		ep := s.endpointAt(0).(*queuePair)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		if waiting {
			go func() {
				ended <- s.provider.WaitFor(ctx, statuspage.Call{}, func() bool { return false })
			}()
			proctest.Eventually(t, "the wait sleeps", func() bool { return s.provider.waiters.Sleeping() > 0 })
		} else {
			close(ended)
		}
		ep.mu.Lock()
		s.provider.engine.wake()
		s.provider.waiters.Wake()
		began, used := time.Now(), processorTime(t)
		time.Sleep(hold)
		used = processorTime(t) - used
		held := time.Since(began)
		ep.mu.Unlock()
		cancel()
		<-ended
		if used > held/4 {
			t.Errorf("waiting %v: the process used %v of processor time in the %v in which the endpoint was held", waiting, used, held)
		}
	}
}

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
