package jobline

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/softnd/softnd/internal/build"
	"github.com/softnd/softnd/internal/peeruser"
	"github.com/softnd/softnd/internal/unixsock"
)

// patience bounds the time in which who has connected says who it is.
const patience = 5 * time.Second

// maxStrangers is how many connections that have not said who they are a server has at
// a time. Programs of the same user can make more, and ranks then have to ask again.
const maxStrangers = 256

// Server is the launcher's end of all its ranks' lines. Safe for concurrent use.
type Server struct {
	address  Address
	ranks    int
	file     *os.File
	abort    func(rank, code int, reason string)
	listener *unixsock.Listener
	done     sync.WaitGroup
	places   chan struct{} // for strangers

	mu     sync.Mutex
	conns  map[*unixsock.Conn]bool // guarded by mu
	closed bool                    // guarded by mu
	silent map[int]bool            // ranks that have ended without leave or abort; guarded by mu
}

// Listen makes the server of a job. file, which stays the caller's and open as long as
// the server, goes to ranks that ask for it; id is its identity. abort is called, from
// any goroutine, when a rank wants the job to end; it must not block for long.
func Listen(ranks int, file *os.File, id [2]uint64, abort func(rank, code int, reason string)) (*Server, error) {
	s := &Server{address: newAddress(id), ranks: ranks, file: file, abort: abort, places: make(chan struct{}, maxStrangers),
		conns: make(map[*unixsock.Conn]bool), silent: make(map[int]bool)}
	var err error
	if s.listener, err = unixsock.Listen(s.address.socket()); err != nil {
		return nil, err
	}
	s.done.Go(s.accept)
	return s, nil
}

// Address is for the environment of the ranks.
func (s *Server) Address() Address { return s.address }

// Close hangs up, after all that the ranks have said already has been heard, and
// returns the ranks whose line ended without a word. Called when the ranks have ended.
func (s *Server) Close() (silent []int) {
	s.listener.Close()
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		_ = c.CloseRead() // fails only if it is closed already
	}
	s.mu.Unlock()
	s.done.Wait()
	for rank := range s.ranks {
		if s.silent[rank] {
			silent = append(silent, rank)
		}
	}
	return silent
}

func (s *Server) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			if errors.Is(err, os.ErrClosed) {
				return
			}
			time.Sleep(patience / 100) // out of descriptors: wait for some
			continue
		}
		s.mu.Lock()
		s.conns[c] = true
		if s.closed {
			_ = c.CloseRead()
		}
		s.mu.Unlock()
		s.places <- struct{}{}
		s.done.Go(func() {
			rank, ok := s.introduce(c)
			<-s.places
			if ok {
				s.listen(c, rank)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.conns, c)
			c.Close()
		})
	}
}

// introduce answers a hello and returns whose it was.
func (s *Server) introduce(c *unixsock.Conn) (rank int, ok bool) {
	_ = c.SetDeadline(time.Now().Add(patience))
	user, err := peeruser.Of(c)
	if err != nil {
		return 0, false
	}
	r, err := receive(c) // in any case: hanging up on unread words would take the refusal back
	if err != nil {
		return 0, false
	}
	refuse := func(why string) (int, bool) {
		_ = send(c, record{Kind: refusal, Text: why}) // that nobody hears it is the other's loss
		return 0, false
	}
	own := uint32(os.Geteuid())
	switch {
	case user != own:
		return refuse(fmt.Sprintf("the job belongs to user %d, this process runs as user %d", own, user))
	case r.Kind != hello || r.Version != version:
		return refuse(fmt.Sprintf("the launcher contains softnd %s, this program softnd %.60s: they speak versions %d and %d of the job line; build both with one release of softnd",
			build.Name(), r.Build, version, r.Version))
	case subtle.ConstantTimeCompare([]byte(r.Secret), []byte(s.address.secret)) != 1:
		return refuse("the secret is not this job's")
	case r.Rank < 0 || r.Rank >= s.ranks:
		return refuse(fmt.Sprintf("rank %d of a job of %d", r.Rank, s.ranks))
	}
	if r.File {
		err = send(c, record{Kind: welcome}, int(s.file.Fd()))
	} else {
		err = send(c, record{Kind: welcome})
	}
	_ = c.SetDeadline(time.Time{})
	return r.Rank, err == nil
}

// listen hears a rank to the end of its line.
func (s *Server) listen(c *unixsock.Conn, rank int) {
	r, err := receive(c)
	switch {
	case err == nil && r.Kind == leave:
	case err == nil && r.Kind == abort:
		s.abort(rank, r.Code, r.Text)
		_ = send(c, record{Kind: welcome})
	default:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.silent[rank] = true
	}
}
