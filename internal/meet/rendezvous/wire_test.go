package rendezvous

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/meet/unixsock"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

// newPair returns the two ends of a stream.
func newPair(t testing.TB) (a, b *unixsock.Conn) {
	t.Helper()
	a, theirs, err := unixsock.Pair(unix.SOCK_STREAM)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.FcntlInt(theirs.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		b, err = unixsock.Adopt(fd)
	}
	if err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	t.Cleanup(func() { a.Close(); b.Close() })
	for _, conn := range []*unixsock.Conn{a, b} {
		if err := conn.SetDeadline(time.Now().Add(proctest.Timeout)); err != nil {
			t.Fatal(err)
		}
	}
	return a, b
}

// taken returns the bytes of a message as it is on the wire.
func taken(t *testing.T, from *channel, conn *unixsock.Conn, m message) []byte {
	t.Helper()
	if err := from.send(m); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 2*maxMessage)
	n, err := conn.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

// A message that a stranger has changed, repeated, reflected, or taken from another connection is refused.
func TestMessagesOfStrangers(t *testing.T) {
	m := message{Kind: put, Key: "key", Value: "value"}
	sent := []byte("nonces")
	for name, forge := range map[string]func(t *testing.T, rank *channel, wire *unixsock.Conn) []byte{
		"changed": func(t *testing.T, rank *channel, wire *unixsock.Conn) []byte {
			b := taken(t, rank, wire, m)
			return bytes.Replace(b, []byte("value"), []byte("other"), 1)
		},
		"repeated": func(t *testing.T, rank *channel, wire *unixsock.Conn) []byte {
			b := taken(t, rank, wire, m)
			return append(b, b...)
		},
		"of another connection": func(t *testing.T, rank *channel, wire *unixsock.Conn) []byte {
			return taken(t, newChannel(rank.conn, testSecret, []byte("other nonces"), false), wire, m)
		},
		"reflected": func(t *testing.T, rank *channel, wire *unixsock.Conn) []byte {
			return taken(t, newChannel(rank.conn, testSecret, sent, true), wire, m)
		},
		"long": func(*testing.T, *channel, *unixsock.Conn) []byte { return []byte{1, 16, 0, 0} },
	} {
		t.Run(name, func(t *testing.T) {
			mine, wire := newPair(t) // the rank's connection ends at the stranger
			other, theirs := newPair(t)
			forged := forge(t, newChannel(mine, testSecret, sent, false), wire)
			root := newChannel(theirs, testSecret, sent, true)
			if _, err := other.Write(forged); err != nil {
				t.Fatal(err)
			}
			_, err := root.receive()
			if name == "repeated" && err == nil {
				_, err = root.receive()
			}
			if name != "long" && !errors.Is(err, ErrSecret) || err == nil {
				t.Errorf("the message is taken: %v", err)
			}
		})
	}
}

func FuzzStranger(f *testing.F) {
	f.Add([]byte{})
	f.Add(greeting())
	f.Add(append(greeting(), make([]byte, 100)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		ours, theirs := newPair(t)
		r := rootOf(Config{Secret: testSecret, Size: 2, Logf: t.Logf})
		go func() {
			_, _ = theirs.Write(b)
			_ = theirs.CloseWrite()
			_, _ = io.Copy(io.Discard, theirs)
		}()
		if p, err := r.handshake(ours); err == nil || p != nil || len(r.ranks) != 0 {
			t.Errorf("a stranger is rank %v: %v", p, err)
		}
	})
}

// FuzzRank lets a faulty rank send messages. Each line of the input is one.
func FuzzRank(f *testing.F) {
	for _, m := range []message{{Kind: put, Key: "a", Value: "b"}, {Kind: get, Key: "a"}, {Kind: barrier}, {Kind: absent},
		{Kind: abort, Code: -1, Text: "\xff"}, {Kind: leave}, {Kind: hello, Rank: 1, Size: 2}} {
		b, err := json.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(append(b, '\n'))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		ours, theirs := newPair(t)
		r := rootOf(Config{Secret: testSecret, Size: 2, Logf: t.Logf})
		p := &peer{channel: newChannel(ours, testSecret, nil, true), rank: 1}
		r.ranks[1] = p
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			_, _ = io.Copy(io.Discard, theirs)
		}()
		for line := range bytes.Lines(b) {
			var m message
			if json.Unmarshal(line, &m) != nil || p.left || !r.handle(p, m) {
				break
			}
		}
		ours.Close()
		<-drained
		n := 0
		for key, value := range r.store {
			n += len(key) + len(value)
		}
		if n != r.stored || n > maxStored {
			t.Errorf("%d bytes are stored, counted as %d", n, r.stored)
		}
	})
}

// FuzzRoot lets a faulty rank 0, which knows the secret, answer.
func FuzzRoot(f *testing.F) {
	for _, m := range []message{{Kind: welcome, Text: "name"}, {Kind: ok}, {Kind: end, Rank: 1, Code: 7}} {
		b, err := json.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(append(b, '\n'))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		ours, theirs := newPair(t)
		c := &Client{channel: newChannel(ours, testSecret, nil, false), answers: make(chan message, 4), closed: make(chan struct{})}
		from := newChannel(theirs, testSecret, nil, true)
		c.done.Go(c.listen)
		for line := range bytes.Lines(b) {
			var x message
			if json.Unmarshal(line, &x) != nil || from.send(x) != nil {
				break
			}
		}
		theirs.Close()
		c.done.Wait()
		if err := ours.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("the connection was open: %v", err)
		}
	})
}
