package launcher

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/proctest"
)

func init() { proctest.Role("reserve", playReserve) }

// playReserve reserves threads, then lets half as many goroutines wait in the kernel, and fails if
// that needs new threads. The remaining ones are for what the Go runtime does beside them.
func playReserve(*proctest.Self) error {
	const waiting = 8
	if os.Getenv("WITHOUT") == "" {
		reserveThreads(2 * waiting)
	}
	before, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	var done sync.WaitGroup
	for range waiting {
		done.Go(func() { _, _ = unix.Poll(nil, int(500*time.Millisecond/time.Millisecond)) })
	}
	time.Sleep(300 * time.Millisecond)
	during, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	done.Wait()
	if len(during) > len(before) {
		return fmt.Errorf("%d threads with %d waiting in the kernel, %d before", len(during), waiting, len(before))
	}
	return nil
}

// The Go runtime keeps the threads that reserveThreads creates, and needs no others later.
func TestReserveThreads(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		env  []string
		fail bool
	}{
		{"reserved", nil, false},
		{"not reserved", []string{"WITHOUT=1"}, true},
	} {
		status, _, errOut := proctest.Run(t, self("reserve", c.env...))
		if failed := status != 0; failed != c.fail {
			t.Errorf("%s: exit status %d, %s", c.name, status, errOut)
		}
	}
}
