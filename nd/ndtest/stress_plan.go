package ndtest

import (
	"math/rand/v2"

	"github.com/softnd/softnd/nd"
)

// The layout of each side's region. The first area holds the bytes that the side sends. Three areas
// follow for each connection: one that the peer writes and reads, one for the data of the side's own
// Reads and for old values, and one for messages. Then come the shared numbers, and at the end the descriptors that
// the side sends.
const (
	stressConns  = 3
	stressShared = 2 // numbers that all connections change
	stressArea   = 192 << 10
	stressWords  = (1 + 3*stressConns) * stressArea
	stressGrants = stressWords + 8*stressShared
	stressRegion = stressGrants + stressConns*nd.WindowDescriptorSize
	stressBody   = 20 // most transfers of a round
)

func sourceAt() int          { return 0 }
func writtenAt(i int) int    { return (1 + 3*i) * stressArea }
func sinkAt(i int) int       { return (2 + 3*i) * stressArea }
func messagesAt(i int) int   { return (3 + 3*i) * stressArea }
func descriptorAt(i int) int { return stressGrants + i*nd.WindowDescriptorSize }
func sharedAt(i int) int     { return stressWords + 8*i }

// span is a part of a side's region.
type span struct{ off, n int }

// stepKind says what a step of the plan does.
type stepKind int

const (
	doWrite stepKind = iota
	doRead
	doSend
	doSendInvalidate
	doBind         // grant the peer access by a window
	doFastRegister // grant the peer access by a region
	doGrant        // send the descriptor of doBind or doFastRegister
	doInvalidate   // invalidate the access
	doAwait        // wait for the message of the peer's doGrant
	doFetchAndAdd
	doCompareAndSwap
	doSwap
	doSendImmediate
	doWriteImmediate
)

func (v stepKind) sends() bool {
	return v == doSend || v == doSendInvalidate || v == doSendImmediate || v == doGrant
}

// takesReceive reports whether the step completes a Receive of the peer.
func (v stepKind) takesReceive() bool { return v.sends() || v == doWriteImmediate }

func (v stepKind) isAtomic() bool { return v == doFetchAndAdd || v == doCompareAndSwap || v == doSwap }

// receiveType returns the type of the result that the step makes at the peer.
func (v stepKind) receiveType() nd.RequestType {
	switch v {
	case doSendInvalidate:
		return nd.RequestReceiveAndInvalidate
	case doSendImmediate:
		return nd.RequestReceiveImmediate
	case doWriteImmediate:
		return nd.RequestReceiveWriteImmediate
	}
	return nd.RequestReceive
}

func (v stepKind) request() nd.RequestType {
	switch v {
	case doWrite, doWriteImmediate:
		return nd.RequestWrite
	case doRead:
		return nd.RequestRead
	case doBind:
		return nd.RequestBind
	case doFastRegister:
		return nd.RequestFastRegister
	case doInvalidate:
		return nd.RequestInvalidate
	case doFetchAndAdd:
		return nd.RequestFetchAndAdd
	case doCompareAndSwap:
		return nd.RequestCompareAndSwap
	case doSwap:
		return nd.RequestSwap
	}
	return nd.RequestSend
}

// step is one request with its expected effects.
type step struct {
	stepKind
	flags       nd.OpFlags
	parts       []span // of the own region: the source, or for a Read the sink
	size        int
	at          int             // offset in the area of the peer's region for this connection
	usesGrant   bool            // by the access that the peer granted, instead of its region's token
	sum         uint64          // checksum of the bytes of a Read or of a message, or of an old value
	receiveInto []span          // of the peer's region: the list of the Receive for the message
	visible     []expectedBytes // bytes that the peer must see when it has the result of the message
	operands    [2]uint64       // of an atomic
	shared      bool            // the atomic changes the shared number with the index at
	immediate   uint32
}

// expectedBytes is a part of a side's region and the checksum of its bytes.
type expectedBytes struct {
	span
	sum uint64
}

// direction is the model of one direction of a connection.
type direction struct {
	conn    int
	source  []byte // of the side that posts
	written []byte // contents of the other side's area
	grant   struct {
		live, fresh bool // fresh: granted in this round
		fast        bool
		rights      nd.OpFlags
	} // access that the side that posts grants to the other
	steps []step // of this round
}

// plan is the model of a run. Both sides compute the same plan.
type plan struct {
	*rand.Rand
	stressFeatures
	directions [2][stressConns]*direction // by the side that posts
}

func newPlan(seed uint64, has stressFeatures) *plan {
	p := &plan{Rand: rand.New(rand.NewPCG(seed, 1)), stressFeatures: has}
	for side := range p.directions {
		source := make([]byte, stressArea)
		fill(source, seed+uint64(side))
		for i := range p.directions[side] {
			p.directions[side][i] = &direction{conn: i, source: source, written: make([]byte, stressArea)}
		}
	}
	return p
}

// round computes the steps of the next round.
func (p *plan) round() {
	for i := range stressConns {
		for side := range p.directions {
			p.addGrants(p.directions[side][i])
		}
		for side := range p.directions {
			p.addTransfers(p.directions[side][i], p.directions[1-side][i])
		}
	}
}

// addGrants starts a round of a direction with the steps that invalidate access or grant it.
func (p *plan) addGrants(l *direction) {
	l.steps, l.grant.fresh = nil, false
	if l.grant.live && p.oneIn(2) {
		l.add(step{stepKind: doInvalidate, flags: p.flags(doInvalidate)})
		l.grant.live = false
	}
	if l.grant.live || p.oneIn(4) {
		return
	}
	g := &l.grant
	g.live, g.fresh, g.fast = true, true, p.Fast && p.oneIn(2)
	g.rights = []nd.OpFlags{nd.AllowRead, nd.AllowWrite, nd.AllowRead | nd.AllowWrite}[p.IntN(3)]
	if p.Atomics && p.oneIn(2) {
		g.rights |= nd.AllowAtomic
	}
	if g.fast {
		l.add(step{stepKind: doFastRegister, flags: p.flags(doFastRegister)})
	} else {
		bind := step{stepKind: doBind, flags: p.flags(doBind) | g.rights}
		if p.oneIn(2) {
			bind.flags |= nd.ThisEndpointOnly
		}
		l.add(bind)
	}
	l.add(step{stepKind: doGrant, flags: p.flags(doGrant) &^ nd.Defer, size: nd.WindowDescriptorSize,
		parts: []span{{descriptorAt(l.conn), nd.WindowDescriptorSize}}})
}

func (l *direction) add(s step) *step {
	l.steps = append(l.steps, s)
	return &l.steps[len(l.steps)-1]
}

// oneIn returns true with probability 1/n.
func (p *plan) oneIn(n int) bool { return p.IntN(n) == 0 }

// flags chooses flags that are legal for every request and, for one that completes a Receive, flags of messages.
func (p *plan) flags(v stepKind) (f nd.OpFlags) {
	if p.oneIn(3) {
		f |= nd.SilentSuccess
	}
	if p.oneIn(6) {
		f |= nd.ReadFence
	}
	if p.oneIn(4) {
		f |= nd.Defer
	}
	if v.takesReceive() && p.oneIn(3) {
		f |= nd.SendAndSolicitEvent
	}
	return f
}
