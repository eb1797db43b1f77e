package launcher

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/unixsock"
)

// maxRights is how many files the kernel lets travel at once.
const maxRights = 253

// sender collects what is to be sent over a socket, with open files, until flush.
type sender struct {
	conn  *unixsock.Conn
	bytes []byte
	files []int
	err   error // of the first flush that failed; nothing is sent after it
}

// enclose has files sent no later than the message that was put last.
func (s *sender) enclose(files []int) { s.files = append(s.files, files...) }

// failed returns why nothing can be sent any more, other than that the other side has gone.
func (s *sender) failed() error {
	if errors.Is(s.err, unix.EPIPE) || errors.Is(s.err, unix.ECONNRESET) {
		return nil
	}
	return s.err
}

// flush sends, and returns the files that are the sender's alone from now on. That the
// other side has gone shows as the end of what it says.
func (s *sender) flush() (files []int) {
	giveUp := time.Now().Add(patience)
	files = s.files
	for left, rest := s.bytes, s.files; len(left) > 0 && s.err == nil; {
		now, rights := left, []byte(nil)
		if len(rest) > 0 {
			rights = unix.UnixRights(rest[:min(len(rest), maxRights)]...)
		}
		if len(rest) > maxRights {
			now = left[:1] // those behind must not come after the last byte
		}
		n, err := s.conn.Send(now, rights)
		if errors.Is(err, unix.ETOOMANYREFS) && time.Now().Before(giveUp) {
			time.Sleep(killPeriod) // the user has too many files on their way, which will arrive
			continue
		}
		s.err = err
		left, rest = left[n:], rest[min(len(rest), maxRights):]
	}
	s.bytes, s.files = s.bytes[:0], nil
	return files
}

// receiver reads what a sender has sent. The files that came along can be taken, in their
// order, as soon as the last byte that was written before them has been read.
type receiver struct {
	conn *unixsock.Conn
	oob  []byte

	mu    sync.Mutex
	files []int // guarded by mu
	err   error // files were lost; guarded by mu
}

func (r *receiver) Read(p []byte) (int, error) {
	if r.oob == nil {
		r.oob = make([]byte, unix.CmsgSpace(4*maxRights))
	}
	n, oobn, flags, err := r.conn.Receive(p, r.oob)
	if err != nil || oobn == 0 && flags&unix.MSG_CTRUNC == 0 {
		return n, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	messages, err := unix.ParseSocketControlMessage(r.oob[:oobn])
	for i := range messages {
		fds, rightsErr := unix.ParseUnixRights(&messages[i])
		err = errors.Join(err, rightsErr)
		if r.err != nil { // they are not the next ones
			closeFDs(fds)
			continue
		}
		r.files = append(r.files, fds...)
	}
	if flags&unix.MSG_CTRUNC != 0 && r.err == nil {
		r.err = syscall.EMFILE // the kernel has closed those for which there was no room, the last ones
	}
	return n, err
}

// close closes the files that nobody has taken.
func (r *receiver) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	closeFDs(r.files)
	r.files = nil
}

// take takes the next n files.
func (r *receiver) take(n int) ([]int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.files) < n {
		if r.err == nil {
			r.err = fmt.Errorf("%d files instead of %d have come", len(r.files), n)
		}
		return nil, r.err
	}
	fds := r.files[:n:n]
	r.files = r.files[n:]
	return fds, nil
}
