package launcher

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A line longer than maxLine is passed on in pieces of that length, each labelled
// and ended as a line of its own; otherwise a rank that never ends its line would
// either take all memory or silence the others.
const maxLine = 1 << 20

// quietBuffer is what the buffer of a stream begins with: most ranks write little. It
// grows to busyBuffer, as much as a pipe holds, when the rank writes faster than it is read.
const (
	quietBuffer = 512
	busyBuffer  = 64 << 10
)

// tailLength is how much of a stream is kept for the report.
const tailLength = 2 << 10

// stream carries one rank's standard output or error from its pipe to the sink and
// the file.
type stream struct {
	number   string // the rank's
	name     string // "stdout" or "stderr"
	from     *os.File
	to       *sink       // nil: nowhere
	file     *os.File    // nil: none
	onErr    func(error) // called once if the file cannot be written
	tail     []byte      // the last bytes, at most twice tailLength
	cut      bool        // there was more before tail
	noThread atomic.Bool // it is standard error, and says that a thread could not be made
	returned bool        // the last byte passed on was a carriage return that ended a line
	left     int         // bytes that the pipe held when the job was over; -1 before
}

func newStream(rank, which int, from, file *os.File, to *sink, onErr func(error)) *stream {
	return &stream{number: strconv.Itoa(rank), name: streamNames[which], from: from, to: to, file: file, onErr: onErr, left: -1}
}

// copy passes everything on until the end of the pipe, or until finish was called
// and the pipe has nothing more to give. A sink or file that is slow slows the rank.
func (s *stream) copy() {
	defer s.close()
	buf := make([]byte, quietBuffer)
	held := 0 // bytes of an unfinished line at the start of buf
	for {
		n, err := s.from.Read(buf[held:])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			n, err = s.drain(buf[held:])
		}
		s.keep(buf[held : held+n])
		full := held+n == len(buf)
		held = s.forward(buf[:held+n], n, err != nil)
		if err != nil {
			return
		}
		if held == len(buf) || full && len(buf) < busyBuffer {
			buf = append(buf, make([]byte, len(buf))...)
		}
	}
}

// forward passes on the lines in b, of which the last n bytes are new, or all of b if
// it is the last or too long to be held, and moves the rest to the start of b. It
// returns the length of that.
func (s *stream) forward(b []byte, n int, last bool) int {
	if s.to == nil {
		return 0
	}
	whole := len(b)
	if !last && !s.to.eager {
		if end := bytes.LastIndexAny(b[len(b)-n:], s.to.ends); end >= 0 {
			whole = len(b) - n + end + 1
		} else {
			// A line of exactly maxLine bytes is whole: its end may be the next byte.
			whole = max(0, len(b)-1) / maxLine * maxLine
		}
	}
	if whole > 0 {
		s.pass(b[:whole])
	}
	return copy(b, b[whole:])
}

// pass gives lines to the sink, in one go.
func (s *stream) pass(b []byte) {
	t := s.to
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return // the job is being stopped for it
	}
	t.out = t.form.add(t.out[:0], s, b, time.Now())
	t.write()
}

// keep writes fresh bytes to the file and remembers the last of them.
func (s *stream) keep(b []byte) {
	if s.file != nil {
		if _, err := s.file.Write(b); err != nil {
			s.onErr(fmt.Errorf("write the output of rank %s: %w; the job was stopped", s.number, err))
			s.file.Close()
			s.file = nil
		}
	}
	if s.name == "stderr" && bytes.Contains(b, noThread) {
		s.noThread.Store(true)
	}
	s.cut = s.cut || len(b) > tailLength
	s.tail = append(s.tail, b[max(0, len(b)-tailLength):]...)
	if len(s.tail) > 2*tailLength {
		s.cut = true
		s.tail = append(s.tail[:0], s.tail[len(s.tail)-tailLength:]...)
	}
}

// lastWords is the end of what the stream carried, from the start of a line if it is
// more than that one.
func (s *stream) lastWords() string {
	words := s.tail[max(0, len(s.tail)-tailLength):]
	if s.cut || len(words) < len(s.tail) {
		if _, rest, ok := bytes.Cut(words, []byte("\n")); ok && len(rest) > 0 {
			words = rest
		}
	}
	return strings.ToValidUTF8(string(words), "\uFFFD")
}

func (s *stream) close() {
	s.from.Close()
	if s.file == nil {
		return
	}
	if err := s.file.Close(); err != nil {
		s.onErr(fmt.Errorf("write the output of rank %s: %w", s.number, err))
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
