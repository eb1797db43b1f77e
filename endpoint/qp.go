package endpoint

// TWIN c/src/endpoint/qp.c, c/src/endpoint/endpoint.h.

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/endpoint/internal/cq"
	"github.com/softnd/softnd/endpoint/internal/memory"
	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/endpoint/internal/ring"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/internal/asym"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

// overrunBit of queuePair.stateWord says that a completion queue of the endpoint has overrun. It
// shares a word with the state so that the fast path checks both with one comparison.
const overrunBit = 1 << 8

// slowBit of queuePair.stateWord keeps requests and messages from the fast path in the same way. It is set
// permanently if a provider has an option that only the slow path implements.
const slowBit = 1 << 9

// stateFlags are the bits of queuePair.stateWord that are no part of the state.
const stateFlags = overrunBit | slowBit

// queuePair is a queue pair. It is safe for concurrent use. Requests posted concurrently are ordered
// arbitrarily.
type queuePair struct {
	nd.UnsupportedEndpoint
	// The fields that small requests and messages use come first, close together: a program may use
	// many endpoints alternately, and the nearest cache holds few of their lines. The allocator puts
	// 8 bytes before the first field. TestHotFieldsOfEndpointStayTogether guards the order.

	stateWord       atomic.Uint32    // the cm.QPState, which changes under mu, and stateFlags
	uncompleted     atomic.Uint32    // requests that are not completed; see hasWork
	requesterCopies bool             // this process copies the data of its requests where it can
	wakeupRequested bool             // localQP.NeedWakeup is set
	serving         bool             // resp.entry is decoded and not finished
	unreachable     nd.Token         // the last token of which a Write found that only the peer can access its memory
	mu              asym.BiasedMutex // guards all fields that change and are not atomic

	conn  *connection
	guard *window.Guard
	sq    sendQueue

	inbound atomic.Pointer[ring.Consumer] // the peer's ring, for hasWork; nil until the connection is attached
	rq      recvQueue

	localQP  *wire.SharedQP
	srq      *sharedReceiveQueue // where receives come from; nil = they are posted to rq
	adapter  *adapter
	provider *Provider

	number           uint64 // in this process
	limits           queueLimits
	errReceiveFull   error // made once: a full queue is no reason to allocate
	errInitiatorFull error
	localQPOffset    shm.Offset
	outboundSlots    []ring.Slot  // of the ring that connection.out fills
	pendingDrains    atomic.Int32 // tokens of this endpoint that an ended connection may still use
	scansSeen        uint64       // of both completion queues; used by the progress engine only

	smallReceives smallReceives

	hook mode.Hook // nil = no mode is in use; next to what else the slow path reads of each request
	req  requester
	resp responder
	life lifecycle

	parts *parts // of the requests that a relay posts; nil = none
	bound memory.BoundSet

	sink, source window.Operand // of the copy in progress; here to avoid an allocation
	result       nd.Result      // likewise, for a completion

	counters endpointCounters
	waiting  waitObserver // of the housekeeper

	slotWaits atomic.Int32 // calls of WaitSlot that wait
}

// sendQueue holds the counters of the initiator queue that every request changes. Requests of the
// slow path are numbered from 0 and kept in requester.requests.
type sendQueue struct {
	posted     uint64 // requests put into requester.requests
	completed  uint64
	slotsTaken uint64 // slots that requests have taken, without those of silent successes; see hasQueueSlot
	depth      uint64
	cq         *completionQueue
	slots      cq.Slots // counts the freed slots: a poll that takes a result frees its slot
}

// recvQueue is the queue of posted receives. With a shared receive queue it has one place, for the
// receive that a message has taken.
type recvQueue struct {
	cq        *completionQueue
	receives  []receive // circular
	posted    uint64
	completed uint64

	slots       cq.Slots // counts the freed slots: a poll that takes a result frees its slot
	depth       uint64
	descriptors []uint64 // in shared memory, one for each place in receives
	stride      uint64   // words of a descriptor
}

// smallReceives are the posted receives that may be smaller than wire.MaxSendInEntry.
type smallReceives struct {
	end      uint64 // see wire.SharedQP.SmallReceivesEnd
	capacity uint64 // see wire.SharedQP.SmallReceiveBytes
}

// queueLimits are the limits that CreateEndpoint has granted.
type queueLimits struct {
	receiveSGE   int
	initiatorSGE int
	inlineSize   int
}

// requester is the state of executing this side's requests on the slow path.
type requester struct {
	readLimit int           // outbound Reads granted; 0 = none
	chunks    atomic.Uint32 // chunks of long requests copied so far; the status page shows that it changes

	requests  []request
	submitted uint64   // requests before this number may run; later ones are deferred
	next      uint64   // number of the request to execute next
	hasFailed bool     // a request has failed and is not completed; no other may run
	aside     []uint64 // numbers of the Reads that are set aside

	gathered [wire.MaxSendInEntry]byte // data of a Send or Write that fits an entry

	// The peer's receive that a Send is filling.
	peerReceiveBuffer   [maxSGE]wire.SGE
	peerReceiveSGEs     []wire.SGE
	peerReceiveCapacity uint64

	bounce bounceBuffers
}

// responder is the state of serving the peer's ring.
type responder struct {
	entry          wire.Entry // the ring entry being served
	fragmentCopied uint64     // bytes of the fragment in entry that are copied so far

	messageReceived uint64           // bytes of the current message in its receive
	nextFragment    uint64           // number of the ring entry that alone may continue that message
	localBindCheck  window.BindCheck // bind of the local token in use, from the first to the last entry of a request
	remoteBindCheck window.BindCheck // bind of the peer's token in use, in this entry

	invalidating     *window.Invalidatable // invalidated by the current message; nil when its token is drained
	invalidatedToken nd.Token

	result [1]nd.Result // see serveSendFast
}

// lifecycle describes how an endpoint came into the connected state and out of it.
type lifecycle struct {
	connector          *connector // that connects or has connected the endpoint
	wasConnected       bool
	cause              error         // why the endpoint left the connected state
	done               chan struct{} // closed when the endpoint has left the connected state permanently
	teardown           teardown
	requestFailed      bool      // a request has completed with a failure that this side found; the rest is canceled
	disconnectDeadline time.Time // for the peer's Disconnect
	disconnectTimedOut bool
	bothDisconnected   bool
	closeCalled        bool
}

// teardown says how far the end of a connection has come.
type teardown uint8

const (
	usesPeerState teardown = iota
	leftPeerState          // no code uses the peer's shared queue-pair state from now on
	flushed                // all requests and receives are completed, and no other is accepted
)

// requestAt returns the place of the request with a number.
func (ep *queuePair) requestAt(number uint64) *request {
	return &ep.req.requests[number&uint64(len(ep.req.requests)-1)]
}

// receiveAt returns the place of the receive with a number.
func (ep *queuePair) receiveAt(number uint64) *receive {
	return &ep.rq.receives[number&uint64(len(ep.rq.receives)-1)]
}

func (ep *queuePair) state() cm.QPState { return cm.QPState(ep.stateWord.Load() &^ stateFlags) }

func (ep *queuePair) hasOverrun() bool { return ep.stateWord.Load()&overrunBit != 0 }

func (ep *queuePair) String() string { return fmt.Sprintf("endpoint %d", ep.number) }

func (ep *queuePair) opError(op string, s nd.Status, detail, next string) error {
	return &nd.OpError{Op: op, Object: ep.String(), Status: s, Detail: detail, Next: next}
}

// on changes the state by an event. The caller holds ep.mu.
func (ep *queuePair) on(e cm.Event) {
	s := ep.state().After(e)
	ep.life.wasConnected = ep.life.wasConnected || s == cm.QPConnected
	if s == cm.QPConnected && ep.state() != cm.QPConnected {
		ep.logConnected()
	}
	if ep.state() == cm.QPPeerDisconnected {
		ep.life.cause = nil // it advises this side to disconnect, too
		detail, next := "the peer ("+ep.conn.peerName+") has disconnected, and the connection ended before this side did", "connect a new endpoint"
		if s == cm.QPDisconnecting {
			detail, next = "both sides have disconnected", ""
		}
		ep.setCause(ep.opError("serve", nd.ConnectionDisconnected, detail, next))
	}
	for was := ep.stateWord.Load(); !ep.stateWord.CompareAndSwap(was, uint32(s)|was&stateFlags); was = ep.stateWord.Load() {
	}
	if s >= cm.QPPeerDisconnected && !isClosed(ep.life.done) {
		close(ep.life.done)
	}
	ep.provider.waiters.Wake()
}

// setCause records why the endpoint left the connected state. The first cause is kept.
func (ep *queuePair) setCause(err error) {
	if ep.life.cause == nil {
		ep.life.cause = err
	}
}

// hasEnded reports whether a connection that was established has ended at this side.
func (ep *queuePair) hasEnded() bool {
	s := ep.state()
	return s != cm.QPConnected && s != cm.QPPeerDisconnected
}

// mustPeerCopy reports whether the peer copies the data of all requests, even where this process can.
func (ep *queuePair) mustPeerCopy() bool {
	return ep.provider.options.Executor == Target || ep.conn.peerCopies
}

// forwards reports whether the program is a relay, which takes the peer's requests out of the ring itself: progress does not serve them.
func (ep *queuePair) forwards() bool { return ep.provider.options.Forward }

// endpointCounters are what only the slow path counts. The endpoint's lock guards them.
type endpointCounters struct {
	stalls        [stallCauses]uint64
	sharedStalls  uint64 // messages of the peer that waited for the shared receive queue
	silent        uint64 // requests that succeeded silently; see succeedSilently
	fragments     uint64
	retries       uint64
	postsRefused  uint64
	accessRefused uint64
	operations    *nd.OperationStats // nil = not counted
}

// waitObserver notes how long the oldest request has waited. Only the housekeeper's goroutine uses it.
type waitObserver struct {
	number   uint64 // of the request
	since    time.Time
	reported bool // there is an event for this request
}

const (
	bounceCount = 2
	bounceSize  = 64 << 10
)

// bounceBuffers are arena memory through which a peer copies to or from private memory of this
// process. An endpoint allocates them when it first needs them.
type bounceBuffers struct {
	region  *window.Region
	offset  shm.Offset
	mem     []byte
	freedBy [bounceCount]uint64 // number after the ring entry that uses the buffer
}
