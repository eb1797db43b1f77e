package launcher

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/meet/unixsock"
)

// maxRights is how many descriptors the kernel accepts in one message (SCM_MAX_FD).
const maxRights = 253

// sender collects messages and open files until flush sends them over a socket.
type sender struct {
	conn  *unixsock.Conn
	bytes []byte
	files []int
	err   error // of the first flush that failed; nothing is sent afterwards
}

// enclose queues files. They are sent no later than the last queued message.
func (s *sender) enclose(files []int) { s.files = append(s.files, files...) }

// failed returns the error of a failed flush, nil if the peer has closed the connection.
func (s *sender) failed() error {
	if errors.Is(s.err, unix.EPIPE) || errors.Is(s.err, unix.ECONNRESET) {
		return nil
	}
	return s.err
}

// flush sends the queued messages and files. It returns the files, which the caller closes. A
// closed connection shows as the end of the peer's messages.
func (s *sender) flush() (files []int) {
	giveUp := time.Now().Add(killTimeout)
	files = s.files
	for left, rest := s.bytes, s.files; len(left) > 0 && s.err == nil; {
		now, rights := left, []byte(nil)
		if len(rest) > 0 {
			rights = unix.UnixRights(rest[:min(len(rest), maxRights)]...)
		}
		if len(rest) > maxRights {
			now = left[:1] // the remaining files must not arrive after the last byte
		}
		n, err := s.conn.Send(now, rights)
		if errors.Is(err, unix.ETOOMANYREFS) && time.Now().Before(giveUp) {
			time.Sleep(killPeriod) // too many files of this user are in flight (RLIMIT_NOFILE); wait until some arrive
			continue
		}
		s.err = err
		left, rest = left[n:], rest[min(len(rest), maxRights):]
	}
	s.bytes, s.files = s.bytes[:0], nil
	return files
}

// receiver reads what a sender has sent. Files can be taken, in their order, as soon as the last
// byte of the message before them has been read.
type receiver struct {
	conn *unixsock.Conn
	oob  []byte

	mu    sync.Mutex
	files []int // guarded by mu
	err   error // why files were lost; guarded by mu
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
		if r.err != nil { // after lost files, the order is unknown
			closeFDs(fds)
			continue
		}
		r.files = append(r.files, fds...)
	}
	if flags&unix.MSG_CTRUNC != 0 && r.err == nil {
		r.err = syscall.EMFILE // the kernel dropped the last ones for want of descriptors
	}
	return n, err
}

// close closes the files that were not taken.
func (r *receiver) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	closeFDs(r.files)
	r.files = nil
}

// take returns the next n files.
func (r *receiver) take(n int) ([]int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.files) < n {
		if r.err == nil {
			r.err = fmt.Errorf("received %d files, want %d", len(r.files), n)
		}
		return nil, r.err
	}
	fds := r.files[:n:n]
	r.files = r.files[n:]
	return fds, nil
}
