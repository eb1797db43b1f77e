// Package relay is the relay. It joins an arena as a member, and carries connections between local processes and those
// of other hosts. docs/hosts.md has the design.
//
// One goroutine, that of Run, does everything but blocking calls. It takes requests out of the rings of local processes,
// sends and receives frames, posts the requests of other hosts, and answers. Its state needs no lock. Goroutines
// that block in calls of connectors hand it functions to run (do).
package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/internal/meet/relayclient"
	"github.com/softnd/softnd/internal/relayhook"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/relay/internal/frame"
	"github.com/softnd/softnd/relay/internal/handshake"
	"github.com/softnd/softnd/relay/internal/ofi"
	"github.com/softnd/softnd/shm"
)

// Sizes of a relay.
const (
	maxPayload   = 64 << 10 // of a frame; a change needs another handshake.Version
	bufferSize   = maxPayload + frame.HeaderSize + frame.MaxTrailer
	linkWindow   = 32 // receive buffers for each link
	maxLinks     = MaxHosts - 1
	sendBuffers  = maxLinks * linkWindow  // so that a host that has stopped takes none of those of other links
	tunnelDepth  = 32                     // requests in flight in each direction of a tunnel
	maxTunnels   = 65536 / tunnelDepth    // a completion queue has no more entries
	framesATurn  = 4                      // with data of one tunnel, before the next tunnel has its turn
	leastPart    = 4 << 10                // of a request that the other relay cannot hold: less is not worth a frame
	pollGap      = 100 * time.Microsecond // of a provider without a descriptor to wait for, while the relay is idle
	shortDelay   = 8                      // turns of a tunnel for which a Done of a Send waits for a frame that can carry it
	longDelay    = 64                     // the same if the process has answered the Send before soon enough
	maxDelay     = 200 * time.Microsecond // of a Done, if other processes use the core
	entriesATurn = 16                     // ring entries that one tunnel forwards before the next has its turn
)

// MaxHosts is the number of hosts that a job can have.
const MaxHosts = 17

// Config is the configuration of a relay.
type Config struct {
	Arena     *shm.Arena
	Handshake handshake.Config // without Address and Host
	Provider  string           // libfabric's name
	Node      string           // local address for libfabric
	Keepalive time.Duration    // a link without a sign of life for this long has failed; 0 means 5 s
	Logf      func(format string, args ...any)

	// ReceiveTimeout is how long a Send of another host waits for a Receive here, as endpoint.Options has it.
	ReceiveTimeout time.Duration

	// Pack is the number of bytes of the longest pack of an Exchange. Answer is called with the answers to [Relay.Call]. It must not
	// block. It may be nil if there is no call.
	Pack   uint64
	Answer func(relayclient.Answer)

	// Linked is called when a link to a host is up, and with an error when it has ended. It must not block. It may be nil.
	Linked func(host uint16, err error)

	noDescriptor bool // for tests: as if the provider had none
}

// Relay is a member of an arena that carries connections. Its exported methods are safe for concurrent use.
type Relay struct {
	config   Config
	member   *shm.Member
	self     *shm.Peer
	provider *endpoint.Provider
	adapter  relayhook.Adapter
	results  nd.CompletionQueue // of the requests that relays post for other hosts
	unused   nd.CompletionQueue // of receives, of which there are none
	others   relayhook.Listener // of requests of local processes for other hosts
	spare    nd.Connector       // for the next of them
	ofi      *ofi.Endpoint
	waitFD   int // of ofi; -1 = it has none
	stopFD   int // an eventfd that ends the sleep of watchOFI

	ctx    context.Context // of calls that block
	cancel context.CancelFunc
	calls  sync.WaitGroup

	mu    sync.Mutex
	queue []func() // for Run

	hasQueued atomic.Bool
	closed    atomic.Bool

	// State of Run.
	links          map[uint64]*link // by the session number of their frames
	collective     collective       // calls of all hosts
	tunnels        [maxTunnels]*tunnel
	enlarged       int                                      // tunnels with a large room
	made           uint64                                   // tunnels so far
	senders        [maxLinks*linkWindow + sendBuffers]*link // that has used a buffer last
	received       [32]ofi.Received
	polled         [64]nd.Result
	unknownSession int  // frames of no session
	failedReceives int  // receives that have failed
	lost           bool // a link has ended
	watch          chan struct{}
	watching       atomic.Bool
	now            time.Time // when the current step began
	checkAt        time.Time
}

// New creates a relay and registers it with its arena. Run serves until ctx ends.
func New(ctx context.Context, config Config) (*Relay, error) {
	if config.Keepalive == 0 {
		config.Keepalive = 5 * time.Second
	}
	if config.Linked == nil {
		config.Linked = func(uint16, error) {}
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

// OpenOFI opens a libfabric endpoint as relays use it, at a local address.
func OpenOFI(provider, node string) (*ofi.Endpoint, error) {
	return ofi.Open(ofi.Config{Provider: provider, Node: node, Size: bufferSize, Receives: maxLinks * linkWindow, Sends: sendBuffers, Peers: 2 * maxLinks})
}

// open opens what a relay needs. If it fails, Close closes what was opened.
func (r *Relay) open() (err error) {
	config := &r.config
	if r.ofi, err = OpenOFI(config.Provider, config.Node); err != nil {
		return err
	}
	config.Handshake.Host = uint16(config.Arena.Host())
	if config.Handshake.Address, err = r.ofi.Address(); err != nil {
		return err
	}
	if r.waitFD, err = r.ofi.WaitDescriptor(); err != nil || config.noDescriptor {
		r.waitFD = -1 // EFA has none
		config.Logf("provider %s has no descriptor to wait for: an idle relay polls it every %v", r.ofi.Provider(), pollGap)
	}
	if r.member, err = config.Arena.Join(shm.NoRank); err != nil {
		return err
	}
	if r.self, err = config.Arena.Peer(r.member.ID()); err != nil {
		return err
	}
	if r.provider, err = endpoint.New(r.member, endpoint.Options{Forward: true, ReceiveTimeout: config.ReceiveTimeout}); err != nil {
		return err
	}
	id, err := r.provider.ResolveAddress(endpoint.Address(config.Arena.Host(), r.member.ID()))
	if err != nil {
		return err
	}
	adapter, err := r.provider.OpenAdapter(r.ctx, id)
	if err != nil {
		return err
	}
	r.adapter = adapter.(relayhook.Adapter)
	if r.results, err = r.adapter.CreateCompletionQueue(r.ctx, maxTunnels*tunnelDepth); err != nil {
		return err
	}
	if r.unused, err = r.adapter.CreateCompletionQueue(r.ctx, 1); err != nil {
		return err
	}
	r.others, err = r.adapter.ListenForOtherHosts(r.ctx)
	return err
}

// Run carries connections until the context of New ends. Then it tells the other relays that it leaves.
func (r *Relay) Run() error {
	r.calls.Go(r.watchOFI)
	err := r.adapter.Serve(r.ctx, r.step)
	r.cancel()
	for _, l := range r.links {
		leave(l.conn)
		l.fail(errLeft)
	}
	return err
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
	if r.ofi != nil {
		r.ofi.Close()
	}
	return errors.Join(errs...)
}

// HasDied reports whether the process that holds a rank of this host has died, or has ended without leaving.
func (r *Relay) HasDied(rank int) bool { return r.adapter.HasDied(rank) }

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
	r.now = time.Now()
	if r.hasQueued.Load() {
		worked = r.runQueued()
	}
	worked = r.takeRequests() || worked
	worked = r.pollOFI() || worked
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
	if r.now.After(r.checkAt) {
		r.checkLinks(r.now)
	}
	if !worked && r.member.WaitDoorbell().Armed() { // about to sleep
		if r.waitFD >= 0 && !r.ofi.MaySleep() {
			return true
		}
		r.startWatch()
	}
	return worked
}

// checkLinks ends links whose relays are silent.
func (r *Relay) checkLinks(now time.Time) {
	gap := r.config.Keepalive / 8
	stopped := now.Sub(r.checkAt) > 2*gap
	r.checkAt = now.Add(gap)
	for _, l := range r.links {
		if stopped { // frames of this time may be unread
			l.heard = now
		}
		l.checkAlive(now)
	}
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

func (r *Relay) pollOFI() bool {
	n, failures, err := r.ofi.Poll(r.received[:])
	r.ofiFailed(err)
	for _, f := range failures {
		r.operationFailed(f)
	}
	for _, m := range r.received[:n] {
		if !r.receive(m) {
			r.ofiFailed(r.ofi.Repost(m.Buffer))
		}
	}
	return n > 0
}

// ofiFailed ends all links, because the endpoint that they share has failed.
func (r *Relay) ofiFailed(err error) {
	if err == nil {
		return
	}
	for _, l := range r.links {
		l.fail(err)
	}
}

// operationFailed ends the link whose frame could not be sent. A failed receive names no link, and often is of none that exists:
// a peer has died, or a stranger has sent half a message. If it was a frame, the frames after it are early for ever, and
// checkAlive ends the link that lacks it.
func (r *Relay) operationFailed(err *ofi.Error) {
	if err.Buffer >= 0 {
		r.senders[err.Buffer].frameFailed(err)
		return
	}
	if err.HasPeer {
		for _, l := range r.links {
			if l.peer == err.Peer {
				l.frameFailed(err)
			}
		}
		return
	}
	if r.failedReceives++; r.failedReceives == 1 && !r.lost { // else it may be of a link that has ended
		r.config.Logf("a message was received in part and dropped; others are dropped silently: %v", err)
	}
}

// receive handles a message, which may come from anyone. It reports whether its buffer is in use afterwards.
func (r *Relay) receive(m ofi.Received) (kept bool) {
	var f frame.Frame
	err := f.Decode(m.Message)
	l := r.links[f.Session]
	if l == nil {
		if r.unknownSession++; r.unknownSession == 1 && !r.lost { // else it may be of a link that has ended
			r.config.Logf("a frame without a session was dropped; others are dropped silently")
		}
		return false
	}
	if err == nil {
		kept, err = l.arrive(&f, m.Buffer)
	}
	if err != nil {
		l.fail(fmt.Errorf("frame %v of host %d: %w", f.Kind, l.session.Host, err))
	}
	return kept
}

// startWatch makes watchOFI wake Run when a message arrives.
func (r *Relay) startWatch() {
	if r.watching.CompareAndSwap(false, true) {
		r.watch <- struct{}{}
	}
}

// watchOFI sleeps on the descriptor of libfabric, because Run sleeps on the doorbell.
func (r *Relay) watchOFI() {
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-r.watch:
		}
		limit := min(r.config.Keepalive/8, time.Second) // Run has to check the links from time to time
		if r.waitFD < 0 {
			limit = pollGap
		}
		timeout := unix.NsecToTimespec(int64(limit))
		_, _ = unix.Ppoll([]unix.PollFd{{Fd: int32(r.waitFD), Events: unix.POLLIN}, {Fd: int32(r.stopFD), Events: unix.POLLIN}}, &timeout, nil)
		r.watching.Store(false)
		r.wake()
	}
}

// HandshakeConfig returns the configuration for handshakes of this relay.
func (r *Relay) HandshakeConfig() *handshake.Config { return &r.config.Handshake }
