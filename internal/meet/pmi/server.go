package pmi

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/softnd/softnd/internal/meet/unixsock"
)

// Server serves PMI to one job whose ranks all run on this host. Its methods are safe for
// concurrent use. It identifies ranks by their sockets and trusts no rank's claims about another
// rank.
type Server struct {
	size    int
	name    string // of the job's own key-value store
	notices Notices

	mu      sync.Mutex
	stores  *stores
	clients []*client // by rank
	waiting int       // ranks in the barrier
}

// Notices are callbacks of a server. They are called from goroutines of the server and must not
// call the server.
type Notices struct {
	// Abort is called when the job must end with this exit code, at most once for each rank.
	Abort func(rank, code int, reason string)
	// Refused is called when a rank has sent an unsupported request.
	Refused func(rank int, what string)
	// AppNum returns the number of a rank's program among those of the job. nil means 0 for all.
	AppNum func(rank int) int
}

// client is the server's state of a rank. Guarded by Server.mu, except conn and done.
type client struct {
	rank      int
	conn      *unixsock.Conn
	done      chan struct{} // closed when reading has ended
	begun     bool          // init received
	finalized bool
	aborted   bool
	waits     bool // it waits in the barrier
	gone      bool // its connection has ended
	broken    error
}

// NewServer returns the server of a job of size ranks. name is the name of the job's key-value
// store, 1 to 256 printable characters.
func NewServer(size int, name string, notices Notices) *Server {
	s := &Server{size: size, name: name, notices: notices, stores: newStores(name), clients: make([]*client, size)}
	// All ranks are on one node. MPICH uses shared memory if it finds this value.
	if err := s.stores.put(name, "PMI_process_mapping", fmt.Sprintf("(vector,(0,1,%d))", size)); err != nil {
		panic(err) // cannot happen: the store is empty
	}
	return s
}

// Serve answers the requests of a rank on conn, in the background, until the rank closes the
// connection or [Server.Ended] is called. It takes ownership of conn. It is called once for each
// rank.
func (s *Server) Serve(rank int, conn *unixsock.Conn) {
	c := &client{rank: rank, conn: conn, done: make(chan struct{})}
	atEnd := conn.AtEnd() // a program that does not use PMI and has exited already
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients[rank] = c
	if atEnd {
		conn.Close()
		close(c.done)
		c.gone = true
		if s.waiting > 0 {
			go s.releaseBarrierLocked()
		}
		return
	}
	go func() {
		defer close(c.done)
		defer conn.Close()
		err := s.serveRequests(c)
		s.mu.Lock()
		defer s.mu.Unlock()
		if !errors.Is(err, io.EOF) {
			c.broken = err
		}
		c.gone = true
		s.releaseBarrier()
	}()
}

// releaseBarrierLocked calls releaseBarrier with mu held.
func (s *Server) releaseBarrierLocked() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseBarrier()
}

// Ended is called when the rank's process has exited. It handles the remaining requests of the
// rank and returns an error if the rank sent init and not finalize, or a malformed request. It
// returns nil for a rank that did not use PMI.
func (s *Server) Ended(rank int) error {
	s.mu.Lock()
	c := s.clients[rank]
	s.mu.Unlock()
	if c == nil {
		return nil
	}
	// Reads continue to the end of the data that was sent, and then do not wait for other
	// processes that have inherited the rank's socket. Writes fail at once. Errors mean that conn
	// is closed.
	_ = c.conn.CloseRead()
	_ = c.conn.SetWriteDeadline(time.Unix(1, 0))
	<-c.done
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case c.broken != nil:
		return fmt.Errorf("it sent a malformed PMI request: %w", c.broken)
	case c.begun && !c.finalized && !c.aborted:
		return errors.New("it sent PMI init and exited without PMI finalize (in MPI, without MPI_Finalize)")
	}
	return nil
}

// serveRequests answers requests until the client closes the connection (io.EOF) or sends a
// malformed one.
func (s *Server) serveRequests(c *client) error {
	r := bufio.NewReaderSize(c.conn, maxLine)
	for {
		line, err := readLine(r)
		if err != nil {
			return err
		}
		m, err := parse(line)
		if err != nil {
			s.send(c, format("error", "rc", "-1", "msg", sentence(err.Error())))
			return fmt.Errorf("%w: %.80q", err, line)
		}
		if m.command == "mcmd=spawn" {
			if err := skipSpawn(r); err != nil {
				return err
			}
		}
		s.mu.Lock()
		reply := s.answer(c, m)
		s.mu.Unlock()
		s.send(c, reply)
	}
}

// skipSpawn reads the rest of a request to spawn processes, whose lines are not commands. The
// last line is endcmd.
func skipSpawn(r *bufio.Reader) error {
	for range maxSpawn {
		line, err := readLine(r)
		if err != nil {
			return err
		}
		if line == "endcmd" {
			return nil
		}
	}
	return fmt.Errorf("spawn request has more than %d lines", maxSpawn)
}

// send sends an answer. A closed connection shows as the end of the client's requests.
func (s *Server) send(c *client, reply string) {
	if reply != "" {
		_, _ = io.WriteString(c.conn, reply)
	}
}

// releaseBarrier releases the ranks from the barrier if all have entered it. If a missing rank
// will not enter it, the ranks get an error and the job is aborted. Called with mu held.
func (s *Server) releaseBarrier() {
	if s.waiting == 0 {
		return
	}
	reply, reason := format("barrier_out", "rc", "0"), ""
	if s.waiting < s.size {
		missing := s.missing()
		if missing < 0 {
			return
		}
		reply = format("barrier_out", "rc", "-1", "msg", fmt.Sprintf("rank_%d_has_gone", missing))
		reason = fmt.Sprintf("waits in a PMI barrier for rank %d, which has exited or finalized PMI", missing)
	}
	for _, c := range s.clients {
		if c == nil || !c.waits {
			continue
		}
		c.waits = false
		if reason != "" && !c.gone {
			s.abort(c, 1, reason)
		}
		go s.send(c, reply) // a client that does not read its answers must not delay others
	}
	s.waiting = 0
}

// missing returns a rank that is not in the barrier and will not enter it; -1 if there is none.
func (s *Server) missing() int {
	for rank, c := range s.clients {
		if c != nil && !c.waits && (c.gone || c.finalized) {
			return rank
		}
	}
	return -1
}

func (s *Server) abort(c *client, code int, reason string) {
	if !c.aborted {
		c.aborted = true
		s.notices.Abort(c.rank, code, reason)
	}
}

// answer executes one request and returns the line to be sent; "" means none. Called with mu
// held.
func (s *Server) answer(c *client, m message) string {
	refuse := func(reply, why string, more ...string) string {
		return format(reply, append([]string{"rc", "-1", "msg", sentence(why)}, more...)...)
	}
	if m.command == "init" {
		if c.begun {
			return refuse("response_to_init", "init was said before")
		}
		if m.values["pmi_version"] != "1" {
			return refuse("response_to_init", "this launcher speaks version 1", "pmi_version", "1", "pmi_subversion", "1")
		}
		c.begun = true
		return format("response_to_init", "pmi_version", "1", "pmi_subversion", "1", "rc", "0")
	}
	if !c.begun || c.finalized {
		return refuse("error", "the command comes before init or after finalize")
	}
	switch m.command {
	case "get_maxes":
		return format("maxes", "rc", "0", "kvsname_max", strconv.Itoa(maxName), "keylen_max", strconv.Itoa(maxKey), "vallen_max", strconv.Itoa(maxValue))
	case "get_appnum":
		number := 0
		if s.notices.AppNum != nil {
			number = s.notices.AppNum(c.rank)
		}
		return format("appnum", "rc", "0", "appnum", strconv.Itoa(number))
	case "get_universe_size":
		return format("universe_size", "rc", "0", "size", strconv.Itoa(s.size))
	case "get_my_kvsname":
		return format("my_kvsname", "rc", "0", "kvsname", s.name)
	case "barrier_in":
		if c.waits {
			return refuse("barrier_out", "this rank is in the barrier already")
		}
		c.waits = true
		s.waiting++
		s.releaseBarrier()
		return ""
	case "finalize":
		c.finalized = true
		s.releaseBarrier()
		return format("finalize_ack", "rc", "0")
	case "abort":
		code, err := strconv.Atoi(m.values["exitcode"])
		if err != nil {
			code = 1
		}
		s.abort(c, code, "")
		return ""
	case "mcmd=spawn":
		s.notices.Refused(c.rank, "spawn processes (mcmd=spawn, MPI_Comm_spawn): start all ranks with -n")
		return refuse("spawn_result", "this launcher starts no more processes in a job")
	case "publish_name", "unpublish_name", "lookup_name":
		s.notices.Refused(c.rank, "name service ("+m.command+"): names would have to outlive the job")
		reply := map[string]string{"publish_name": "publish_result", "unpublish_name": "unpublish_result", "lookup_name": "lookup_result"}[m.command]
		return refuse(reply, "this launcher keeps no names", "info", "fail")
	}
	return s.answerStore(c, m, refuse)
}

// answerStore executes a request about keys and values.
func (s *Server) answerStore(c *client, m message, refuse func(reply, why string, more ...string) string) string {
	name := m.values["kvsname"]
	switch m.command {
	case "put":
		if err := s.stores.put(name, m.values["key"], m.values["value"]); err != nil {
			return refuse("put_result", err.Error())
		}
		return format("put_result", "rc", "0")
	case "get":
		value, err := s.stores.get(name, m.values["key"])
		if err != nil {
			return refuse("get_result", err.Error())
		}
		return format("get_result", "rc", "0", "value", value)
	case "getbyidx":
		index, err := strconv.Atoi(m.values["idx"])
		if err != nil {
			return refuse("getbyidx_results", "idx is no number")
		}
		key, value, err := s.stores.at(name, index)
		if err != nil {
			return format("getbyidx_results", "rc", "-2", "reason", sentence(err.Error()))
		}
		return format("getbyidx_results", "rc", "0", "nextidx", strconv.Itoa(index+1), "key", key, "val", value)
	case "create_kvs":
		made, err := s.stores.create(s.name)
		if err != nil {
			return refuse("newkvs", err.Error())
		}
		return format("newkvs", "rc", "0", "kvsname", made)
	case "destroy_kvs":
		if err := s.stores.destroy(s.name, name); err != nil {
			return refuse("kvs_destroyed", err.Error())
		}
		return format("kvs_destroyed", "rc", "0")
	}
	s.notices.Refused(c.rank, fmt.Sprintf("unknown command %.40q", m.command))
	return refuse("error", "this launcher does not know the command")
}
