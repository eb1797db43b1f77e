package unixsock

import (
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// ends returns both ends of a connection, in non-blocking mode.
func ends(t *testing.T, kind int) (a, b *Conn) {
	t.Helper()
	a, file, err := Pair(kind)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	file.Close()
	if err != nil {
		t.Fatal(err)
	}
	if b, err = Adopt(fd); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*Conn{a, b} {
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(proctest.Timeout))
	}
	return a, b
}

func TestSendPassesFiles(t *testing.T) {
	for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_SEQPACKET} {
		a, b := ends(t, kind)
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if n, err := a.Send([]byte("two"), unix.UnixRights(int(w.Fd()))); n != 3 || err != nil {
			t.Fatal(n, err)
		}
		w.Close()
		buf, oob := make([]byte, 10), make([]byte, unix.CmsgSpace(4))
		n, oobn, _, err := b.Receive(buf, oob)
		if err != nil || string(buf[:n]) != "two" {
			t.Fatalf("%q, %v", buf[:n], err)
		}
		messages, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil || len(messages) != 1 {
			t.Fatal(messages, err)
		}
		fds, err := unix.ParseUnixRights(&messages[0])
		if err != nil || len(fds) != 1 {
			t.Fatal(fds, err)
		}
		if flags, err := unix.FcntlInt(uintptr(fds[0]), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("flags %#x, %v: a child would inherit it", flags, err)
		}
		unix.Close(fds[0])
		if n, err := r.Read(buf); err != io.EOF {
			t.Errorf("%d bytes, %v: it was another file", n, err)
		}
	}
}

// A blocked Read or Receive that ends returns an error that says why.
func TestBlockedCallsReturnDocumentedErrors(t *testing.T) {
	for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_SEQPACKET} {
		for name, wait := range map[string]func(*Conn) error{
			"read":    func(c *Conn) error { _, err := c.Read(make([]byte, 1)); return err },
			"receive": func(c *Conn) error { _, _, _, err := c.Receive(make([]byte, 1), nil); return err },
		} {
			for _, tc := range []struct {
				end  string
				do   func(waiting, other *Conn)
				want error
			}{
				{"the other closes", func(_, other *Conn) { other.Close() }, io.EOF},
				{"the other writes no more", func(_, other *Conn) { other.CloseWrite() }, io.EOF},
				{"we read no more", func(c, _ *Conn) { c.CloseRead() }, io.EOF},
				{"closed", func(c, _ *Conn) { c.Close() }, os.ErrClosed},
				{"deadline", func(c, _ *Conn) { c.SetDeadline(time.Unix(1, 0)) }, os.ErrDeadlineExceeded},
			} {
				t.Run(fmt.Sprint(kind, "/", name, "/", tc.end), func(t *testing.T) {
					a, b := ends(t, kind)
					got := make(chan error)
					go func() { got <- wait(a) }()
					time.Sleep(time.Millisecond) // it likely waits by now; the result is the same if not
					tc.do(a, b)
					if err := proctest.Receive(t, "the wait ends", got); !errors.Is(err, tc.want) {
						t.Errorf("%v, want %v", err, tc.want)
					}
				})
			}
		}
	}
}

func TestSendToClosedPeerFails(t *testing.T) {
	a, b := ends(t, unix.SOCK_STREAM)
	b.Close()
	if _, err := a.Write([]byte("x")); !errors.Is(err, unix.EPIPE) {
		t.Errorf("Write: %v", err)
	}
	if _, err := a.Send([]byte("x"), nil); !errors.Is(err, unix.EPIPE) {
		t.Errorf("Send: %v", err)
	}
}

func TestAdoptRefusesOtherDescriptors(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	fd, err := unix.FcntlInt(r.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := Adopt(fd); !errors.Is(err, unix.ENOTSOCK) {
		t.Errorf("%v, %v", c, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != unix.EBADF {
		t.Errorf("it is open still: %v", err)
	}
}

func TestListenerAccepts(t *testing.T) {
	name := fmt.Sprintf("@softnd-unixsock-test-%d", os.Getpid())
	if c, err := Dial(name); !errors.Is(err, unix.ECONNREFUSED) {
		t.Fatalf("%v, %v", c, err)
	}
	l, err := Listen(name)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if again, err := Listen(name); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("%v, %v", again, err)
	}
	if other, err := ListenerOf(l.File, name+"-other"); err == nil || err.Error() != "listens at "+name+", want "+name+"-other" {
		t.Errorf("%v, %v", other, err)
	}
	same, err := ListenerOf(l.File, name)
	if err != nil {
		t.Fatal(err)
	}
	defer same.Close()
	c, err := Dial(name)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if notOne, err := ListenerOf(c.File, name); err == nil {
		t.Errorf("%v listens", notOne)
	}
	accepted, err := same.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	if _, err := c.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 10)
	accepted.SetDeadline(time.Now().Add(proctest.Timeout))
	if n, err := accepted.Read(b); err != nil || string(b[:n]) != "hello" {
		t.Errorf("%q, %v", b[:n], err)
	}
	closed := make(chan error)
	go func() {
		_, err := l.Accept()
		closed <- err
	}()
	time.Sleep(time.Millisecond) // it likely waits by now; the result is the same if not
	l.Close()
	if err := proctest.Receive(t, "Accept returns", closed); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
}

func TestAtEndReportsClosedPeer(t *testing.T) {
	a, b := ends(t, unix.SOCK_STREAM)
	must := func(want bool, when string) {
		t.Helper()
		if a.AtEnd() != want {
			t.Errorf("%s: %v", when, !want)
		}
	}
	must(false, "open")
	if _, err := b.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	must(false, "something to read")
	b.Close()
	must(false, "closed, with something to read")
	if n, err := a.Read(make([]byte, 2)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	must(true, "all read")
}
