package rendezvous

import (
	"errors"
	"math"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// A socket that has connected to itself is closed: rank 0 would otherwise find its port in use.
func TestSocketDoesNotConnectToItself(t *testing.T) {
	at := proctest.FreeAddress(t)
	fd, sa, err := newSocket(at)
	if err != nil {
		t.Fatal(err)
	}
	reuse := func(on int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, on) }
	if err := errors.Join(reuse(1), unix.Bind(fd, sa), reuse(0)); err != nil { // as the kernel may do; the port is reserved for the test
		t.Fatal(err)
	}
	conn, err := connect(proctest.Context(t), fd, sa, 0)
	if err == nil {
		conn.Close()
	}
	if !errors.Is(err, errSelf) {
		t.Errorf("%v, want %v", err, errSelf)
	}
	l, err := listen(at)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

func TestKeepaliveOptions(t *testing.T) {
	for silence, want := range map[time.Duration][3]int{
		0:               {2, 1, 5000},
		time.Nanosecond: {1, 1, 2000},
		time.Second:     {1, 1, 2000},
		time.Minute:     {30, 7, 60000},
		math.MaxInt64:   {32767, 32767, math.MaxInt32},
	} {
		options := keepaliveOptions(silence)
		if got := [3]int{options[0].value, options[1].value, options[2].value}; got != want {
			t.Errorf("%v: %v, want %v", silence, got, want)
		}
	}
}
