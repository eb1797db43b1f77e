package relayclient

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// newConversation returns a leader's side and the relay's ends of its pipes.
func newConversation(t *testing.T) (r *Relay, in, out *os.File) {
	t.Helper()
	pipe := func() (reader, writer *os.File) {
		reader, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			reader.Close()
			writer.Close()
		})
		return reader, writer
	}
	r = new(Relay)
	in, r.in = pipe()
	r.out, out = pipe()
	for _, f := range []*os.File{in, out} { // as small as they are for a user who has many
		raw, err := f.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, 2*os.Getpagesize()) })
	}
	return r, in, out
}

func poll(t *testing.T, r *Relay, limit uint64) *Answer {
	t.Helper()
	return pollWhenWoken(t, r, limit, nil)
}

// pollWhenWoken polls each time that something arrives at woken, and without it all the time.
func pollWhenWoken(t *testing.T, r *Relay, limit uint64, woken <-chan bool) *Answer {
	t.Helper()
	var a *Answer
	proctest.Eventually(t, "an answer", func() (ok bool) {
		var err error
		if a, err = r.Poll(limit); err != nil {
			t.Fatal(err)
		}
		if a == nil && woken != nil {
			proctest.Receive(t, "a wake-up", woken)
		}
		return a != nil
	})
	return a
}

// Calls and answers that are longer than a pipe go through, though the leader looks only when it is woken.
func TestLongCallsAndAnswers(t *testing.T) {
	r, in, out := newConversation(t)
	woken := make(chan bool, 1)
	wake := func() {
		select {
		case woken <- true:
		default:
		}
	}
	go func() {
		for {
			c, err := ReadCall(in, 1<<20, wake)
			if err != nil {
				return
			}
			a := Answer{Outcome: FailedAt, Host: 16, Status: c.Status + 1, Number: c.Number, Bytes: append(c.Pack, byte(c.Kind))}
			if WriteAnswer(out, &a, wake) != nil {
				return
			}
		}
	}()
	for n, size := range []int{0, 1, 64 << 10, 1 << 20} {
		pack := bytes.Repeat([]byte{byte(n)}, size)
		r.Post(Exchange, uint32(size), pack)
		a := pollWhenWoken(t, r, 1<<20+1, woken)
		if a.Outcome != FailedAt || a.Host != 16 || a.Status != uint32(size)+1 || a.Number != uint64(n+1) || !bytes.Equal(a.Bytes, append(pack, byte(Exchange))) {
			t.Errorf("%d bytes: outcome %d at host %d with status %d and %d bytes", size, a.Outcome, a.Host, a.Status, len(a.Bytes))
		}
	}
}

// The answer to a call that the leader has given up is not taken for that of a later call.
func TestAnswerToAnEarlierCall(t *testing.T) {
	r, _, out := newConversation(t)
	r.Post(Barrier, 0, nil)
	if a, err := r.Poll(10); a != nil || err != nil {
		t.Fatal(a, err)
	}
	r.Post(Failed, 7, []byte("given up"))
	for _, a := range []Answer{{Outcome: Met, Number: 1, Bytes: []byte("late")}, {Outcome: Met, Number: 2}} {
		if err := WriteAnswer(out, &a, func() {}); err != nil {
			t.Fatal(err)
		}
	}
	if a := poll(t, r, 10); a.Number != 2 || len(a.Bytes) > 0 {
		t.Errorf("%+v", a)
	}
}

func TestRelayEndsInAConversation(t *testing.T) {
	for name, end := range map[string]func(in, out *os.File) error{
		"between answers":  func(_, out *os.File) error { return out.Close() },
		"within an answer": func(_, out *os.File) error { _, _ = out.Write(make([]byte, 10)); return out.Close() },
		"reads no more":    func(in, _ *os.File) error { return in.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			r, in, out := newConversation(t)
			if err := end(in, out); err != nil {
				t.Fatal(err)
			}
			r.Post(Exchange, 0, make([]byte, 1<<20))
			if a, err := r.Poll(10); a != nil || err == nil || !strings.Contains(err.Error(), "the relay of this host has ended") {
				t.Errorf("%+v, %v", a, err)
			}
		})
	}
}

func TestLongMessagesAreRefused(t *testing.T) {
	r, in, out := newConversation(t)
	r.Post(Exchange, 0, make([]byte, 100))
	if c, err := ReadCall(in, 99, func() {}); err != nil || len(c.Pack) != 100 {
		t.Errorf("a call that is no longer than a reason: %v", err)
	}
	r.Post(Exchange, 0, make([]byte, MaxReason+1))
	if _, err := ReadCall(in, 99, func() {}); err == nil {
		t.Errorf("the relay takes a call of %d bytes with a limit of 99", MaxReason+1)
	}
	if err := WriteAnswer(out, &Answer{Number: 2, Bytes: make([]byte, 100)}, func() {}); err != nil {
		t.Fatal(err)
	}
	if a, err := r.Poll(99); a != nil || err == nil {
		t.Errorf("%+v, %v", a, err)
	}
}
