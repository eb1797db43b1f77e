package proctest

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"time"
)

// Log collects the output of a process. It can be the writer of an [os/exec.Cmd].
type Log struct {
	mu     sync.Mutex
	b      bytes.Buffer
	heard  int           // bytes that next has returned
	more   chan struct{} // has an element if bytes came
	closed chan struct{}
}

func newLog() *Log { return &Log{more: make(chan struct{}, 1), closed: make(chan struct{})} }

// Write adds output.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	return l.b.Write(p)
}

// String returns all output.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// collect adds all that can be read from r.
func (l *Log) collect(r io.Reader) {
	defer close(l.closed)
	_, _ = io.Copy(l, r) // reap closes a pipe that a descendant of the process keeps open
}

// next waits for the next line. It returns false at the end of the output, or if the process must have ended.
func (l *Log) next() (line string, ok bool) {
	late := time.After(lifetime + 3*grace)
	for over := false; ; {
		if line, ok = l.cut(); ok || over {
			return line, ok
		}
		select {
		case <-l.more:
		case <-l.closed:
			over = true
		case <-late:
			over = true
		}
	}
}

func (l *Log) cut() (line string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line, _, ok = strings.Cut(string(l.b.Bytes()[l.heard:]), "\n")
	if ok {
		l.heard += len(line) + 1
	}
	return line, ok
}
