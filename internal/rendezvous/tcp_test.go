package rendezvous

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/proctest"
)

// A socket that has connected to itself is closed: rank 0 would otherwise find its port in use.
func TestSocketDoesNotConnectToItself(t *testing.T) {
	at := freeAddress(t)
	fd, sa, err := newSocket(at)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, sa); err != nil { // as the kernel may do
		t.Fatal(err)
	}
	conn, err := connect(proctest.Context(t), fd, sa)
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
