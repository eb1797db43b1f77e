package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

func TestMain(m *testing.M) {
	writeLimit = proctest.Timeout // a busy machine may stop a rank for seconds
	proctest.Main()
	os.Exit(m.Run())
}

// limitTo lets the process have the descriptors below n.
func limitTo(n int) error {
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(n), Max: 1 << 10})
}

// roleFewDescriptors joins as one of two ranks, with room for no descriptor and for one more each time.
var roleFewDescriptors = proctest.Role("few descriptors", func(self *proctest.Self) error {
	reservation, root, err := linux.ReservePort(netip.MustParseAddr("127.0.0.1"))
	if err != nil {
		return err
	}
	defer reservation.Close()
	c := Config{Root: root, Secret: testSecret, Size: 2, Logf: func(string, ...any) {}}
	if _, err := fmt.Sscan(self.Args[0], &c.Rank); err != nil {
		return err
	}
	ended, cancel := context.WithCancel(self.Ctx)
	cancel()
	if m, err := Join(ended, c); err == nil { // the first call opens descriptors that the runtime keeps
		_ = m.HangUp()
	}
	next, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	unix.Close(next)
	most := 3 // the listener and both ends of a connection
	if c.Rank == 1 {
		most = 1
	}
	for room := range most {
		if err := limitTo(next + room); err != nil {
			return err
		}
		_, err := Join(self.Ctx, c)
		if err := limitTo(1 << 10); err != nil {
			return err
		}
		if !errors.Is(err, unix.EMFILE) || !strings.Contains(err.Error(), "ulimit -n") || self.Ctx.Err() != nil {
			return fmt.Errorf("room for %d: %w", room, err)
		}
	}
	return nil
})

// A rank that has too few descriptors to join says so, and does not wait for them.
func TestFewDescriptors(t *testing.T) {
	for rank := range 2 {
		proctest.Start(t, proctest.Command(roleFewDescriptors, fmt.Sprint(rank))).Wait()
	}
}

// If rank 0 cannot accept connections for want of descriptors, it says so.
func TestStarvedRoot(t *testing.T) {
	proctest.Start(t, proctest.Command(roleStarved)).Wait()
}

var roleStarved = proctest.Role("starved", func(self *proctest.Self) error {
	said := make(chan string, 10)
	reservation, root, err := linux.ReservePort(netip.MustParseAddr("127.0.0.1"))
	if err != nil {
		return err
	}
	defer reservation.Close()
	c := Config{Root: root, Secret: testSecret, Size: 2, Logf: func(format string, args ...any) { said <- fmt.Sprintf(format, args...) }}
	m, err := Join(self.Ctx, c)
	if err != nil {
		return err
	}
	conn, _, err := newSocket(c.Root)
	if err != nil {
		return err
	}
	if err := limitTo(conn); err != nil {
		return err
	}
	_, sa, _ := newSocket(c.Root)
	_ = unix.Connect(conn, sa)
	select {
	case line := <-said:
		if !strings.Contains(line, "accept") || !strings.Contains(line, "ulimit -n") {
			return fmt.Errorf("%q", line)
		}
	case <-self.Ctx.Done():
		return self.Ctx.Err()
	}
	return errors.Join(limitTo(1<<10), m.HangUp())
})
