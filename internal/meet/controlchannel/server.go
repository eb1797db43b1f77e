package controlchannel

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/softnd/softnd/internal/goruntime"
	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/meet/unixsock"
)

// timeout limits the time of the handshake and of each message of a rank.
const timeout = 5 * time.Second

// maxUnauthenticated limits how many connections may be in the handshake at the same time. If
// programs of the same user open more, ranks have to wait or to connect again.
const maxUnauthenticated = 256

// maxStrangers is that limit for all other users together. Further connections of theirs end at once.
const maxStrangers = 8

// Server is the launcher's end of the control channels of all ranks. It is safe for concurrent use.
type Server struct {
	address   Address
	ranks     int
	file      *os.File
	journal   *os.File // nil = none
	abort     func(rank, code int, reason string)
	listener  *unixsock.Listener
	done      sync.WaitGroup
	slots     chan struct{} // one for each connection in the handshake
	strangers chan struct{} // those of other users

	mu     sync.Mutex
	conns  map[*unixsock.Conn]bool // guarded by mu
	closed bool                    // guarded by mu
	silent map[int]bool            // ranks with a channel that ended without leave or abort; guarded by mu
	left   map[int]bool            // ranks that sent leave; guarded by mu
}

// Listen starts the server of a job. It sends file, and journal unless it is nil, to ranks that request
// it; id is the identity of file. The caller keeps both open until Close. abort is called, from any goroutine, when a
// rank aborts the job; it must not block for long.
func Listen(ranks int, file, journal *os.File, id [2]uint64, abort func(rank, code int, reason string)) (*Server, error) {
	s := &Server{address: newAddress(id), ranks: ranks, file: file, journal: journal, abort: abort, slots: make(chan struct{}, maxUnauthenticated), strangers: make(chan struct{}, maxStrangers),
		conns: make(map[*unixsock.Conn]bool), silent: make(map[int]bool), left: make(map[int]bool)}
	var err error
	if s.listener, err = unixsock.Listen(s.address.socket()); err != nil {
		return nil, err
	}
	s.done.Go(s.accept)
	return s, nil
}

// Address returns the address for the environment of the ranks.
func (s *Server) Address() Address { return s.address }

// Close handles the messages that ranks have already sent, and closes all connections. It returns the
// ranks that did not end in good order: a channel ended without leave or abort, and no other channel of
// the rank with leave. (A rank that tries to join again is refused, and that channel ends without
// leave.) Close is called when the ranks have ended.
func (s *Server) Close() (silent []int) {
	s.listener.Close()
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		_ = c.CloseRead() // fails only if it is already closed
	}
	s.mu.Unlock()
	s.done.Wait()
	for rank := range s.ranks {
		if s.silent[rank] && !s.left[rank] {
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
			time.Sleep(timeout / 100) // out of descriptors: try again later
			continue
		}
		slots := s.slots
		if user, err := linux.PeerUser(c); err != nil || user != uint32(os.Geteuid()) {
			slots = s.strangers
			if len(slots) == cap(slots) { // they must not keep out the ranks; no other goroutine adds one
				c.Close()
				continue
			}
		}
		s.mu.Lock()
		s.conns[c] = true
		if s.closed {
			_ = c.CloseRead()
		}
		s.mu.Unlock()
		slots <- struct{}{}
		s.done.Go(func() {
			rank, ok := s.handshake(c)
			<-slots
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

// handshake answers a hello and returns the rank that sent it.
func (s *Server) handshake(c *unixsock.Conn) (rank int, ok bool) {
	_ = c.SetDeadline(time.Now().Add(timeout))
	user, err := linux.PeerUser(c)
	if err != nil {
		return 0, false
	}
	r, err := receive(c) // even if it will be refused: closing with unread data would discard the refusal
	if err != nil {
		return 0, false
	}
	refuse := func(why string) (int, bool) {
		_ = send(c, message{Kind: refusal, Text: why}) // the peer may have closed the connection
		return 0, false
	}
	own := uint32(os.Geteuid())
	switch {
	case user != own:
		return refuse(fmt.Sprintf("the job belongs to user %d, this process runs as user %d", own, user))
	case r.Kind != hello || r.Version != version:
		return refuse(fmt.Sprintf("the launcher contains softnd %s, this program contains softnd %.60s: arena of another version (control channel versions %d and %d differ): build all programs with one release of softnd",
			goruntime.BuildName(), r.Build, version, r.Version))
	case subtle.ConstantTimeCompare([]byte(r.Secret), []byte(s.address.secret)) != 1:
		return refuse("wrong secret: the address is that of another job")
	case r.Rank < 0 || r.Rank >= s.ranks:
		return refuse(fmt.Sprintf("rank %d does not exist: want 0 to %d", r.Rank, s.ranks-1))
	}
	var files []int
	if r.File {
		files = append(files, int(s.file.Fd()))
	}
	withJournal := r.Journal && s.journal != nil
	if withJournal {
		files = append(files, int(s.journal.Fd()))
	}
	err = send(c, message{Kind: welcome, Journal: withJournal}, files...)
	_ = c.SetDeadline(time.Time{})
	return r.Rank, err == nil
}

// listen handles the messages of a rank until the end of its channel.
func (s *Server) listen(c *unixsock.Conn, rank int) {
	r, err := receive(c)
	switch {
	case err == nil && r.Kind == leave:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.left[rank] = true
	case err == nil && r.Kind == abort:
		s.abort(rank, r.Code, r.Text)
		_ = send(c, message{Kind: welcome})
	default:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.silent[rank] = true
	}
}
