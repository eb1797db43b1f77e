package ndtest

import (
	"math/rand/v2"

	"github.com/softnd/softnd/nd"
)

// The region of each side: the bytes that it sends, then for every connection a place that the
// peer writes to and reads from, one for what its own Reads bring, one for messages, and at the
// end room for the descriptors that it sends.
const (
	stressConns  = 3
	stressArea   = 192 << 10
	stressGrants = (1 + 3*stressConns) * stressArea
	stressRegion = stressGrants + stressConns*nd.WindowDescriptorSize
	stressBody   = 20 // requests of a round, besides those around them
)

func sourceAt() int          { return 0 }
func writtenAt(i int) int    { return (1 + 3*i) * stressArea }
func sinkAt(i int) int       { return (2 + 3*i) * stressArea }
func messagesAt(i int) int   { return (3 + 3*i) * stressArea }
func descriptorAt(i int) int { return stressGrants + i*nd.WindowDescriptorSize }

// span is a part of a side's region.
type span struct{ off, n int }

// stepKind says what a step of the plan does.
type stepKind int

const (
	doWrite stepKind = iota
	doRead
	doSend
	doSendInvalidate
	doBind         // grant the peer access, by a window
	doFastRegister // the same by a region
	doGrant        // send what doBind or doFastRegister made
	doInvalidate   // end the grant
	doAwait        // wait for the peer's doGrant
)

func (v stepKind) sends() bool { return v == doSend || v == doSendInvalidate || v == doGrant }

func (v stepKind) request() nd.RequestType {
	switch v {
	case doWrite:
		return nd.RequestWrite
	case doRead:
		return nd.RequestRead
	case doBind:
		return nd.RequestBind
	case doFastRegister:
		return nd.RequestFastRegister
	case doInvalidate:
		return nd.RequestInvalidate
	}
	return nd.RequestSend
}

// step is one request, and what is to come of it.
type step struct {
	stepKind
	flags       nd.OpFlags
	parts       []span // of the own region: from where, or for a Read to where
	size        int
	at          int             // in the place that the peer keeps for this connection
	usesGrant   bool            // by the peer's grant instead of its region's token
	sum         uint64          // of the bytes: for a Read what it brings, for a message what it carries
	receiveInto []span          // of the peer's region: the Receive that takes the message
	visible     []expectedBytes // what the peer sees when it has the message
}

// expectedBytes is a part of a side's region and the sum of its bytes.
type expectedBytes struct {
	span
	sum uint64
}

// direction is the model of one direction of one connection.
type direction struct {
	conn    int
	source  []byte // of the side that posts
	written []byte // what is in the other side's place
	grant   struct {
		live, fresh bool // fresh: made in this round
		fast        bool
		rights      nd.OpFlags
	} // by the side that posts, to the other
	steps []step // of this round
}

// plan is the model of a run. Both halves have the same.
type plan struct {
	*rand.Rand
	inline     int                        // bytes; 0 = no inline requests
	fast       bool                       // there is fast registration
	directions [2][stressConns]*direction // by the side that posts
}

func newPlan(seed uint64, inline int, fast bool) *plan {
	p := &plan{Rand: rand.New(rand.NewPCG(seed, 1)), inline: inline, fast: fast}
	for side := range p.directions {
		source := make([]byte, stressArea)
		fill(source, seed+uint64(side))
		for i := range p.directions[side] {
			p.directions[side][i] = &direction{conn: i, source: source, written: make([]byte, stressArea)}
		}
	}
	return p
}

// round makes the steps of the next round.
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

// addGrants makes the first steps of a lane: those that grant the peer access, or end it.
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
	g.live, g.fresh, g.fast = true, true, p.fast && p.oneIn(2)
	g.rights = []nd.OpFlags{nd.AllowRead, nd.AllowWrite, nd.AllowRead | nd.AllowWrite}[p.IntN(3)]
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

// oneIn is true once in n times.
func (p *plan) oneIn(n int) bool { return p.IntN(n) == 0 }

// flags picks flags that every request takes, and those of messages.
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
	if v.sends() && p.oneIn(3) {
		f |= nd.SendAndSolicitEvent
	}
	return f
}
