package endpoint

// TWIN c/src/endpoint/cm_connection.c, c/src/endpoint/endpoint.h.

import (
	"net/netip"
	"strings"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/endpoint/internal/credit"
	"github.com/softnd/softnd/endpoint/internal/ring"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/internal/testkit/failpoint"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/window"
)

// Sizes in bytes of a receive descriptor in shared memory. Its first word is the receive's
// capacity in bytes, its second word the number of entries. Each entry has a word for its
// address, and a word for its length (bits 0..31) and token (bits 32..63).
const (
	descriptorHeader = 16
	descriptorEntry  = 16
)

// connection is one side's private state of a connection: its record, and what attach has checked. The endpoint's lock guards
// the fields that attach sets, and those derived from them.
type connection struct {
	// The first fields are those that small requests and messages need; see queuePair.

	out          ring.Producer  // the ring of this side's requests
	far          window.FarEnd  // the connection, as the guard sees it: open or not, and whose tokens are valid
	credit       credit.Credit  // of this side's messages
	overtaken    uint64         // a direct copy may overtake the ring entries before this number
	record       cm.Record      // its first field, the peer, is one of them
	peerQP       *wire.SharedQP // the peer's shared queue-pair state
	in           *ring.Consumer // the ring of the peer's requests
	peerExtended bool           // the peer understands immediate data and atomics
	peerHasSRQ   bool           // the peer's receives come from a shared queue, and this side does not see them
	peerCopies   bool           // only the peer copies: every request of this side goes through the ring
	peerFences   bool           // the peer's process issues the barriers that this side's stores omit; see ring.NewProducer

	provider *Provider
	endpoint atomic.Pointer[queuePair] // nil until Connect or Accept sets it

	requested, source netip.AddrPort // passive side: addresses of the request
	remote            netip.Addr     // of the process of another host for which the peer, a relay, acts; invalid if it does not

	attached bool
	peerName string         // of the peer's endpoint, for messages
	hazard   *atomic.Uint64 // the peer's hazard word, once the adapter's domain has it

	// Descriptors of the peer's receives.
	descriptors  []uint64
	stride       uint64
	receiveCount uint64

	atomicsSent   uint64           // atomics sent to the peer so far
	atomicsTaken  uint64           // of them, those whose result was taken out of the peer's SharedQP.Results
	readsSent     uint64           // Reads and atomics sent to the peer so far
	readEnds      [maxReads]uint64 // for each of the latest of them: number after its last ring entry
	peerFault     peerFault        // see fault
	inboundFailed bool             // a message of the peer failed here: later ones do not count
	detached      bool
}

func (c *connection) state() cm.ConnState {
	if c.provider.closeDone.Load() {
		return cm.ConnAborted
	}
	return c.record.State()
}

// wasEstablished reports, for the passive side, whether the active side has completed the connection. An active side that
// ends a connection before it has completed it withdraws it. So only an established one becomes aborted, unless this side
// has ended it early.
func (c *connection) wasEstablished() bool {
	s := c.state()
	return s == cm.ConnEstablished || s == cm.ConnAborted && !c.record.EndedEarly()
}

const (
	connectAgain = "connect again with a new connector and endpoint" // the next step after a connection that has failed
	startAgain   = "start the job again: hosts that have lost each other are not connected again"
)

// linkFailed is the beginning of the reason for which a relay ends the connections of a link that has failed.
const linkFailed = "relay: the link to host "

// nextStep returns what a program can do after the end of the connection.
func (c *connection) nextStep() string {
	if c.remote.IsValid() && (c.record.IsPeerGone() || (c.attached && strings.HasPrefix(c.reason(), linkFailed))) {
		return startAgain
	}
	return connectAgain
}

// nameOfProcess returns the name of the process at the other side, for messages.
func (c *connection) nameOfProcess() string {
	if c.remote.IsValid() {
		return c.provider.nameOfRemote(c.remote)
	}
	return c.record.Peer.Name()
}

// lost says, for messages, that the peer with a name is gone.
func (c *connection) lost(peer string) string {
	if c.remote.IsValid() {
		peer = "the relay of this host, which reached " + c.nameOfProcess() + ","
	}
	return peer + " has died or left"
}

// whyEnded says, for messages, why the other side does not go on with the connection.
func (c *connection) whyEnded() string {
	switch {
	case c.record.IsPeerGone():
		return c.lost(c.record.Peer.String())
	case c.remote.IsValid():
		return c.nameOfProcess() + " has left or has ended the connection, or there is no link to its host"
	}
	return "the " + [...]string{"active", "passive"}[1-c.record.Side] + " side, " + c.record.Peer.String() + ", has rejected or closed the connection"
}

// hasReceive reports whether the peer has a posted receive for the next message.
func (c *connection) hasReceive() bool {
	pushed := c.out.Published()
	if !c.credit.IsSpent(pushed) {
		return true
	}
	posted := c.peerQP.Posted.Load()                       // ORDER receive-posted: pairs with the stores in queuePair.publishPosted
	smallReceivesEnd := c.peerQP.SmallReceivesEnd.Load()   // ORDER receive-limit: after posted; pairs with the store in queuePair.publishSmallReceive
	smallReceiveBytes := c.peerQP.SmallReceiveBytes.Load() // ORDER receive-room: after smallReceivesEnd; pairs with the store in queuePair.publishSmallReceive
	failpoint.Reach(failpoint.CreditRefreshed)
	return c.credit.Refresh(pushed, posted, c.receiveCount, smallReceivesEnd, smallReceiveBytes)
}

// renewCredit computes how many small messages may take the fast path, and how long they may be.
// It reports whether any may.
func (c *connection) renewCredit() bool {
	return !c.peerHasSRQ && c.hasReceive() && c.credit.Extend(c.out.Published(), c.out.FreeSlots())
}

// nextReceive returns a copy of the peer's oldest receive that no message has taken.
func (c *connection) nextReceive(to *[maxSGE]wire.SGE) (entries []wire.SGE, capacity uint64) {
	at := (c.credit.Taken(c.out.Published()) & (c.receiveCount - 1)) * c.stride
	// Plain loads: the peer wrote these words before posted, which hasReceive has loaded. It
	// writes them again only after a message of this side has taken the receive.
	d := c.descriptors[at : at+c.stride]
	capacity = d[0]
	n := min(d[1], maxSGE, (c.stride-2)/2)
	for i := range n {
		address, word := d[2+2*i], d[3+2*i]
		to[i] = wire.SGE{Address: address, Length: uint32(word), Token: nd.Token(word >> 32)}
	}
	return to[:n], capacity
}

// copyWouldOvertake reports whether the ring holds an entry that a direct copy must not overtake. The
// peer has not placed its data yet, or a request waits for the peer to execute it. A Send that
// completed when its entry was pushed counts until its data is placed.
func (c *connection) copyWouldOvertake() bool {
	return c.overtaken != c.out.Published() && c.hasOrderedEntries()
}

// hasOrderedEntries reports whether the ring holds such an entry. If it holds none, the connection remembers how far it has checked.
func (c *connection) hasOrderedEntries() bool {
	if last := c.credit.OrderBarrier(c.out.Published()); last != 0 && !c.out.IsReleased(last) {
		return true
	}
	c.overtaken = c.out.Published()
	return false
}

// hasUnexecutedRequests reports whether a request waits for the peer to execute its ring entries. Unlike
// copyWouldOvertake, it ignores Sends that completed when they were pushed.
func (c *connection) hasUnexecutedRequests() bool {
	return !c.out.IsReleased(c.credit.AckRequestEnd)
}

// countRead counts a Read or an atomic that the peer executes. end is the number after its last ring entry.
func (c *connection) countRead(end uint64) {
	c.readEnds[c.readsSent%maxReads] = end
	c.readsSent++
}

// awaitsResults reports whether the old value of an atomic is not in its memory yet. The peer may have stored it in its Results: unlike
// snd_awaits_results in C, it does not take it.
func (c *connection) awaitsResults() bool { return c.atomicsSent != c.atomicsTaken }

// hasReadsInFlight reports whether the peer has not yet delivered the data of n Reads or more. n
// is 1 to maxReads.
func (c *connection) hasReadsInFlight(n uint64) bool {
	return c.readsSent >= n && !c.out.IsReleased(c.readEnds[(c.readsSent-n)%maxReads])
}

// detach ends this side's use of the other side's memory permanently.
func (c *connection) detach() {
	if c.detached {
		return
	}
	c.detached = true
	if !c.provider.waiters.BeginCall() { // release uses the arena
		return // the member's departure frees everything
	}
	defer c.provider.waiters.EndCall()
	c.record.Detach()
	c.provider.runOrDefer(c.release)
}

// release frees what the connection holds, once the other side has detached too. It reports
// whether it has. The record is freed last.
func (c *connection) release() bool {
	if c.record.IsReleased() {
		return true
	}
	if !c.record.MayRelease(c.attached) {
		return false
	}
	if c.hazard != nil {
		c.endpoint.Load().adapter.domain.RemoveHazard(c.hazard, c.record.Peer)
	}
	p := c.provider
	// hasRequest and releaseDead must see these changes as one.
	p.mu.Lock()
	delete(p.conns, c)
	if c.record.Side == cm.Passive {
		delete(p.requests, requestKey{c.record.Peer.ID(), c.record.Offset})
	}
	c.record.Release()
	p.mu.Unlock()
	failpoint.Reach(failpoint.RecordDetached)
	c.record.Peer.Wake()
	if c.record.Side == cm.Active {
		// The record is allocated memory of this member; see memoryRegion.finishClose for what Free may report.
		_ = p.member.Free(c.record.Offset)
		failpoint.Reach(failpoint.RecordFreed)
	}
	return true
}

// refuse answers a request with a refusal.
func (c *connection) refuse() {
	c.record.Move(cm.Refuses)
	c.detach()
}

// reason returns the peer's text about why it has ended the connection, or "" if there is none.
func (c *connection) reason() string {
	n := c.peerQP.ReasonLength.Load() // ORDER reason: after the load in state; pairs with the store in publishReason
	text := c.peerQP.Reason           // a copy: the peer can overwrite it
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) && r != utf8.RuneError {
			return r
		}
		return '?'
	}, string(text[:min(n, uint32(len(text)))]))
}

// closedInOrder reports whether the peer says that it has ended the connection by closing the endpoint or
// its connector, with no request outstanding. A relay passes the text on within its own.
func (c *connection) closedInOrder() bool {
	why := c.reason()
	return strings.Contains(why, "close: the endpoint was closed") || strings.Contains(why, "close: the connector was closed")
}

// peerFault identifies the ring entry with which the connection failed at the peer.
type peerFault struct {
	read   bool
	entry  uint64 // number of the entry, plus one; 0 = none
	status nd.Status
}

// fault returns the peer's fault after the connection has ended. It reads the shared words once, so
// that the failed request, its status, and the endpoint's error agree.
func (c *connection) fault() *peerFault {
	f := &c.peerFault
	if f.read {
		return f
	}
	*f = peerFault{true, c.peerQP.Fault.Load(), nd.Status(c.peerQP.FaultStatus.Load())} // ORDER fault: after the abort, before which it was stored
	switch f.status {
	case nd.RemoteError, nd.AccessViolation, nd.DataChecksumError:
		return f
	case nd.IOTimeout, nd.NotSupported:
		if c.peerCopies { // as a relay does
			return f
		}
	}
	f.status = nd.InternalError // no correct peer stores another status
	return f
}

// blames reports whether r is the request that failed at the peer.
func (f *peerFault) blames(r *request) bool {
	return f.entry != 0 && r.EndEntry != 0 && f.entry-1-r.firstEntry < r.EndEntry-r.firstEntry
}
