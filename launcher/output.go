package launcher

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A line longer than maxLine is passed on in pieces of that length, each labelled
// and ended as a line of its own; otherwise a rank that never ends its line would
// either take all memory or silence the others.
const maxLine = 1 << 20

// sink is where the streams of several ranks meet. Only whole lines go in, so no
// line is split or merged with another rank's.
type sink struct {
	mu    sync.Mutex
	w     io.Writer
	out   []byte // labelled lines on their way out
	ends  string // the bytes that end a line
	err   error  // of the first write that failed; nothing is written after it
	onErr func(error)
}

// newSinks makes the sinks for standard output and error; one and the same if both
// go to the same file, where their lines must not be mixed either. A failure to write
// is told to onErr once per sink.
func newSinks(stdout, stderr io.Writer, onErr func(error)) [2]*sink {
	first := newSink(stdout, onErr)
	if stderr == stdout || sameFile(stdout, stderr) {
		return [2]*sink{first, first}
	}
	return [2]*sink{first, newSink(stderr, onErr)}
}

func newSink(w io.Writer, onErr func(error)) *sink {
	s := &sink{w: w, ends: "\n", onErr: onErr}
	if IsTerminal(w) {
		// Programs draw progress by returning the carriage. Shown at the next line
		// feed only, it would not be progress.
		s.ends = "\n\r"
	}
	return s
}

func sameFile(a, b io.Writer) bool {
	fa, ok := a.(*os.File)
	fb, ok2 := b.(*os.File)
	if !ok || !ok2 {
		return false
	}
	ia, err := fa.Stat()
	ib, err2 := fb.Stat()
	return err == nil && err2 == nil && os.SameFile(ia, ib)
}

// IsTerminal tells whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return false
	}
	terminal := false
	_ = conn.Control(func(fd uintptr) {
		_, err := unix.IoctlGetTermios(int(fd), unix.TCGETS)
		terminal = err == nil
	})
	return terminal
}

// stream carries one rank's standard output or error from its pipe to the sink.
type stream struct {
	label    string
	from     *os.File
	to       *sink
	returned bool // the last byte passed on was a carriage return that ended a line
	left     int  // bytes that the pipe held when the job was over; -1 before
}

func newStream(rank int, from *os.File, to *sink) *stream {
	return &stream{label: "[" + strconv.Itoa(rank) + "] ", from: from, to: to, left: -1}
}

// copy passes everything on until the end of the pipe, or until finish was called
// and the pipe has nothing more to give. A sink that is slow slows the rank.
func (s *stream) copy() {
	defer s.from.Close()
	buf := make([]byte, 4096)
	held := 0 // bytes of an unfinished line at the start of buf
	for {
		n, err := s.from.Read(buf[held:])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			n, err = s.drain(buf[held:])
		}
		fresh := buf[held : held+n]
		held += n
		if end := bytes.LastIndexAny(fresh, s.to.ends); end >= 0 {
			lines := held - len(fresh) + end + 1
			s.pass(buf[:lines])
			held = copy(buf, buf[lines:held])
		}
		if err != nil {
			if held > 0 {
				s.pass(append(buf[:held], '\n'))
			}
			return
		}
		if held < len(buf) {
			continue
		}
		if len(buf) < maxLine {
			buf = append(buf, make([]byte, len(buf))...)
			continue
		}
		s.pass(append(buf, '\n'))
		held = 0
	}
}

// finish makes copy return once it has passed on what lies in the pipe. The job is
// over then; a writing end that is still open was handed to a stranger.
func (s *stream) finish() { _ = s.from.SetReadDeadline(time.Now()) }

// drain reads what the pipe held when drain was first called, without waiting, and
// then returns [io.EOF]: the stranger may go on writing for ever.
func (s *stream) drain(p []byte) (n int, err error) {
	// Past its deadline a file refuses any use.
	if err := s.from.SetReadDeadline(time.Time{}); err != nil {
		return 0, err
	}
	defer s.finish()
	conn, err := s.from.SyscallConn()
	if err != nil {
		return 0, err
	}
	readErr := conn.Read(func(fd uintptr) bool {
		if s.left < 0 {
			s.left, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) // FIONREAD
		}
		if err == nil && s.left > 0 {
			n, err = unix.Read(int(fd), p[:min(len(p), s.left)])
		}
		return true
	})
	if err := errors.Join(readErr, err); err != nil {
		return 0, err
	}
	if n <= 0 {
		return 0, io.EOF
	}
	s.left -= n
	return n, nil
}

// pass labels each line in b, which ends at a line's end, and writes them in one go.
func (s *stream) pass(b []byte) {
	t := s.to
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return // the job is being stopped for it
	}
	t.out = t.out[:0]
	for len(b) > 0 {
		// A line feed right after the carriage return that ended the line belongs to it.
		if !(s.returned && b[0] == '\n') {
			t.out = append(t.out, s.label...)
		}
		end := bytes.IndexAny(b, t.ends) + 1
		s.returned = b[end-1] == '\r'
		t.out = append(t.out, b[:end]...)
		b = b[end:]
	}
	if _, err := t.w.Write(t.out); err != nil {
		t.err = fmt.Errorf("pass on the ranks' output: %w; the job was stopped", err)
		t.onErr(t.err)
	}
}
