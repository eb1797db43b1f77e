package rendezvous

// TWIN c/src/meet/root_service.c, c/src/meet/key_values.c.

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/meet/unixsock"
)

// root is rank 0's side of all connections. Rank 0 connects to it as the others do.
type root struct {
	secret   []byte
	silence  time.Duration // Config.Keepalive
	size     int
	name     string // of the job
	logf     func(format string, args ...any)
	listener *unixsock.Listener
	done     sync.WaitGroup

	mu           sync.Mutex
	strangers    []*unixsock.Conn // in the handshake, in the order of their arrival
	refused      int              // number of strangers
	otherSecrets int              // number of processes with another secret
	closed       bool
	store        map[string]string
	stored       int           // bytes
	ranks        map[int]*peer // that have said hello
	arrived      map[*peer]bool
	leaves       int           // number of ranks that have left
	ending       *End          // why the job has ended
	over         chan struct{} // closed when the job has ended, or all ranks have left
}

// peer is a rank's connection. Its channel is read by one goroutine.
type peer struct {
	*channel
	rank int
	at   netip.AddrPort
	met  bool       // it has made a request, so it has its welcome; for the goroutine that serves it
	left bool       // guarded by root.mu
	out  sync.Mutex // held for a write, which takes writeLimit at most
}

// write sends a message, and closes the connection if the rank does not take it.
func (p *peer) write(m message) {
	p.out.Lock()
	defer p.out.Unlock()
	_ = p.conn.SetWriteDeadline(time.Now().Add(writeLimit)) // fails only if the connection is closed
	if err := p.send(m); err != nil {
		p.conn.Close()
	}
}

// rootOf returns a service without connections.
func rootOf(c Config) *root {
	return &root{secret: c.Secret, silence: c.Keepalive, size: c.Size, name: "root-" + rand.Text(), logf: c.Logf,
		store: make(map[string]string), ranks: make(map[int]*peer), arrived: make(map[*peer]bool), over: make(chan struct{})}
}

func newRoot(c Config) (*root, error) {
	r := rootOf(c)
	l, err := listen(c.Root)
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return nil, fmt.Errorf("%w: give each job a port of its own", err)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return nil, fmt.Errorf("%w: it has to be an address of the host on which rank 0 runs", err)
	case err != nil:
		return nil, err
	}
	if err := hasDescriptors(l); err != nil {
		l.Close()
		return nil, err
	}
	r.listener = l
	r.done.Go(r.accept)
	return r, nil
}

func (r *root) accept() {
	var starved sync.Once
	for {
		conn, err := r.listener.Accept()
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors: try again later
			starved.Do(func() {
				r.logf("rank 0: accept a connection to SOFTND_ROOT: %v; ranks wait until it succeeds", fileError(err))
			})
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if r.admit(conn) {
			r.done.Go(func() { r.serve(conn) })
		}
	}
}

// admit adds a connection to those in the handshake. It ends the oldest of them if there are too many.
func (r *root) admit(conn *unixsock.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		conn.Close()
		return false
	}
	if len(r.strangers) == maxStrangers {
		r.strangers[0].Close()
		r.strangers = slices.Delete(r.strangers, 0, 1)
	}
	r.strangers = append(r.strangers, conn)
	return true
}

// withdraw removes a connection from those in the handshake. The caller holds r.mu.
func (r *root) withdraw(conn *unixsock.Conn) {
	if i := slices.Index(r.strangers, conn); i >= 0 {
		r.strangers = slices.Delete(r.strangers, i, i+1)
	}
}

// serve serves one connection until it ends.
func (r *root) serve(conn *unixsock.Conn) {
	defer conn.Close()
	p, err := r.handshake(conn)
	if p == nil {
		r.mu.Lock()
		r.withdraw(conn)
		r.mu.Unlock()
	}
	if err != nil {
		r.mu.Lock()
		count := &r.refused
		if errors.Is(err, errOtherSecret) { // the user's mistake, which strangers must not hide
			count = &r.otherSecrets
		}
		*count++
		first := *count == 1 && !r.closed
		r.mu.Unlock()
		if first {
			r.logf("rank 0: refused a connection to SOFTND_ROOT from %v: %v; further refusals are only counted", peerAddress(conn), err)
		}
		return
	}
	if p == nil {
		return // refused, and told so
	}
	for {
		m, err := p.receive()
		if err != nil {
			r.lost(p)
			return
		}
		p.met = true
		if p.left && m.Kind != abort { // only this goroutine sets left
			return
		}
		if !r.handle(p, m) {
			return
		}
	}
}

// errOtherSecret is the error of a process that ends the connection when rank 0 has proved that it knows its secret.
var errOtherSecret = errors.New("it ended the connection when rank 0 had proved that it knows the secret: it has another one, or belongs to another job: give all ranks the same secret")

// handshake lets a process prove that it knows the secret, and registers its rank. It returns nil without an error if the
// process knows the secret but cannot be the rank.
func (r *root) handshake(conn *unixsock.Conn) (*peer, error) {
	if err := conn.SetDeadline(time.Now().Add(handshakeLimit)); err != nil {
		return nil, err
	}
	c, err := welcomeStranger(conn, r.secret)
	if err != nil {
		return nil, err
	}
	m, err := c.receive()
	if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
		return nil, errOtherSecret
	}
	if err != nil {
		return nil, err
	}
	if err := tune(conn, r.silence); err != nil {
		return nil, err
	}
	p := &peer{channel: c, rank: m.Rank, at: peerAddress(conn)}
	if r.hasLeft(m.Rank) {
		return nil, nil
	}
	if why := r.register(p, m); why != "" {
		r.logf("rank 0: refused rank %d from %v: %s", m.Rank, p.at, why)
		p.write(message{Kind: refusal, Text: why})
		return nil, nil
	}
	_ = conn.SetReadDeadline(time.Time{}) // fails only if the connection is closed
	p.write(message{Kind: welcome, Text: r.name})
	return p, nil
}

// hasLeft reports whether a rank has left. If it joins again, it has to find the next service at this address: it tries
// again when its connection ends without an answer.
func (r *root) hasLeft(rank int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.ranks[rank]
	return p != nil && p.left
}

// register returns why a process cannot be a rank, "" if it now is one.
func (r *root) register(p *peer, m message) (why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case m.Kind != hello:
		return fmt.Sprintf("its first message is %.20q", m.Kind)
	case m.Size != r.size:
		return fmt.Sprintf("it has %d as the number of ranks, rank 0 has %d: set the same SOFTND_SIZE for all", m.Size, r.size)
	case m.Rank < 0 || m.Rank >= r.size:
		return fmt.Sprintf("the job has ranks 0 to %d", r.size-1)
	case r.ranks[m.Rank] != nil:
		return fmt.Sprintf("a process at %v is this rank already: give each process a number of its own in SOFTND_RANK", r.ranks[m.Rank].at)
	case r.ending != nil || r.closed:
		return "the job has ended"
	}
	r.ranks[m.Rank] = p
	r.withdraw(p.conn) // with the same hold of the lock: a stranger must not displace a rank
	return ""
}

// handle answers a message of a rank. It returns false if nothing more is to come.
func (r *root) handle(p *peer, m message) bool {
	answer := message{Kind: ok}
	switch m.Kind {
	case put:
		if why := r.put(m.Key, m.Value); why != "" {
			answer = message{Kind: refusal, Text: why}
		}
	case get:
		r.mu.Lock()
		v, has := r.store[m.Key]
		r.mu.Unlock()
		if answer = (message{Kind: value, Value: v}); !has {
			answer = message{Kind: refusal, Text: fmt.Sprintf("key %.64q has no value", m.Key)}
		}
	case barrier:
		r.arrive(p)
		return true
	case absent:
		answer = message{Kind: absent, Text: r.absent()}
	case leave:
		r.mu.Lock()
		p.left = true
		r.mu.Unlock()
		p.write(answer) // before the service may end
		r.mu.Lock()
		if r.leaves++; r.leaves == r.size && r.ending == nil {
			close(r.over)
		}
		r.mu.Unlock()
		return true
	case abort:
		p.write(answer)
		r.end(p, End{Rank: p.rank, Code: min(max(m.Code, 1), 255), Text: m.Text[:min(len(m.Text), maxReason)]})
		return false
	default:
		answer = message{Kind: refusal, Text: fmt.Sprintf("unknown message %.20q", m.Kind)}
	}
	p.write(answer)
	return true
}

// put stores a value, and returns why it cannot.
func (r *root) put(key, value string) (why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, has := r.store[key]
	switch {
	case key == "" || len(key) > maxKey || len(value) > maxValue:
		return fmt.Sprintf("a key has 1 to %d bytes, and a value at most %d", maxKey, maxValue)
	case has:
		return fmt.Sprintf("key %s has a value already", key)
	case r.stored+len(key)+len(value) > maxStored:
		return fmt.Sprintf("the job has %d bytes of keys and values already", r.stored)
	}
	r.store[key] = value
	r.stored += len(key) + len(value)
	return ""
}

// arrive records that a rank has reached the barrier. The last one releases all.
func (r *root) arrive(p *peer) {
	r.mu.Lock()
	r.arrived[p] = true
	var released map[*peer]bool
	if len(r.arrived) == r.size {
		released, r.arrived = r.arrived, make(map[*peer]bool)
	}
	r.mu.Unlock()
	for p := range released {
		p.write(message{Kind: ok})
	}
}

// absent returns the names of the ranks that have not reached the barrier.
func (r *root) absent() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	const most = 8
	var names []string
	for rank := range r.size {
		if p := r.ranks[rank]; p == nil || !r.arrived[p] {
			names = append(names, fmt.Sprintf("rank %d", rank))
		}
	}
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// lost handles the end of a connection: the rank has died, unless it has left. Before its first request it may not have
// got its welcome in time, and tries again.
func (r *root) lost(p *peer) {
	r.mu.Lock()
	ended := p.left || r.closed
	if !p.met && !ended {
		delete(r.ranks, p.rank)
		ended = true
	}
	r.mu.Unlock()
	if !ended {
		r.end(p, End{Rank: p.rank, Text: fmt.Sprintf("rank %d (at %v) has died, or has ended without leaving the job", p.rank, p.at.Addr())})
	}
}

// end tells all ranks but from that the job ends, rank 0 last: its process ends then, and this goroutine with it. When rank 0 leaves,
// the end of the service comes after that.
func (r *root) end(from *peer, e End) {
	r.mu.Lock()
	if r.ending != nil || r.leaves == r.size {
		r.mu.Unlock()
		return
	}
	r.ending = &e
	var others []*peer
	for rank := r.size - 1; rank >= 0; rank-- {
		if p := r.ranks[rank]; p != nil && p != from && !p.left {
			others = append(others, p)
		}
	}
	r.mu.Unlock()
	for _, p := range others {
		p.write(message{Kind: end, Rank: e.Rank, Code: e.Code, Text: e.Text})
	}
	close(r.over)
}

// wait blocks until all ranks have left. Its error is the end of the job if one of them has ended it.
func (r *root) wait() error {
	<-r.over
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ending != nil {
		return *r.ending
	}
	return nil
}

// close ends the service.
func (r *root) close() error {
	r.mu.Lock()
	r.closed = true
	conns := slices.Clone(r.strangers)
	for _, p := range r.ranks {
		conns = append(conns, p.conn)
	}
	r.mu.Unlock()
	for _, conn := range conns {
		conn.Close()
	}
	err := r.listener.Close()
	r.done.Wait()
	return err
}
