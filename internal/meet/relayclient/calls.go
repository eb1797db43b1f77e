package relayclient

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// When the relay is connected with the others, its leader and the relay exchange messages: a header of three or four words, and then
// bytes. The relays match the collective calls of all hosts. TWIN c/src/meet/relay_calls.c.

// CallKind is the kind of a message to the relay.
type CallKind uint32

const (
	Barrier  CallKind = 1 + iota // all hosts make it together
	Exchange                     // the same, with a pack of bytes from each host
	Failed                       // this host takes part in no further call; with a status and a text
	Finalize                     // the leader leaves in good order, and has left that to the relay; it has no answer
)

func (k CallKind) String() string {
	switch k {
	case Barrier:
		return "Barrier"
	case Exchange:
		return "Exchange"
	}
	return fmt.Sprintf("call of kind %d", uint32(k))
}

// MaxReason is the length of the text of a Failed in bytes.
const MaxReason = 1024

// Call is a message to the relay.
type Call struct {
	Kind   CallKind
	Status uint32
	Number uint64 // of the leader's messages, which the answer repeats
	Pack   []byte
}

// Outcome is the kind of an answer of the relay.
type Outcome uint16

const (
	Met         Outcome = 1 + iota // the bytes are the packs of all hosts, each behind its length in 8 bytes
	FailedAt                       // at Host, with Status; the bytes are text
	AnotherCall                    // Host makes the call of kind Status
	TooLong                        // the pack of Host is longer than the relay's limit
	Lost                           // Host takes part in no further call
)

// Answer is what becomes of a call. A relay gives the packs of all hosts apart, and [Relay.Poll] returns them in Bytes.
type Answer struct {
	Outcome Outcome
	Host    uint16
	Status  uint32
	Number  uint64
	Bytes   []byte
	Packs   [][]byte
}

const (
	headerSize = 24
	partSize   = 4 << 10 // bytes of a message that are written between two wake-ups of the reader; every pipe holds more
	readSize   = 128 << 10
)

func putHeader(b []byte, kind, status uint32, number, length uint64) []byte {
	b = binary.LittleEndian.AppendUint32(b, kind)
	b = binary.LittleEndian.AppendUint32(b, status)
	b = binary.LittleEndian.AppendUint64(b, number)
	return binary.LittleEndian.AppendUint64(b, length)
}

// ReadCall reads a message to the relay of at most limit bytes, or of MaxReason. It calls wake each time that it has taken bytes: the
// leader may wait for that.
func ReadCall(in io.Reader, limit uint64, wake func()) (c Call, err error) {
	var h [headerSize]byte
	if _, err := io.ReadFull(in, h[:]); err != nil {
		return c, err
	}
	length := binary.LittleEndian.Uint64(h[16:])
	if length > max(limit, MaxReason) {
		return c, fmt.Errorf("a call with %d bytes, more than %d", length, limit)
	}
	c = Call{CallKind(binary.LittleEndian.Uint32(h[:])), binary.LittleEndian.Uint32(h[4:]), binary.LittleEndian.Uint64(h[8:]), make([]byte, length)}
	for rest := c.Pack; len(rest) > 0; {
		n, err := in.Read(rest)
		rest = rest[n:]
		if wake(); err != nil && len(rest) > 0 {
			return c, io.ErrUnexpectedEOF
		}
	}
	return c, nil
}

// WriteAnswer writes an answer of the relay. It calls wake when there is something to read.
func WriteAnswer(out io.Writer, a *Answer, wake func()) error {
	length := len(a.Bytes)
	for _, p := range a.Packs {
		length += 8 + len(p)
	}
	write := func(b []byte) error {
		for len(b) > 0 {
			n := min(len(b), partSize)
			if _, err := out.Write(b[:n]); err != nil {
				return err
			}
			wake()
			b = b[n:]
		}
		return nil
	}
	if err := write(append(putHeader(nil, uint32(a.Outcome)|uint32(a.Host)<<16, a.Status, a.Number, uint64(length)), a.Bytes...)); err != nil {
		return err
	}
	for _, p := range a.Packs {
		if err := write(binary.LittleEndian.AppendUint64(nil, uint64(len(p)))); err != nil {
			return err
		}
		if err := write(p); err != nil {
			return err
		}
	}
	return nil
}

// conversation is the leader's side of the messages. Neither side of it blocks.
type conversation struct {
	number  uint64
	unsent  []byte
	answer  []byte // the header and the bytes so far
	stalled error  // the relay has ended
}

// Post sends a message to the relay. [Relay.Poll] sends what the relay does not take at once.
func (r *Relay) Post(kind CallKind, status uint32, pack []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &r.talk
	c.number++
	c.unsent = append(putHeader(c.unsent, uint32(kind), status, c.number, uint64(len(pack))), pack...)
	r.send()
}

// Poll returns the answer to the latest message, nil if it has not arrived. An answer has at most limit bytes. The relay rings the
// doorbell of the process when Poll may have something to do. After Close, Poll returns nil.
//
// Errors: that the relay has ended, or has answered what no relay answers.
func (r *Relay) Poll(limit uint64) (*Answer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed.Load() {
		return nil, nil
	}
	r.send()
	c := &r.talk
	for {
		length := uint64(0)
		if len(c.answer) >= headerSize {
			if length = binary.LittleEndian.Uint64(c.answer[16:]); length > limit {
				return nil, fmt.Errorf("the relay of this host answers with %d bytes, more than %d", length, limit)
			}
		}
		if missing := headerSize + int(length) - len(c.answer); missing > 0 {
			if !r.receive(min(missing, readSize)) {
				return nil, c.stalled
			}
			continue
		}
		b := c.answer
		c.answer = nil
		if binary.LittleEndian.Uint64(b[8:]) == c.number { // else it is to a call that this rank has given up
			kind := binary.LittleEndian.Uint32(b)
			return &Answer{Outcome: Outcome(kind), Host: uint16(kind >> 16), Status: binary.LittleEndian.Uint32(b[4:]), Number: c.number, Bytes: b[headerSize:]}, nil
		}
	}
}

// send writes what the pipe takes.
func (r *Relay) send() {
	c := &r.talk
	for len(c.unsent) > 0 && c.stalled == nil {
		n := r.try(r.in, func(fd int) (int, error) { return unix.Write(fd, c.unsent) })
		if n == 0 {
			return
		}
		c.unsent = c.unsent[n:]
	}
	if len(c.unsent) == 0 {
		c.unsent = nil
	}
}

// receive reads at most n bytes of an answer. It reports whether there were any.
func (r *Relay) receive(n int) bool {
	c := &r.talk
	at := len(c.answer)
	c.answer = append(c.answer, make([]byte, n)...)
	got := r.try(r.out, func(fd int) (int, error) {
		n, err := unix.Read(fd, c.answer[at:])
		if n == 0 && err == nil {
			err = io.EOF
		}
		return n, err
	})
	c.answer = c.answer[:at+got]
	return got > 0
}

// try makes a system call that moves bytes and does not block. It returns their number.
func (r *Relay) try(f *os.File, call func(fd int) (int, error)) int {
	n := 0
	var failed error
	raw, err := f.SyscallConn()
	if err == nil {
		do := raw.Read
		if f == r.in {
			do = raw.Write
		}
		err = do(func(fd uintptr) bool {
			for n, failed = call(int(fd)); errors.Is(failed, unix.EINTR); {
				n, failed = call(int(fd))
			}
			return true
		})
	}
	if err = errors.Join(err, failed); err != nil && !errors.Is(err, unix.EAGAIN) {
		r.talk.stalled = fmt.Errorf("the relay of this host has ended: %w", err)
	}
	return max(n, 0)
}

// finishLimit is the time for which Finalize waits for the pipe.
const finishLimit = time.Second

// Finalize has the relay tell the launcher that its leader ends well, when no rank of this host is left. Until then the relay can
// have the launcher end the job. Finalize returns false if the relay has no connection with a launcher, or has ended.
func (r *Relay) Finalize() bool {
	if !r.hasLauncher {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.in.SetWriteDeadline(time.Now().Add(finishLimit))
	_, err := r.in.Write(putHeader(r.talk.unsent, uint32(Finalize), 0, 0, 0))
	r.talk.unsent = nil
	return err == nil
}
