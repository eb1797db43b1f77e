package window

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync/atomic"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// The players of the stress tests. An owner binds a window to one range after
// the other, and copiers, its peers, read and write through it as fast as they
// can, with the token that is valid now and with older ones.
//
// Three kinds of bytes tell who has written what, and when:
//
//	fresh    the owner's, before a bind: what a copier may read
//	value    the copiers' own, another one for each bind: what they write
//	owned    the owner's, after the drain: no copier may read or change it
const (
	fresh = 0x40
	owned = 0xee
)

// valueOf is what copiers write through a bind.
func valueOf(bind uint64) byte { return byte(bind%60) + 1 }

const maxCopiers = 8

// board is what the players share: the owner's notice of the latest bind, and
// the copiers' counts.
type board struct {
	bind    atomic.Uint64 // number of the latest bind; 0 while the rest changes
	token   atomic.Uint32
	stop    atomic.Uint32
	address atomic.Uint64
	length  atomic.Uint64
	link    atomic.Uint32 // the state of all copiers' connections
	left    atomic.Uint32
	_       [88]byte
	copiers [maxCopiers]tally
}

// tally is one copier's count of how its copies ended.
type tally struct {
	reads  [len(faultText)]atomic.Uint64
	writes [len(faultText)]atomic.Uint64
	stale  atomic.Uint64 // refusals of older tokens
	direct atomic.Uint64 // done by Put and Get
	failed atomic.Uint64 // 1: the copier has seen something wrong
}

// notice is a copy of the board's notice.
type notice struct {
	bind            uint64
	token           nd.Token
	address, length uint64
}

func (b *board) post(n notice) {
	b.bind.Store(0)
	b.token.Store(uint32(n.token))
	b.address.Store(n.address)
	b.length.Store(n.length)
	b.bind.Store(n.bind)
}

// read returns the notice; ok is false while it changes.
func (b *board) read() (n notice, ok bool) {
	n = notice{b.bind.Load(), nd.Token(b.token.Load()), b.address.Load(), b.length.Load()}
	return n, n.bind != 0 && n.bind == b.bind.Load()
}

// copier copies until the board says stop.
type copier struct {
	side   *side
	board  *board
	tally  *tally
	to     *Peer
	random *rand.Rand
	whole  bool // every copy takes the whole range

	known   [4]known // the latest notices, by bind
	latest  uint64
	sink    []byte
	region  *Region // over the sources; nil: they are plain memory
	landing *Region // over the sink, if there is a region
}

type known struct {
	notice
	source []byte // full of the value of its bind
}

func newCopier(s *side, b *board, number int, owner Owner, whole bool) (*copier, error) {
	c := &copier{
		side: s, board: b, tally: &b.copiers[number], whole: whole,
		to:     &Peer{Owner: owner, Link: Link{&b.link, linkOpen, &b.left}},
		random: rand.New(rand.NewPCG(uint64(number), uint64(s.member.ID()))), sink: make([]byte, maxRange),
	}
	sources := make([]byte, len(c.known)*maxRange)
	for i := range c.known {
		c.known[i].source = sources[i*maxRange : (i+1)*maxRange]
	}
	if number%2 == 1 { // two tokens in use at a time
		var err error
		if c.region, err = s.space.NewRegion(); err == nil {
			err = c.region.Register(sources, 0)
		}
		if err == nil {
			c.landing, err = s.space.NewRegion()
		}
		if err == nil {
			err = c.landing.Register(c.sink, nd.AllowLocalWrite)
		}
		return c, err
	}
	return c, nil
}

func (c *copier) run() error {
	err := c.copyAll()
	if err != nil {
		c.tally.failed.Store(1)
	}
	return err
}

func (c *copier) copyAll() error {
	refused := false // the latest token is of no use any more
	for c.board.stop.Load() == 0 {
		n, ok := c.board.read()
		if ok && n.bind != c.latest {
			k := &c.known[n.bind%4]
			k.notice, c.latest, refused = n, n.bind, false
			fill(k.source[:n.length], valueOf(n.bind))
		}
		if c.latest == 0 || refused && c.random.IntN(16) != 0 {
			yield()
			continue
		}
		k := &c.known[c.latest%4]
		if refused || !c.whole && c.random.IntN(8) == 0 {
			k = &c.known[c.random.IntN(4)]
		}
		if k.bind == 0 {
			continue
		}
		f, err := c.copyOnce(k)
		if err != nil {
			return err
		}
		if k.bind == c.latest && f != NoFault {
			refused = true
		}
		if c.random.IntN(16) == 0 {
			runtime.Gosched() // the owner may be a goroutine beside this one
		}
	}
	return nil
}

// copyOnce makes one copy in some direction, of some size, and looks at what
// came of it.
func (c *copier) copyOnce(k *known) (Fault, error) {
	n := k.length
	if !c.whole {
		switch c.random.IntN(4) {
		case 0:
			n = min(n, 64)
		case 1:
			n = min(n, Chunk)
		}
		n = 1 + c.random.Uint64N(n)
	}
	far := &Ref{Token: k.token, Rights: Remote | Read, Address: k.address + c.random.Uint64N(k.length-n+1), Of: c.to}
	if c.region != nil && n <= Chunk && c.random.IntN(4) != 0 {
		if granted, err := c.copyDirectly(k, far.Address, n); granted || err != nil {
			return NoFault, err
		}
	}
	var moved uint64
	var f, g Fault
	read := c.random.IntN(2) == 0
	if read {
		moved, g, f = c.side.guard.Copy(&Ref{Mem: c.sink}, far, n)
		c.tally.reads[f].Add(1)
		if b := c.sink[:moved]; !only(b, fresh, valueOf(k.bind)) {
			return f, fmt.Errorf("read of %d bytes through bind %d: moved %d, %v: there are bytes among them that were never in this range while it was bound (%x at %d)",
				n, k.bind, moved, f, b[firstOther(b, fresh, valueOf(k.bind))], firstOther(b, fresh, valueOf(k.bind)))
		}
	} else {
		far.Rights = Remote | Write
		source := &Ref{Mem: k.source}
		if c.region != nil {
			local, _ := c.region.Tokens()
			source = &Ref{Token: local, Rights: Local | Read, Address: shm.AddressOf(k.source)}
		}
		moved, f, g = c.side.guard.Copy(far, source, n)
		c.tally.writes[f].Add(1)
	}
	switch {
	case g != NoFault:
		return f, fmt.Errorf("our own side: %v", g)
	case f == NoFault && moved != n || moved > n || f != NoFault && f != Revoked && moved != 0:
		return f, fmt.Errorf("moved %d of %d bytes, %v", moved, n, f)
	case f == Ended:
	case k.bind != c.latest:
		c.tally.stale.Add(1)
		if f != BadToken {
			return f, fmt.Errorf("bind %d was invalidated before bind %d, and a copy through it: %v", k.bind, c.latest, f)
		}
	case f != NoFault && f != BadToken && f != Revoked:
		return f, fmt.Errorf("a range that was granted, with its own token: %v", f)
	}
	return f, nil
}

// copyDirectly is copyOnce for what needs no explanation. If it was not granted,
// the caller is to find out why.
func (c *copier) copyDirectly(k *known, address, n uint64) (granted bool, err error) {
	if c.random.IntN(2) == 0 {
		n = min(n, 8)
	}
	if c.random.IntN(2) == 0 {
		local, _ := c.region.Tokens()
		if granted = c.side.guard.Put(c.to, k.token, address, local, k.source[:n]); granted {
			c.tally.writes[NoFault].Add(1)
		}
	} else {
		local, _ := c.landing.Tokens()
		if granted = c.side.guard.Get(c.to, k.token, address, local, c.sink[:n]); granted {
			c.tally.reads[NoFault].Add(1)
			if b := c.sink[:n]; !only(b, fresh, valueOf(k.bind)) {
				return granted, fmt.Errorf("Get of %d bytes through bind %d has brought %x", n, k.bind, b[firstOther(b, fresh, valueOf(k.bind))])
			}
		}
	}
	if granted {
		c.tally.direct.Add(1)
		if k.bind != c.latest {
			return granted, fmt.Errorf("bind %d was invalidated before bind %d, and still grants %d bytes", k.bind, c.latest, n)
		}
	}
	return granted, nil
}

func firstOther(b []byte, values ...byte) int {
	for i := range b {
		if !only(b[i:i+1], values...) {
			return i
		}
	}
	return 0
}

// playCopier is a copier in a process of its own. Its arguments are the offset
// of the board, its number, the owner, and whether to copy whole ranges.
func playCopier(a *actor) error {
	var words [3]uint64
	for i := range words {
		var err error
		if words[i], err = strconv.ParseUint(a.args[i], 10, 64); err != nil {
			return err
		}
	}
	b, err := shm.At[board](a.arena, shm.Offset(words[0]))
	if err != nil {
		return err
	}
	s, err := newSide(a.arena)
	if err != nil {
		return err
	}
	c, err := newCopier(s, b, int(words[1]), Owner(words[2]), a.args[3] == "true")
	if err != nil {
		return err
	}
	a.say("%d %d", s.member.ID(), s.at)
	if _, err := a.hear(); err != nil { // until the owner watches our hazard
		return err
	}
	if err := c.run(); err != nil {
		return err
	}
	return s.member.Leave()
}
