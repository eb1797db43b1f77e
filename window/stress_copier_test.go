package window

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync/atomic"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// In the stress tests an owner binds a window to one range after another. Copiers, its peers, read and write through the
// window as fast as they can, with its present token and with older ones.
//
// The value of a byte says which side has written it, and when:
//
//	fresh    the owner, before a bind: copiers may read it
//	valueOf  a copier; another value for each bind
//	owned    the owner, after the drain: no copier may read or change it
const (
	fresh = 0x40
	owned = 0xee
)

// valueOf returns the value that copiers write through a bind.
func valueOf(bind uint64) byte { return byte(bind%60) + 1 }

const maxCopiers = 8

// board is in the arena: the owner's notice of the latest bind, and the copiers' counts.
type board struct {
	bind         atomic.Uint64 // number of the latest bind; 0 while the other fields change
	token        atomic.Uint32
	stop         atomic.Uint32
	address      atomic.Uint64
	length       atomic.Uint64
	state        atomic.Uint32 // the state of all copiers' connections
	disconnected atomic.Uint32
	_            [88]byte
	copiers      [maxCopiers]tally
}

// tally is one copier's count of how its copies ended.
type tally struct {
	reads  [len(faultText)]atomic.Uint64
	writes [len(faultText)]atomic.Uint64
	stale  atomic.Uint64 // copies with older tokens, which were refused
	fast   atomic.Uint64 // copies by Put and Get
	failed atomic.Uint64 // 1: the copier has found an error
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

// copier copies until board.stop is set.
type copier struct {
	side   *side
	board  *board
	tally  *tally
	to     *FarEnd
	random *rand.Rand
	whole  bool // each copy is of the whole range

	known  [4]known // the latest notices, by bind
	latest uint64
	sink   []byte
	region *Region // of the sources; nil: they are plain memory
	sinks  *Region // of the sink; nil if region is
}

type known struct {
	notice
	source []byte // each byte is the value of its bind
}

func newCopier(s *side, b *board, number int, owner uint64, whole bool) (*copier, error) {
	c := &copier{
		side: s, board: b, tally: &b.copiers[number], whole: whole,
		to:     &FarEnd{Adapter: owner, State: &b.state, Established: established, Disconnected: &b.disconnected},
		random: rand.New(rand.NewPCG(uint64(number), uint64(s.member.ID()))), sink: make([]byte, maxRange),
	}
	sources := make([]byte, len(c.known)*maxRange)
	for i := range c.known {
		c.known[i].source = sources[i*maxRange : (i+1)*maxRange]
	}
	if number%2 == 1 { // its copies use two tokens
		var err error
		if c.region, err = s.domain.NewRegion(); err == nil {
			err = c.region.Register(sources, 0, nil)
		}
		if err == nil {
			c.sinks, err = s.domain.NewRegion()
		}
		if err == nil {
			err = c.sinks.Register(c.sink, nd.AllowLocalWrite, nil)
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
	refused := false // the latest token is invalid
	for c.board.stop.Load() == 0 {
		n, ok := c.board.read()
		if ok && n.bind != c.latest {
			k := &c.known[n.bind%4]
			k.notice, c.latest, refused = n, n.bind, false
			fill(k.source[:n.length], valueOf(n.bind))
		}
		if c.latest == 0 || refused && c.random.IntN(16) != 0 {
			proctest.Yield()
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
			runtime.Gosched() // the owner may be a goroutine of this process
		}
	}
	return nil
}

// copyOnce makes one copy of random direction and size, and checks its result.
func (c *copier) copyOnce(k *known) (Fault, error) {
	n := k.length
	if !c.whole {
		switch c.random.IntN(4) {
		case 0:
			n = min(n, 64)
		case 1:
			n = min(n, ChunkSize)
		}
		n = 1 + c.random.Uint64N(n)
	}
	far := &Operand{Token: k.token, Rights: Remote | Read, Address: k.address + c.random.Uint64N(k.length-n+1), Far: c.to}
	if c.region != nil && n <= ChunkSize && c.random.IntN(4) != 0 {
		if copied, err := c.copyFast(k, far.Address, n); copied || err != nil {
			return NoFault, err
		}
	}
	var moved uint64
	var f, g Fault
	read := c.random.IntN(2) == 0
	if read {
		moved, g, f = c.side.guard.Copy(&Operand{Mem: c.sink}, far, n)
		c.tally.reads[f].Add(1)
		if b := c.sink[:moved]; !only(b, fresh, valueOf(k.bind)) {
			return f, fmt.Errorf("read of %d bytes through bind %d: moved %d, %v: has a byte that was never in this range while it was bound (%x at %d)",
				n, k.bind, moved, f, b[firstOther(b, fresh, valueOf(k.bind))], firstOther(b, fresh, valueOf(k.bind)))
		}
	} else {
		far.Rights = Remote | Write
		source := &Operand{Mem: k.source}
		if c.region != nil {
			local, _ := c.region.Tokens()
			source = &Operand{Token: local, Rights: Local | Read, Address: shm.AddressOf(k.source)}
		}
		moved, f, g = c.side.guard.Copy(far, source, n)
		c.tally.writes[f].Add(1)
	}
	switch {
	case g != NoFault:
		return f, fmt.Errorf("the local operand: %v", g)
	case f == NoFault && moved != n || moved > n || f != NoFault && f != faultRevoked && f != FaultDisconnected && moved != 0:
		return f, fmt.Errorf("moved %d of %d bytes, %v", moved, n, f)
	case f == FaultDisconnected:
	case k.bind != c.latest:
		c.tally.stale.Add(1)
		if f != faultBadToken {
			return f, fmt.Errorf("bind %d was invalidated before bind %d, and a copy through it: %v", k.bind, c.latest, f)
		}
	case f != NoFault && f != faultBadToken && f != faultRevoked:
		return f, fmt.Errorf("a range within the bind, with its token: %v", f)
	}
	return f, nil
}

// copyFast is copyOnce by the fast path. It returns false if the fast path has refused the copy.
func (c *copier) copyFast(k *known, address, n uint64) (copied bool, err error) {
	if c.random.IntN(2) == 0 {
		n = min(n, 8)
	}
	if c.random.IntN(2) == 0 {
		local, _ := c.region.Tokens()
		if copied = c.side.guard.Put(c.to, &nd.SGE{Buffer: k.source[:n], Token: local}, address, k.token) == NoFault; copied {
			c.tally.writes[NoFault].Add(1)
		}
	} else {
		local, _ := c.sinks.Tokens()
		if copied = c.side.guard.Get(c.to, &nd.SGE{Buffer: c.sink[:n], Token: local}, address, k.token) == NoFault; copied {
			c.tally.reads[NoFault].Add(1)
			if b := c.sink[:n]; !only(b, fresh, valueOf(k.bind)) {
				return copied, fmt.Errorf("get of %d bytes through bind %d has copied %x", n, k.bind, b[firstOther(b, fresh, valueOf(k.bind))])
			}
		}
	}
	if copied {
		c.tally.fast.Add(1)
		if k.bind != c.latest {
			return copied, fmt.Errorf("bind %d was invalidated before bind %d, and a copy of %d bytes succeeds", k.bind, c.latest, n)
		}
	}
	return copied, nil
}

func firstOther(b []byte, values ...byte) int {
	for i := range b {
		if !only(b[i:i+1], values...) {
			return i
		}
	}
	return 0
}

var roleCopier = arenaRole("copier", runCopier)

// runCopier is a copier in its own process. Its arguments are the offset of the board, its number, the owner's adapter, and
// whether to copy whole ranges.
func runCopier(self *proctest.Self, a *shm.Arena) error {
	var words [3]uint64
	for i := range words {
		var err error
		if words[i], err = strconv.ParseUint(self.Args[i], 10, 64); err != nil {
			return err
		}
	}
	b, err := shm.At[board](a, shm.Offset(words[0]))
	if err != nil {
		return err
	}
	s, err := newSide(a)
	if err != nil {
		return err
	}
	c, err := newCopier(s, b, int(words[1]), words[2], self.Args[3] == "true")
	if err != nil {
		return err
	}
	self.Say("%d %d", s.member.ID(), s.at)
	if _, err := self.Hear(); err != nil { // until the owner has added our hazard
		return err
	}
	if err := c.run(); err != nil {
		return err
	}
	return s.member.Leave()
}
