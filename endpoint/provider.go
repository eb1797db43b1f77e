package endpoint

// TWIN c/src/endpoint/provider.c.

import (
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/endpoint/internal/eventlog"
	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/endpoint/internal/progress"
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

	// EventHandler gets the events of connections and queues; see package eventlog. nil means none.
	EventHandler slog.Handler
}

// Provider provides the adapters of one member of an arena, and makes progress on all their
// objects. Its methods are safe for concurrent use.
type Provider struct {
	nd.UnsupportedProvider
	rankOfRemote atomic.Pointer[func(netip.Addr) (int, bool)] // see NameRemotes; nil = unknown

	options Options
	ports   cm.Ports[listener]

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
	events     *eventlog.Log // nil = no handler
	limits     *adapterLimits
	modes      modes
	calls      mode.Calls // nil = no mode is in use
	isStepwise bool       // each call that drives an endpoint is a step of a mode: waits sleep little, queues have their exact depth

	deferred progress.Deferred

	closeDone atomic.Bool // Close is done: the member may leave, and its memory may be given to another process

	mu             sync.Mutex // guards the fields below
	closed         bool
	endpoints      atomic.Pointer[[]*queuePair] // open endpoints; replaced as a whole
	conns          map[*connection]struct{}
	requests       map[requestKey]struct{} // names of those of conns for which this process is the passive side
	watched        map[shm.MemberID]chan struct{}
	unfreed        []*queuePair     // closed endpoints whose memory is not freed yet, for Stats
	freedStats     nd.EndpointStats // sums of the freed endpoints
	freedEndpoints int

	mappings mappings
}

// A window.Domain's Adapter is the member's number and, in the lowest ownerShift bits, the adapter's serial
// number.
const ownerShift = 16

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

// requestKey identifies the connection record of a peer's request.
type requestKey struct {
	from shm.MemberID
	at   shm.Offset
}
