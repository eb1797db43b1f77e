package launcher

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

func init() { proctest.Role("reserve", runReserve) }

// runReserve reserves threads, then lets half as many goroutines wait in the kernel, and fails if
// the Go runtime creates threads for them. It may create a few for its own work.
func runReserve(*proctest.Self) error {
	const waiting = 16
	if os.Getenv("WITHOUT") == "" {
		reserveThreads(2 * waiting)
	}
	before, err := threads()
	if err != nil {
		return err
	}
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	var (
		done    sync.WaitGroup
		entered atomic.Int32
	)
	for range waiting {
		done.Go(func() {
			entered.Add(1)
			_, _ = unix.Read(ends[0], make([]byte, 1))
		})
	}
	for entered.Load() < waiting {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(200 * time.Millisecond)
	during, err := threads()
	unix.Close(ends[1])
	done.Wait()
	if err == nil && during-before >= waiting/2 {
		err = fmt.Errorf("%d threads with %d waiting in the kernel, %d before", during, waiting, before)
	}
	return err
}

// threads returns the number of threads of this process.
func threads() (int, error) {
	all, err := os.ReadDir("/proc/self/task")
	return len(all), err
}

// The Go runtime keeps the threads that reserveThreads creates, and reuses them.
func TestReserveThreads(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		env  []string
		fail bool
	}{
		{"reserved", []string{"GOMAXPROCS=2"}, false},
		{"not reserved", []string{"GOMAXPROCS=2", "WITHOUT=1"}, true},
	} {
		status, _, errOut := proctest.Run(t, self("reserve", c.env...))
		if failed := status != 0; failed != c.fail {
			t.Errorf("%s: exit status %d, %s", c.name, status, errOut)
		}
	}
}
