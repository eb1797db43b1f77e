package endpoint

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

// Executor says who moves the bytes of a one-sided request or a large message.
type Executor int

const (
	// Auto runs a request in the initiator's process when the peer's memory
	// lies in the arena, and sends it to the peer otherwise.
	Auto Executor = iota
	// Target sends every one-sided request and every message that does not fit
	// a ring slot to the peer.
	Target
)

// ParseExecutor reads "auto" or "target"; "" is Auto.
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

	usualReceiveTimeout = 2 * time.Second // 0
)

// Options change how a Provider works; the zero value is what most want.
type Options struct {
	Executor Executor

	// ReceiveTimeout is how long a Send waits for the peer to post a Receive
	// before it fails with nd.IOTimeout: 0 = 2 s, or AtOnce, or NoLimit.
	ReceiveTimeout time.Duration
	// DisconnectTimeout is how long Disconnect waits for the peer's. 0 = 2 s.
	DisconnectTimeout time.Duration
}

// Provider gives one member of an arena its adapters, and moves everything
// that they do. Its methods are safe for concurrent use.
type Provider struct {
	member  *shm.Member
	arena   *shm.Arena
	table   *window.Table
	options Options
	ports   ports

	adapters  atomic.Uint32 // opened so far
	endpoints atomic.Uint64 // created so far
	queues    atomic.Uint64 // of completion, created so far

	crowd  atomic.Int32 // processes that share the cores; see patience
	sleep  sleepers
	mail   sync.Mutex // held by the one who collects mail
	engine engine
	patrol patrol

	choring sync.Mutex // held by the one who does chores

	over atomic.Bool // Close is done: the member may leave, and its memory become somebody else's

	mu      sync.Mutex // guards the rest
	closed  bool
	live    atomic.Pointer[[]*Endpoint] // replaced as a whole
	conns   map[*connection]struct{}
	records map[recordName]struct{} // of those of conns on whose passive side we are
	chores  []chore
	stirred time.Time // when a chore was added or done last
	watched map[shm.MemberID]chan struct{}

	mappings mappings
}

// chore is cleaning up that has to wait for somebody else. It is called until
// it returns true.
type chore func() bool

// New returns the provider of a member, and starts its engine. The member must
// not be given to two providers. Close the provider before the member leaves.
func New(m *shm.Member, o Options) (*Provider, error) {
	table, err := window.NewTable(m)
	if err != nil {
		return nil, err
	}
	if o.ReceiveTimeout == 0 {
		o.ReceiveTimeout = usualReceiveTimeout
	}
	if o.DisconnectTimeout == 0 {
		o.DisconnectTimeout = 2 * time.Second
	}
	p := &Provider{
		member: m, arena: m.Arena(), table: table, options: o,
		conns:   make(map[*connection]struct{}),
		records: make(map[recordName]struct{}),
		watched: make(map[shm.MemberID]chan struct{}),
	}
	p.live.Store(new([]*Endpoint))
	p.mappings.live.Store(new([]*LogicalMapping))
	p.ports.init()
	p.sleep.init(m.Waiters(), p.engine.endRest)
	p.countCrowd()
	p.patrol.start(p)
	p.engine.start(p)
	return p, nil
}

// Address returns the address of a member, as its adapters have it: one of
// the loopback network, which means the member's slot and nothing to the host.
func Address(id shm.MemberID) netip.Addr {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], uint16(id.Slot()+1))
	return netip.AddrFrom4([4]byte{127, 77, b[0], b[1]})
}

// slotOf is the reverse of Address.
func slotOf(a netip.Addr) (slot int, ok bool) {
	if !a.Is4() {
		return 0, false
	}
	b := a.As4()
	return int(binary.BigEndian.Uint16(b[2:])) - 1, b[0] == 127 && b[1] == 77
}

// QueryAddressList returns the one address of this member.
func (p *Provider) QueryAddressList() ([]netip.Addr, error) {
	return []netip.Addr{Address(p.member.ID())}, nil
}

// ResolveAddress returns the adapter that has a local address.
func (p *Provider) ResolveAddress(local netip.Addr) (nd.AdapterID, error) {
	if local != Address(p.member.ID()) {
		return 0, &nd.OpError{Op: "resolve address", Object: local.String(), Status: nd.InvalidAddress,
			Detail: "this member's address is " + Address(p.member.ID()).String(), Next: "use an address from QueryAddressList"}
	}
	return p.adapterID(), nil
}

func (p *Provider) adapterID() nd.AdapterID {
	id := p.arena.ID()
	var b [24]byte
	binary.LittleEndian.PutUint64(b[0:], id[0])
	binary.LittleEndian.PutUint64(b[8:], id[1])
	binary.LittleEndian.PutUint64(b[16:], uint64(p.member.ID()))
	return nd.AdapterID(xxhash.Sum64(b[:]))
}

// An adapter's window.Owner is its member's number, and below it a serial number.
const ownerShift = 16

// OpenAdapter opens the adapter. Each call returns a handle with tokens of its
// own; objects of two handles cannot be mixed.
func (p *Provider) OpenAdapter(ctx context.Context, id nd.AdapterID) (nd.Adapter, error) {
	if id != p.adapterID() {
		return nil, &nd.OpError{Op: "open adapter", Object: fmt.Sprintf("adapter %#x", uint64(id)), Status: nd.InvalidParameter,
			Detail: "no such adapter", Next: "use an identity from ResolveAddress"}
	}
	if p.sleep.shut.Load() {
		return nil, &nd.OpError{Op: "open adapter", Status: nd.InvalidHandle, Detail: "the provider is closed"}
	}
	if err := ctx.Err(); err != nil {
		return nil, nd.CanceledError(ctx, "open adapter", "")
	}
	serial := p.adapters.Add(1)
	if serial >= 1<<ownerShift {
		return nil, &nd.OpError{Op: "open adapter", Status: nd.InsufficientResources, Detail: "65,535 handles were opened by this member", Next: "keep adapters open instead of opening one each time"}
	}
	owner := window.Owner(uint64(p.member.ID())<<ownerShift | uint64(serial))
	return &Adapter{provider: p, space: window.NewSpace(p.table, owner)}, nil
}

// Close ends all connections and waits, and stops the engine. Calls that wait
// return [nd.Canceled]; later calls fail, and do nothing. What peers still hold
// of this process's memory they let go of when the member leaves.
func (p *Provider) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	p.mu.Unlock()
	for _, l := range p.ports.allListeners() {
		l.close()
	}
	for _, ep := range *p.live.Load() {
		ep.close()
	}
	p.sleep.close()
	p.engine.stop()
	p.patrol.stop()
	p.over.Store(true)
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.mu.Lock()
		c.lost.Store(true)
		c.mu.Unlock()
	}
	for _, stop := range p.watched {
		close(stop)
	}
	clear(p.watched)
	return nil
}

// later does a chore, now or when the engine can.
func (p *Provider) later(c chore) {
	if !c() {
		p.postpone(c)
	}
}

// postpone is later for a caller that holds a lock which the chore takes.
func (p *Provider) postpone(c chore) {
	p.mu.Lock()
	p.chores, p.stirred = append(p.chores, c), time.Now()
	p.mu.Unlock()
	p.engine.nudge()
}

// doChores tries all chores once. The caller holds no lock.
func (p *Provider) doChores() {
	p.choring.Lock() // so that who returns has seen the chores of others done, too
	defer p.choring.Unlock()
	p.mu.Lock()
	chores := p.chores
	p.chores = nil
	p.mu.Unlock()
	kept := chores[:0]
	for _, c := range chores {
		if !c() {
			kept = append(kept, c)
		}
	}
	p.mu.Lock()
	if len(kept) < len(chores) {
		p.stirred = time.Now()
	}
	p.chores = append(kept, p.chores...)
	p.mu.Unlock()
}

func (p *Provider) hasChores() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.chores) > 0
}

// choresFresh is how long chores are tried a thousand times a second, since one was added
// or done last. Chores left after that, such as the end of a region to which a window is
// bound, may take long: each round of the patrol tries them.
const choresFresh = time.Second

// hasFreshChores reports whether there are chores that may soon be done.
func (p *Provider) hasFreshChores() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.chores) > 0 && time.Since(p.stirred) < choresFresh
}

// refresh keeps the chores fresh.
func (p *Provider) refresh() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stirred = time.Now()
}

// addEndpoint tells whether the provider took it: a closed one would never
// close it.
func (p *Provider) addEndpoint(ep *Endpoint) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.live.Store(with(p.live.Load(), ep))
	return true
}

func (p *Provider) removeEndpoint(ep *Endpoint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live.Store(without(p.live.Load(), ep))
}

// watch makes sure that we learn of a peer's death soon.
func (p *Provider) watch(peer *shm.Peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.watched[peer.ID()]; ok || p.closed || peer.ID() == p.member.ID() {
		return
	}
	stop := make(chan struct{})
	p.watched[peer.ID()] = stop
	p.member.Watch(peer, stop, p.patrol.now)
}

// letGo makes sure that nothing of a dead member is ever touched again.
func (p *Provider) letGo(id shm.MemberID) {
	p.mail.Lock()
	p.sortMail() // what lies behind mail of the dead would be lost with it
	p.mail.Unlock()
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
	p.sleep.wake()
}

// partIfOutcast ends all connections if this member has been marked dead, which a peer
// that writes into memory of others can do: the other members let go of it.
func (p *Provider) partIfOutcast() {
	if !p.member.MarkedDead() {
		return
	}
	p.mu.Lock()
	conns := slices.Collect(maps.Keys(p.conns))
	p.mu.Unlock()
	for _, c := range conns {
		if !c.lost.Load() {
			c.peerDied()
		}
	}
	p.sleep.wake()
}
