// Package carry is the relay. It joins an arena as a member, and carries connections between local processes and those
// of other hosts. docs/hosts.md has the design, and lists the parts that are missing.
//
// One goroutine, that of Run, does everything but blocking calls. It takes requests out of the rings of local processes,
// sends and receives frames, posts the requests of other hosts, and answers. Its state needs no lock. Goroutines
// that block in calls of connectors hand it functions to run (do).
package carry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/relay/internal/fabric"
	"github.com/softnd/softnd/relay/internal/frame"
	"github.com/softnd/softnd/relay/internal/handshake"
	"github.com/softnd/softnd/shm"
)

// Sizes of a relay.
const (
	bufferSize   = 16 << 10 // of a frame
	maxPayload   = bufferSize - frame.HeaderSize
	linkWindow   = 128     // receive buffers for each link
	sendBuffers  = 256     // of all links
	maxLinks     = 16      // receive buffers are posted when the relay starts
	stagingSize  = 1 << 20 // of a tunnel and direction; the limit of a request, too
	tunnelDepth  = 256     // requests in flight in each direction of a tunnel: the ring of a peer has no more entries
	maxTunnels   = 65536 / tunnelDepth
	spinBudget   = 16 // rounds before Run yields; each polls libfabric, which takes microseconds
	entriesATurn = 16 // ring entries that one tunnel forwards before the next has its turn
)

// Config is the configuration of a relay.
type Config struct {
	Arena     *shm.Arena
	Handshake handshake.Config // without Address
	Provider  string           // libfabric's name
	Node      string           // local address for libfabric
	Keepalive time.Duration    // a link without a sign of life for this long has failed; 0 means 5 s
	Logf      func(format string, args ...any)

	// ReceiveTimeout is how long a Send of another host waits for a Receive here, as endpoint.Options has it.
	ReceiveTimeout time.Duration

	// Deliver returns the local listener for a port that another host asks for. It may be nil.
	Deliver func(port uint16) (netip.AddrPort, bool)
}

// Relay is a member of an arena that carries connections. Its exported methods are safe for concurrent use.
type Relay struct {
	config   Config
	member   *shm.Member
	self     *shm.Peer
	provider *endpoint.Provider
	adapter  nd.Adapter
	results  nd.CompletionQueue // of the requests that relays post for other hosts
	unused   nd.CompletionQueue // of receives, of which there are none
	fabric   *fabric.Endpoint
	waitFD   int // of fabric
	stopFD   int // an eventfd that ends the sleep of watchFabric

	ctx    context.Context // of calls that block
	cancel context.CancelFunc
	calls  sync.WaitGroup

	mu    sync.Mutex
	queue []func() // for Run

	hasQueued atomic.Bool
	closed    atomic.Bool

	// State of Run.
	links    map[uint64]*link // by the session number of their frames
	tunnels  [maxTunnels]*tunnel
	made     uint64                                   // tunnels so far
	senders  [maxLinks*linkWindow + sendBuffers]*link // that has used a buffer last
	received [32]fabric.Received
	polled   [64]nd.Result
	strays   int // frames of no session
	watch    chan struct{}
	watching atomic.Bool
	checkAt  time.Time
}

// New makes a relay a member of the arena. Run makes it work.
func New(ctx context.Context, config Config) (*Relay, error) {
	if config.Keepalive == 0 {
		config.Keepalive = 5 * time.Second
	}
	r := &Relay{config: config, links: make(map[uint64]*link), watch: make(chan struct{}, 1)}
	r.ctx, r.cancel = context.WithCancel(ctx)
	var err error
	if r.stopFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		r.cancel()
		return nil, fmt.Errorf("start relay: eventfd: %w", err)
	}
	if err := r.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("start relay: %w", err), r.Close())
	}
	return r, nil
}

// open opens what a relay needs. If it fails, Close closes what was opened.
func (r *Relay) open() (err error) {
	config := &r.config
	if r.fabric, err = fabric.Open(fabric.Config{Provider: config.Provider, Node: config.Node, Size: bufferSize, Receives: maxLinks * linkWindow, Sends: sendBuffers}); err != nil {
		return err
	}
	if config.Handshake.Address, err = r.fabric.Address(); err != nil {
		return err
	}
	if r.waitFD, err = r.fabric.WaitDescriptor(); err != nil {
		return err
	}
	if r.member, err = config.Arena.Join(shm.NoRank); err != nil {
		return err
	}
	if r.self, err = config.Arena.Peer(r.member.ID()); err != nil {
		return err
	}
	if r.provider, err = endpoint.New(r.member, endpoint.Options{Forward: true, ReceiveTimeout: config.ReceiveTimeout, SpinBudget: spinBudget}); err != nil {
		return err
	}
	id, err := r.provider.ResolveAddress(r.Address())
	if err != nil {
		return err
	}
	if r.adapter, err = r.provider.OpenAdapter(r.ctx, id); err != nil {
		return err
	}
	if r.results, err = r.adapter.CreateCompletionQueue(r.ctx, maxTunnels*tunnelDepth); err != nil {
		return err
	}
	r.unused, err = r.adapter.CreateCompletionQueue(r.ctx, 1)
	return err
}

// Address returns the address of the relay in its arena.
func (r *Relay) Address() netip.Addr { return endpoint.Address(r.member.ID()) }

// Run carries connections until the context of New ends or Close is called.
func (r *Relay) Run() error {
	r.calls.Go(r.watchFabric)
	call := statuspage.Call{Op: "relay"}
	for {
		if err := r.provider.WaitFor(r.ctx, call, r.step); err != nil {
			r.cancel()
			for _, l := range r.links {
				l.fail(errors.New("the relay ends"))
			}
			return err
		}
	}
}

// Close ends all connections and leaves the arena. Run has to return first.
func (r *Relay) Close() error {
	r.closed.Store(true)
	r.cancel()
	_, err := unix.Write(r.stopFD, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	errs := []error{err}
	if r.provider != nil {
		errs = append(errs, r.provider.Close())
	}
	r.calls.Wait()
	errs = append(errs, unix.Close(r.stopFD))
	if r.member != nil {
		errs = append(errs, r.member.Leave())
	}
	if r.fabric != nil {
		r.fabric.Close()
	}
	return errors.Join(errs...)
}

// do lets Run call f.
func (r *Relay) do(f func()) {
	r.mu.Lock()
	r.queue = append(r.queue, f)
	r.hasQueued.Store(true)
	r.mu.Unlock()
	r.wake()
}

// wake ends the sleep of Run.
func (r *Relay) wake() {
	if !r.closed.Load() {
		r.self.Wake()
	}
}

// step does all there is to do at the moment, and reports whether there was anything.
func (r *Relay) step() (worked bool) {
	if r.hasQueued.Load() {
		worked = r.runQueued()
	}
	worked = r.pollFabric() || worked
	for n := len(r.polled); n == len(r.polled); {
		n = r.results.Poll(r.polled[:])
		for i := range r.polled[:n] {
			result := &r.polled[i]
			if t := r.tunnels[result.EndpointContext%maxTunnels]; t != nil && t.id == result.EndpointContext {
				t.finish(result)
			}
			worked = true
		}
	}
	for _, l := range r.links {
		worked = l.step() || worked
	}
	if now := time.Now(); now.After(r.checkAt) { // the clock costs as much as a poll of a few rings
		r.checkAt = now.Add(r.config.Keepalive / 8)
		for _, l := range r.links {
			l.checkAlive(now)
		}
	}
	if !worked && r.member.WaitDoorbell().Armed() { // about to sleep
		if !r.fabric.MaySleep() {
			return true
		}
		r.startWatch()
	}
	return worked
}

func (r *Relay) runQueued() bool {
	r.mu.Lock()
	queue := r.queue
	r.queue = nil
	r.hasQueued.Store(false)
	r.mu.Unlock()
	for _, f := range queue {
		f()
	}
	return len(queue) > 0
}

func (r *Relay) pollFabric() bool {
	n, err := r.fabric.Poll(r.received[:])
	r.fabricFailed(err)
	for _, m := range r.received[:n] {
		r.receive(m.Message)
		r.fabricFailed(r.fabric.Repost(m.Buffer))
	}
	return n > 0
}

// fabricFailed ends the link whose frame could not be sent, or all links if the error does not say which one it concerns.
func (r *Relay) fabricFailed(err error) {
	var failed *fabric.Error
	switch {
	case err == nil:
	case errors.As(err, &failed) && failed.Buffer >= 0:
		r.senders[failed.Buffer].fail(err)
	default:
		for _, l := range r.links {
			l.fail(err)
		}
	}
}

// receive handles a message, which may come from anyone.
func (r *Relay) receive(message []byte) {
	var f frame.Frame
	err := f.Decode(message)
	l := r.links[f.Session]
	if l == nil {
		if r.strays++; r.strays == 1 {
			r.config.Logf("relay: a frame without a session was dropped; others are dropped silently")
		}
		return
	}
	if err == nil {
		err = l.handle(&f)
	}
	if err != nil {
		l.fail(fmt.Errorf("frame %v of host %d: %w", f.Kind, l.session.Host, err))
	}
}

// startWatch makes watchFabric wake Run when a message arrives.
func (r *Relay) startWatch() {
	if r.watching.CompareAndSwap(false, true) {
		r.watch <- struct{}{}
	}
}

// watchFabric sleeps on the descriptor of libfabric, because Run sleeps on the doorbell.
func (r *Relay) watchFabric() {
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-r.watch:
		}
		limit := int(min(r.config.Keepalive/8, time.Second).Milliseconds()) + 1 // Run has to check the links from time to time
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(r.waitFD), Events: unix.POLLIN}, {Fd: int32(r.stopFD), Events: unix.POLLIN}}, limit)
		r.watching.Store(false)
		r.wake()
	}
}

// Link adds a link to another relay, with which the handshake on conn has succeeded. conn belongs to the relay then.
func (r *Relay) Link(conn net.Conn, session *handshake.Session) {
	r.calls.Go(func() {
		<-r.ctx.Done()
		conn.Close()
	})
	r.do(func() { r.addLink(conn, session) })
}

// HandshakeConfig returns the configuration for handshakes of this relay.
func (r *Relay) HandshakeConfig() *handshake.Config { return &r.config.Handshake }
