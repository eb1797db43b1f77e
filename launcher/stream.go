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

// maxLine is the maximum length of a line. Longer lines are written in parts of that length, each
// as a line of its own. Otherwise a rank that never ends its line would take all memory or block
// the others.
const maxLine = 1 << 20

// quietBuffer is the initial buffer size of a stream: most ranks write little. It grows to
// busyBuffer, the capacity of a pipe, if the rank writes faster than the stream reads.
const (
	quietBuffer = 512
	busyBuffer  = 64 << 10
)

// tailLength is how many bytes of a stream are kept for the report.
const tailLength = 2 << 10

// stream copies a rank's standard output or error from its pipe to the sink and to the file.
type stream struct {
	number   string // the rank's
	name     string // "stdout" or "stderr"
	from     *os.File
	to       *sink        // nil: nowhere
	file     *os.File     // nil: none
	stored   atomic.Int64 // completed writes to file
	onErr    func(error)  // called if the file cannot be written
	tail     []byte       // the last bytes, at most twice tailLength
	cut      bool         // bytes before tail were dropped
	noThread atomic.Bool  // standard error has a message that a thread could not be created
	returned bool         // the last byte written was a carriage return that ended a line
	left     int          // bytes still to be read from the pipe after finish; -1 before
}

func newStream(rank, which int, from, file *os.File, to *sink, onErr func(error)) *stream {
	return &stream{number: strconv.Itoa(rank), name: streamNames[which], from: from, to: to, file: file, onErr: onErr, left: -1}
}

// copy copies until the end of the pipe, or until finish was called and the pipe is drained. A
// slow sink or file slows down the rank.
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

// forward passes the complete lines in b to the sink and moves the rest to the start of b. It
// returns the length of the rest. The last n bytes of b are new. If last is set, or if the rest
// exceeds maxLine, it passes incomplete lines too.
func (s *stream) forward(b []byte, n int, last bool) int {
	if s.to == nil {
		return 0
	}
	whole := len(b)
	if !last && !s.to.eager {
		if end := bytes.LastIndexAny(b[len(b)-n:], s.to.ends); end >= 0 {
			whole = len(b) - n + end + 1
		} else {
			// A line of exactly maxLine bytes is complete: its end may be the next byte.
			whole = max(0, len(b)-1) / maxLine * maxLine
		}
	}
	if whole > 0 {
		s.pass(b[:whole])
	}
	return copy(b, b[whole:])
}

// pass writes lines to the sink, with no lines of other streams between them.
func (s *stream) pass(b []byte) {
	t := s.to
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return // the job is being stopped because of it
	}
	t.out = t.format.add(t.out[:0], s, b, time.Now())
	t.write()
}

// keep writes new bytes to the file and keeps the last bytes for the report.
func (s *stream) keep(b []byte) {
	if s.file != nil {
		if _, err := s.file.Write(b); err != nil {
			s.onErr(fmt.Errorf("write output file of rank %s: %w: the job was stopped", s.number, err))
			s.file.Close()
			s.file = nil
		} else {
			s.stored.Add(1)
		}
	}
	if s.name == "stderr" && noThread(b) {
		s.noThread.Store(true)
	}
	s.cut = s.cut || len(b) > tailLength
	s.tail = append(s.tail, b[max(0, len(b)-tailLength):]...)
	if len(s.tail) > 2*tailLength {
		s.cut = true
		s.tail = append(s.tail[:0], s.tail[len(s.tail)-tailLength:]...)
	}
}

// tailText returns the end of the stream's output. If bytes are missing, it begins at the start
// of a line when possible.
func (s *stream) tailText() string {
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
		s.onErr(fmt.Errorf("close output file of rank %s: %w", s.number, err))
	}
}

// finish makes copy return after it has drained the pipe. The job has ended; if a writing end is
// still open, a process outside of the job has it.
func (s *stream) finish() { _ = s.from.SetReadDeadline(time.Now()) }

// drain reads, without blocking, the bytes that were in the pipe when drain was first called, and
// then returns [io.EOF]. A process outside of the job may go on writing forever.
func (s *stream) drain(p []byte) (n int, err error) {
	// A file whose deadline has passed refuses any use.
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
