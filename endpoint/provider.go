package endpoint

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/endpoint/internal/waiter"
	"github.com/softnd/softnd/internal/faultplan"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

// Executor selects the process that copies the bytes of a one-sided request or a large message.
type Executor int

const (
	// Auto copies in the requester's process if the peer's memory is in the arena, and otherwise
	// sends the request to the peer.
	Auto Executor = iota
	// Target sends every one-sided request, and every message that does not fit into a ring
	// slot, to the peer.
	Target
)

// ParseExecutor parses "auto" or "target"; "" means Auto.
func ParseExecutor(s string) (Executor, error) {
	switch s {
	case "", "auto":
		return Auto, nil
	case "target":
		return Target, nil
	}
	return 0, fmt.Errorf("unknown executor %q: want auto or target", s)
}

// Values of Options.ReceiveTimeout.
const (
	AtOnce  time.Duration = -1 // a Send fails at once if no Receive is posted
	NoLimit time.Duration = math.MaxInt64

	defaultReceiveTimeout    = 2 * time.Second  // for 0
	defaultDisconnectTimeout = 10 * time.Second // for 0; processes that share busy cores may need seconds for the answer
)

// ParseReceiveTimeout parses a value for Options.ReceiveTimeout: a duration such as "500ms", "0" for AtOnce, or "unlimited".
func ParseReceiveTimeout(s string) (time.Duration, error) {
	if s == "unlimited" {
		return NoLimit, nil
	}
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return 0, fmt.Errorf("time-out %q: want a duration such as 500ms or 10s, 0, or unlimited", s)
	case d < 0:
		return 0, fmt.Errorf("receive time-out of %v: want 0 or more", d)
	case d == 0:
		return AtOnce, nil
	}
	return d, nil
}

// Options configures a Provider. The zero value suits most programs.
type Options struct {
	Executor Executor

	// ReceiveTimeout is how long a Send waits for the peer to post a Receive before it fails
	// with nd.IOTimeout. 0 means 2 s; AtOnce and NoLimit are allowed.
	ReceiveTimeout time.Duration
	// disconnectTimeout is how long Disconnect waits for the peer's Disconnect. 0 means 10 s. Tests set it.
	disconnectTimeout time.Duration

	// SpinBudget is how many rounds a wait spins before it yields. 0 means that the number adapts, see waiter.Spin;
	// NoSpin is allowed.
	SpinBudget int

	// CountOperations counts results and their bytes by type. Each result then passes through its
	// completion queue, under the queue's lock.
	CountOperations bool

	// Faults returns the fault rules of a rank, as faultplan.Plan.For does; nil means none.
	Faults func(rank int) *faultplan.Injector

	// WeakOrder is the seed of a weak order: the provider delays and reorders what the model leaves open.
	// nil means none.
	WeakOrder *uint64

	// CheckPayloads makes all endpoints check the payloads of their requests, as nd.EndpointConfig.CheckPayloads does.
	CheckPayloads bool

	// Forward makes each endpoint implement relayhook.Endpoint: the program takes the requests of its peer and executes
	// them, as a relay does. Such an endpoint has no Receives.
	Forward bool

	// EventHandler gets the events of connections and queues; see eventLog. nil means none.
	EventHandler slog.Handler
}

// Provider provides the adapters of one member of an arena, and makes progress on all their
// objects. Its methods are safe for concurrent use.
type Provider struct {
	rankOfRemote atomic.Pointer[func(netip.Addr) (int, bool)] // see NameRemotes; nil = unknown

	options Options
	ports   ports

	adaptersOpened   atomic.Uint32 // number of adapters opened so far
	endpointsCreated atomic.Uint64 // number of endpoints created so far
	hiddenCreated    atomic.Uint64 // number of those of hidden adapters
	queuesCreated    atomic.Uint64 // number of completion queues created so far

	processes   atomic.Int32 // processes that share the cores; see waiter.Yields
	besideRelay atomic.Bool  // this process has seen a relay; see isBesideRelay
	waiters     waiter.Set
	spins       waiter.Spin
	inboxMu     sync.Mutex // held while connection requests are read
	engine      engine
	housekeeper housekeeper

	member     *shm.Member
	arena      *shm.Arena
	table      *window.Table
	status     *statuspage.Reporter
	events     *eventLog // nil = no handler
	limits     *adapterLimits
	modes      modes
	calls      mode.Calls // nil = no mode is in use
	isStepwise bool       // each call that drives an endpoint is a step of a mode: waits sleep little, queues have their exact depth

	deferredMu sync.Mutex // held while deferred work runs

	closeDone atomic.Bool // Close is done: the member may leave, and its memory may be given to another process

	mu              sync.Mutex // guards the fields below
	closed          bool
	endpoints       atomic.Pointer[[]*queuePair] // open endpoints; replaced as a whole
	conns           map[*connection]struct{}
	requests        map[requestKey]struct{} // names of those of conns for which this process is the passive side
	deferred        []deferredWork
	deferredChanged time.Time // when deferred work was last added or done
	watched         map[shm.MemberID]chan struct{}
	unfreed         []*queuePair     // closed endpoints whose memory is not freed yet, for Stats
	freedStats      nd.EndpointStats // sums of the freed endpoints
	freedEndpoints  int

	mappings mappings
}

// deferredWork is cleanup that has to wait for an event elsewhere. It is called until it returns
// true.
type deferredWork func() bool

// New returns the provider of a member and starts its engine. A member can have only one
// provider. Close the provider before the member leaves.
func New(m *shm.Member, o Options) (*Provider, error) {
	table, err := window.NewTable(m)
	if err != nil {
		return nil, err
	}
	status, err := statuspage.NewReporter(m)
	if err != nil {
		return nil, err
	}
	if o.ReceiveTimeout == 0 {
		o.ReceiveTimeout = defaultReceiveTimeout
	}
	if o.disconnectTimeout == 0 {
		o.disconnectTimeout = defaultDisconnectTimeout
	}
	p := &Provider{
		member: m, arena: m.Arena(), table: table, status: status, options: o,
		conns:    make(map[*connection]struct{}),
		requests: make(map[requestKey]struct{}),
		watched:  make(map[shm.MemberID]chan struct{}),
	}
	p.initModes()
	p.endpoints.Store(new([]*queuePair))
	p.mappings.list.Store(new([]*logicalMapping))
	p.ports.init()
	p.waiters.Init(m.WaitDoorbell(), p.engine.endRest)
	p.countProcesses()
	addArena(p.arena)
	if o.EventHandler != nil {
		p.events = newEventLog(o.EventHandler)
	}
	p.housekeeper.start(p)
	p.engine.start(p)
	return p, nil
}

// QueryAddressList returns the one address of this member.
func (p *Provider) QueryAddressList() ([]netip.Addr, error) {
	return []netip.Addr{p.address()}, nil
}

// ResolveAddress returns the identity of the adapter that has a local address.
func (p *Provider) ResolveAddress(local netip.Addr) (nd.AdapterID, error) {
	if local != p.address() {
		return 0, &nd.OpError{Op: "resolve address", Object: local.String(), Status: nd.InvalidAddress,
			Detail: "this member's address is " + p.address().String(), Next: "use an address from QueryAddressList"}
	}
	return p.adapterID(), nil
}

func (p *Provider) adapterID() nd.AdapterID {
	id := p.arena.Info().ID
	var b [24]byte
	binary.LittleEndian.PutUint64(b[0:], id[0])
	binary.LittleEndian.PutUint64(b[8:], id[1])
	binary.LittleEndian.PutUint64(b[16:], uint64(p.member.ID()))
	return nd.AdapterID(xxhash.Sum64(b[:]))
}

// A window.Domain's Adapter is the member's number and, in the lowest ownerShift bits, the adapter's serial
// number.
const ownerShift = 16

// OpenAdapter opens the adapter. Each call returns a handle with its own tokens; objects of two
// handles cannot be used together.
func (p *Provider) OpenAdapter(ctx context.Context, id nd.AdapterID) (nd.Adapter, error) {
	if id != p.adapterID() {
		return nil, &nd.OpError{Op: "open adapter", Object: fmt.Sprintf("adapter %#x", uint64(id)), Status: nd.InvalidParameter,
			Detail: "no such adapter", Next: "use an identity from ResolveAddress"}
	}
	if p.waiters.IsClosed() {
		return nil, &nd.OpError{Op: "open adapter", Status: nd.InvalidHandle, Detail: "the provider is closed"}
	}
	if err := ctx.Err(); err != nil {
		return nil, nd.CanceledError(ctx, "open adapter", "")
	}
	serial := p.adaptersOpened.Add(1)
	if serial >= 1<<ownerShift {
		return nil, &nd.OpError{Op: "open adapter", Status: nd.InsufficientResources, Detail: "this member has opened 65,535 handles, the maximum", Next: "keep adapters open and reuse them"}
	}
	owner := uint64(p.member.ID())<<ownerShift | uint64(serial)
	return &adapter{provider: p, domain: window.NewDomain(p.table, owner)}, nil
}

// Close ends all connections and waits, and stops the engine. Pending calls return
// [nd.Canceled]. Later calls fail and have no effect. Peers keep their references to this
// process's memory until the member leaves.
func (p *Provider) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	p.mu.Unlock()
	for _, l := range p.ports.listenerList() {
		l.close()
	}
	for _, ep := range *p.endpoints.Load() {
		ep.close()
	}
	p.waiters.Close()
	p.engine.stop()
	p.housekeeper.stop()
	p.closeDone.Store(true)
	err := p.endAllocations()
	p.events.close()
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.mu.Lock()
		c.peerDead.Store(true)
		c.mu.Unlock()
	}
	for _, stop := range p.watched {
		close(stop)
	}
	clear(p.watched)
	return err
}

// runOrDefer runs work now. If it is not done, the engine runs it again later.
func (p *Provider) runOrDefer(c deferredWork) {
	if !c() {
		p.deferWork(c)
	}
}

// deferWork is runOrDefer for a caller that holds a lock which the work takes.
func (p *Provider) deferWork(c deferredWork) {
	p.mu.Lock()
	p.deferred, p.deferredChanged = append(p.deferred, c), time.Now()
	p.mu.Unlock()
	p.engine.wake()
}

// runDeferred runs all deferred work once. The caller holds no lock.
func (p *Provider) runDeferred() {
	p.deferredMu.Lock() // work that another goroutine has taken from the list is also done when this returns
	defer p.deferredMu.Unlock()
	p.mu.Lock()
	work := p.deferred
	p.deferred = nil
	p.mu.Unlock()
	kept := work[:0]
	for _, c := range work {
		if !c() {
			kept = append(kept, c)
		}
	}
	p.mu.Lock()
	if len(kept) < len(work) {
		p.deferredChanged = time.Now()
	}
	clear(work[len(kept):]) // the array must not keep what the finished work refers to
	p.deferred = append(kept, p.deferred...)
	p.mu.Unlock()
}

func (p *Provider) hasDeferred() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.deferred) > 0
}

// deferredRecent is how long deferred work is run about a thousand times a second after some of
// it was added or done. Work that is left after that may take long, such as the end of a region
// with a bound window. Each round of the housekeeper runs it.
const deferredRecent = time.Second

// hasRecentDeferred reports whether there is deferred work that may soon be done.
func (p *Provider) hasRecentDeferred() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.deferred) > 0 && time.Since(p.deferredChanged) < deferredRecent
}

// keepDeferredRecent makes the deferred work count as recent.
func (p *Provider) keepDeferredRecent() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deferredChanged = time.Now()
}

// addEndpoint reports whether the endpoint was added. A closed provider adds none, because it
// would never close it.
func (p *Provider) addEndpoint(ep *queuePair) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.endpoints.Store(with(p.endpoints.Load(), ep))
	return true
}

func (p *Provider) removeEndpoint(ep *queuePair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endpoints.Store(without(p.endpoints.Load(), ep))
	if !ep.adapter.isHidden {
		p.unfreed = append(p.unfreed, ep)
	}
}

// watchPeer makes the housekeeper learn of a peer's death soon.
func (p *Provider) watchPeer(peer *shm.Peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.watched[peer.ID()]; ok || p.closed || peer.ID() == p.member.ID() {
		return
	}
	stop := make(chan struct{})
	p.watched[peer.ID()] = stop
	p.member.Watch(peer, stop, p.housekeeper.runNow)
}

// releaseDead ends all use of a dead member's memory permanently.
func (p *Provider) releaseDead(id shm.MemberID) {
	p.inboxMu.Lock()
	p.readInbox() // requests in the list behind those of the dead member would be lost with it
	p.inboxMu.Unlock()
	p.mu.Lock()
	var lost []*connection
	for c := range p.conns {
		if c.peer.ID() == id {
			lost = append(lost, c)
		}
	}
	if stop, ok := p.watched[id]; ok {
		close(stop)
		delete(p.watched, id)
	}
	p.mu.Unlock()
	for _, c := range lost {
		c.peerDied()
	}
	p.waiters.Wake()
}

// failIfMarkedDead ends all connections if this member has been marked dead, because the other
// members have stopped using its memory. A peer that writes into memory of others can cause this.
func (p *Provider) failIfMarkedDead() {
	if !p.member.Gone() {
		return
	}
	p.mu.Lock()
	conns := slices.Collect(maps.Keys(p.conns))
	p.mu.Unlock()
	for _, c := range conns {
		if !c.peerDead.Load() {
			c.peerDied()
		}
	}
	p.waiters.Wake()
}
