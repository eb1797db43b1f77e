package launcher

import (
	"bufio"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/meet/unixsock"
)

// wire returns a sender and the receiver of its messages.
func wire(t *testing.T) (*sender, *receiver) {
	t.Helper()
	ours, theirs, err := unixsock.Pair(unix.SOCK_STREAM)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close() })
	fd, err := unix.FcntlInt(theirs.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	other, err := unixsock.Adopt(fd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	return &sender{conn: ours}, &receiver{conn: other}
}

func inode(t *testing.T, fd int) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

// More files than fit into one message arrive with their message, in order. So does a message
// that is longer than the socket buffer.
func TestWireCarriesFiles(t *testing.T) {
	out, in := wire(t)
	var sent []int
	for range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		defer w.Close()
		sent = append(sent, int(r.Fd()))
	}
	const files = 2*maxRights + 1
	long := event{Problem: strings.Repeat("softnd", 100_000)}
	from := bufio.NewReader(in)
	go func() {
		for round := range 2 {
			out.put(&long)
			for i := range files {
				out.enclose([]int{sent[(round+i)%3]})
			}
			out.flush()
		}
	}()
	for round := range 2 {
		var came event
		if !get(from, &came) || came.Problem != long.Problem {
			t.Fatalf("round %d: %d bytes", round, len(came.Problem))
		}
		fds, err := in.take(files)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		defer closeFDs(fds)
		for i, fd := range fds {
			if got, want := inode(t, fd), inode(t, sent[(round+i)%3]); got != want {
				t.Fatalf("round %d, file %d: inode %d, want %d", round, i, got, want)
			}
		}
	}
	if fds, err := in.take(1); err == nil {
		t.Errorf("one more file: %v", fds)
	}
}

// A receiver that may open no more files reports that and does not take later files for the lost
// ones.
func TestWireReportsLostFiles(t *testing.T) {
	out, in := wire(t)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	fd := int(null.Fd())
	out.bytes = []byte("a")
	out.enclose([]int{fd, fd, fd})
	out.flush()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	next, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(next)
	strait := unix.Rlimit{Cur: uint64(next) + 1, Max: limit.Max} // room for one
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &strait); err != nil {
		t.Fatal(err)
	}
	_, err = io.ReadFull(in, make([]byte, 1))
	if restoreErr := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || restoreErr != nil {
		t.Fatal(err, restoreErr)
	}
	out.bytes = []byte("b") // with files that are not the next ones
	out.enclose([]int{fd, fd})
	out.flush()
	if _, err := io.ReadFull(in, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	fds, err := in.take(1)
	if err != nil {
		t.Errorf("the one that has come: %v", err)
	}
	closeFDs(fds)
	if fds, err := in.take(1); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("%v, %v", fds, err)
	}
	in.close()
}
