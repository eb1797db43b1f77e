package ndtest

import (
	"math/rand/v2"

	"github.com/softnd/softnd/nd"
)

// The region of each half: the bytes that it sends, then for every connection a place that the
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

// span is a part of a half's region.
type span struct{ off, n int }

// verb says what a step of the plan does.
type verb int

const (
	doWrite verb = iota
	doRead
	doSend
	doSendInvalidate
	doBind         // grant the peer access, by a window
	doFastRegister // the same by a region
	doGrant        // send what doBind or doFastRegister made
	doInvalidate   // end the grant
	doAwait        // wait for the peer's doGrant
)

func (v verb) sends() bool { return v == doSend || v == doSendInvalidate || v == doGrant }

func (v verb) request() nd.RequestType {
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
	verb
	flags   nd.OpFlags
	parts   []span // of the own region: from where, or for a Read to where
	size    int
	at      int     // in the place that the peer keeps for this connection
	granted bool    // by the peer's grant instead of its region's token
	sum     uint64  // of the bytes: for a Read what it brings, for a message what it carries
	room    []span  // of the peer's region: the Receive that takes the message
	seen    []sight // what the peer sees when it has the message
}

// sight is a part of a half's region and the sum of its bytes.
type sight struct {
	span
	sum uint64
}

// lane is the model of one direction of one connection.
type lane struct {
	conn    int
	source  []byte // of the half that posts
	written []byte // what is in the other half's place
	grant   struct {
		live, fresh bool // fresh: made in this round
		fast        bool
		rights      nd.OpFlags
	} // by the half that posts, to the other
	steps []step // of this round
}

// plan is the model of a run. Both halves have the same.
type plan struct {
	*rand.Rand
	inline int                   // bytes; 0 = no inline requests
	fast   bool                  // there is fast registration
	lanes  [2][stressConns]*lane // by the half that posts
}

func newPlan(seed uint64, inline int, fast bool) *plan {
	p := &plan{Rand: rand.New(rand.NewPCG(seed, 1)), inline: inline, fast: fast}
	for half := range p.lanes {
		source := make([]byte, stressArea)
		fill(source, seed+uint64(half))
		for i := range p.lanes[half] {
			p.lanes[half][i] = &lane{conn: i, source: source, written: make([]byte, stressArea)}
		}
	}
	return p
}

// round makes the steps of the next round.
func (p *plan) round() {
	for i := range stressConns {
		for half := range p.lanes {
			p.begin(p.lanes[half][i])
		}
		for half := range p.lanes {
			p.invent(p.lanes[half][i], p.lanes[1-half][i])
		}
	}
}

// begin makes the first steps of a lane: those that grant the peer access, or end it.
func (p *plan) begin(l *lane) {
	l.steps, l.grant.fresh = nil, false
	if l.grant.live && p.one(2) {
		l.add(step{verb: doInvalidate, flags: p.flags(doInvalidate)})
		l.grant.live = false
	}
	if l.grant.live || p.one(4) {
		return
	}
	g := &l.grant
	g.live, g.fresh, g.fast = true, true, p.fast && p.one(2)
	g.rights = []nd.OpFlags{nd.AllowRead, nd.AllowWrite, nd.AllowRead | nd.AllowWrite}[p.IntN(3)]
	if g.fast {
		l.add(step{verb: doFastRegister, flags: p.flags(doFastRegister)})
	} else {
		bind := step{verb: doBind, flags: p.flags(doBind) | g.rights}
		if p.one(2) {
			bind.flags |= nd.ThisEndpointOnly
		}
		l.add(bind)
	}
	l.add(step{verb: doGrant, flags: p.flags(doGrant) &^ nd.Defer, size: nd.WindowDescriptorSize,
		parts: []span{{descriptorAt(l.conn), nd.WindowDescriptorSize}}})
}

func (l *lane) add(s step) *step {
	l.steps = append(l.steps, s)
	return &l.steps[len(l.steps)-1]
}

// one is true once in n times.
func (p *plan) one(n int) bool { return p.IntN(n) == 0 }

// flags picks flags that every request takes, and those of messages.
func (p *plan) flags(v verb) (f nd.OpFlags) {
	if p.one(3) {
		f |= nd.SilentSuccess
	}
	if p.one(6) {
		f |= nd.ReadFence
	}
	if p.one(4) {
		f |= nd.Defer
	}
	if v.sends() && p.one(3) {
		f |= nd.SendAndSolicitEvent
	}
	return f
}
