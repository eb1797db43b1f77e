package window

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// maxRange is the longest range that the owner binds; maxMemory is the memory of which the ranges are parts.
const (
	maxRange  = 3 << 20
	maxMemory = 5 << 20
)

// bindingOwner is the owner's part of the stress tests.
type bindingOwner struct {
	*side
	t      *testing.T
	random *rand.Rand
	mem    []byte
	window *Window
	region *Region
	board  *board
	at     shm.Offset // of the board
	binds  uint64
	saved  []byte // the bytes of the latest range after its drain
	peers  []executor
}

func newBindingOwner(t *testing.T) *bindingOwner {
	s := join(t, newArena(t))
	o := &bindingOwner{side: s, t: t, random: rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0)), mem: s.alloc(t, maxMemory), saved: make([]byte, maxRange)}
	o.region, o.window = s.region(t, o.mem, allRights), s.window(t)
	var err error
	if o.at, err = s.member.Alloc(boardSize); err != nil {
		t.Fatal(err)
	}
	if o.board, err = shm.At[board](s.arena, o.at); err != nil {
		t.Fatal(err)
	}
	o.board.state.Store(established)
	fill(o.mem, owned)
	return o
}

const boardSize = uint64(unsafe.Sizeof(board{}))

// remoteCopier is a copier in another process.
type remoteCopier struct {
	*proctest.Process
	id     shm.MemberID
	hazard *atomic.Uint64
}

func (o *bindingOwner) startCopier(number int, whole bool) *remoteCopier {
	o.t.Helper()
	c := proctest.StartWith(o.t, o.arena.File(), roleCopier, uint64(o.at), number, o.domain.Adapter, whole)
	var id shm.MemberID
	var at shm.Offset
	if _, err := fmt.Sscan(c.Hear(), &id, &at); err != nil {
		o.t.Fatal(err)
	}
	word, err := shm.At[atomic.Uint64](o.arena, at)
	if err != nil {
		o.t.Fatal(err)
	}
	h := executor{word, peer(o.t, o.arena, id)}
	o.domain.AddHazard(h.word, h.peer)
	o.peers = append(o.peers, h)
	c.Say("go")
	return &remoteCopier{c, id, word}
}

// bind binds the window to a new range.
func (o *bindingOwner) bind(length uint64) (mem []byte) {
	o.t.Helper()
	at := o.random.Uint64N(maxMemory - length + 1)
	mem = o.mem[at : at+length]
	fill(mem, fresh)
	token := bind(o.t, o.window, o.region, mem, Read|Write, 0, false)
	o.binds++
	o.board.post(notice{o.binds, token, shm.AddressOf(mem), length})
	return mem
}

func (o *bindingOwner) someLength() uint64 {
	return 1 + o.random.Uint64N([]uint64{4 << 10, 256 << 10, maxRange, maxRange}[o.random.IntN(4)])
}

// invalidate invalidates the window, waits for the drain, and checks that no copier writes afterwards.
func (o *bindingOwner) invalidate(mem []byte, checks int) {
	o.t.Helper()
	if _, _, ok := o.window.Invalidate(0); !ok {
		o.t.Fatal("invalidate")
	}
	o.await("the drain ends", o.window.EndInvalidation)
	o.reuse(mem, checks)
}

// disconnect ends the connections instead, and opens them again.
func (o *bindingOwner) disconnect(mem []byte, checks int) {
	o.t.Helper()
	word, open, ended := &o.board.state, uint32(established), uint32(established+1)
	if o.random.IntN(2) == 0 {
		word, open, ended = &o.board.disconnected, 0, 1
	}
	word.Swap(ended)
	for _, h := range o.peers {
		o.await("a copier is seen idle", func() bool { return h.word.Load() == 0 || h.peer.Gone() })
	}
	o.reuse(mem, checks)
	if _, _, ok := o.window.Invalidate(0); !ok {
		o.t.Fatal("invalidate")
	}
	o.await("the drain ends", o.window.EndInvalidation)
	word.Store(open)
}

// await waits until ok returns true or a copier fails.
func (o *bindingOwner) await(what string, ok func() bool) {
	o.t.Helper()
	for range 1000 {
		if ok() {
			return
		}
	}
	tries := 0
	proctest.Eventually(o.t, what, func() bool {
		if tries++; tries%64 == 0 {
			o.member.CheckLiveness(func(shm.MemberID) {})
		}
		return ok() || o.failed()
	})
}

// reuse writes to memory that no copier may access, and checks what copiers have written before.
func (o *bindingOwner) reuse(mem []byte, checks int) {
	o.t.Helper()
	copy(o.saved, mem)
	fill(mem, owned)
	o.watch(checks)
	if b := o.saved[:len(mem)]; !only(b, fresh, valueOf(o.binds)) {
		at := firstOther(b, fresh, valueOf(o.binds))
		o.t.Fatalf("bind %d: byte %d of its %d is %#x, which no copier has written through it", o.binds, at, len(mem), b[at])
	}
}

// watch checks all of the owner's memory several times.
func (o *bindingOwner) watch(checks int) {
	o.t.Helper()
	for i := range checks + 1 {
		if !only(o.mem, owned) {
			at := firstOther(o.mem, owned)
			o.t.Fatalf("check %d after the end of bind %d: a copier has written %#x to byte %d", i, o.binds, o.mem[at], at)
		}
		if i < checks {
			proctest.Yield()
		}
	}
}

func (o *bindingOwner) failed() bool {
	for i := range o.board.copiers {
		if o.board.copiers[i].failed.Load() != 0 {
			return true
		}
	}
	return false
}

// total returns the sums of the tallies.
func (o *bindingOwner) total() (reads, writes [len(faultText)]uint64, stale uint64) {
	for i := range o.board.copiers {
		c := &o.board.copiers[i]
		for f := range reads {
			reads[f] += c.reads[f].Load()
			writes[f] += c.writes[f].Load()
		}
		stale += c.stale.Load()
	}
	return reads, writes, stale
}

// isComplete reports whether copies have ended in each possible way.
func (o *bindingOwner) isComplete() bool {
	reads, writes, stale := o.total()
	for _, f := range []Fault{NoFault, faultRevoked, faultBadToken, FaultDisconnected} {
		if reads[f] == 0 || writes[f] == 0 {
			return false
		}
	}
	return stale > 0
}

func (o *bindingOwner) report() {
	reads, writes, stale := o.total()
	fast := uint64(0)
	for i := range o.board.copiers {
		fast += o.board.copiers[i].fast.Load()
	}
	o.t.Logf("%d binds; %d copies by the fast path; %d reads and %d writes done, %d and %d revoked, %d and %d refused, %d of these with older tokens; %d and %d over ended connections",
		o.binds, fast, reads[NoFault], writes[NoFault], reads[faultRevoked], writes[faultRevoked], reads[faultBadToken], writes[faultBadToken], stale, reads[FaultDisconnected], writes[FaultDisconnected])
}

// round binds the window, and invalidates it or disconnects.
func (o *bindingOwner) round() {
	mem := o.bind(o.someLength())
	for range o.random.IntN(8) {
		proctest.Yield()
	}
	checks := o.random.IntN(4)
	if o.binds%32 == 0 {
		checks = 20
	}
	if o.binds%4 == 0 {
		o.disconnect(mem, checks)
		return
	}
	o.invalidate(mem, checks)
}

// stress makes rounds until isComplete, and further ones for some time.
func (o *bindingOwner) stress() {
	const least, most, budget = 50, 400, 2 * time.Second
	for began := time.Now(); o.binds < least || !o.isComplete() || o.binds < most && !testing.Short() && time.Since(began) < budget; {
		if o.round(); o.failed() {
			return // the copier that has failed says why
		}
		if !o.isComplete() && time.Since(began) > 5*proctest.Timeout {
			o.report()
			o.t.Fatal("copies have not ended in each possible way")
		}
	}
	o.report()
}

// The promise of the package: after the drain no process accesses the memory.
func TestDrainedMemoryIsNotAccessed(t *testing.T) {
	o := newBindingOwner(t)
	var copiers []*remoteCopier
	for i := range 3 {
		copiers = append(copiers, o.startCopier(i, false))
	}
	o.stress()
	o.board.stop.Store(1)
	for _, c := range copiers {
		c.Wait()
	}
	o.watch(1)
}

// The same with goroutines, for the race detector.
func TestDrainedMemoryIsNotAccessedInOneProcess(t *testing.T) {
	o := newBindingOwner(t)
	var copiers sync.WaitGroup
	end := func() {
		o.board.stop.Store(1)
		copiers.Wait()
	}
	for i := range 3 {
		s := join(t, o.arena)
		h := executor{s.hazard, peer(t, o.arena, s.member.ID())}
		o.domain.AddHazard(h.word, h.peer)
		o.peers = append(o.peers, h)
		c, err := newCopier(s, o.board, i, o.domain.Adapter, false)
		if err != nil {
			t.Fatal(err)
		}
		copiers.Go(func() {
			if err := c.run(); err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(end) // before the sides leave the arena
	}
	o.stress()
	end()
	o.watch(1)
}

// The promise holds, and the drain ends, when a copier is killed at a random moment.
func TestDrainEndsAfterCopierIsKilled(t *testing.T) {
	o := newBindingOwner(t)
	steady := o.startCopier(0, false)
	victims := 12
	if testing.Short() || raceEnabled {
		victims = 4
	}
	caught := 0
	for i := range victims {
		c := o.startCopier(1, i%2 == 0)
		for range 2 + o.random.IntN(8) {
			o.round()
		}
		mem := o.bind(maxRange)
		for range o.random.IntN(4) {
			proctest.Yield()
		}
		c.Kill()
		if c.hazard.Load() != 0 {
			caught++
		}
		o.invalidate(mem, 4)
		if o.failed() {
			break
		}
	}
	t.Logf("%d of %d were killed during a copy", caught, victims)
	o.report()
	o.board.stop.Store(1)
	steady.Wait()
}

// catch starts a copier and stops its process during a copy.
func (o *bindingOwner) catch() (c *remoteCopier, mem []byte) {
	o.t.Helper()
	c = o.startCopier(0, true)
	mem = o.bind(maxRange)
	copying := func() bool { return hazardNames(c.hazard.Load(), o.window.Descriptor().Token) }
	proctest.Eventually(o.t, "a copier is stopped during a copy", func() bool {
		if !copying() {
			return false
		}
		if c.Stop(); copying() {
			return true
		}
		c.Resume()
		return false
	})
	return c, mem
}

// checkNotDrained checks several times that the stopped copier keeps the token from being drained.
func (o *bindingOwner) checkNotDrained(c *remoteCopier, token nd.Token) {
	o.t.Helper()
	for i := range 300 {
		if o.domain.drained(token) {
			o.t.Fatalf("check %d: drained, while a stopped copier may continue at any time", i)
		}
		o.member.CheckLiveness(func(id shm.MemberID) {
			if id == c.id {
				o.t.Fatal("a stopped process is reported as dead")
			}
		})
		proctest.Yield()
	}
}

// A process that is stopped with its hazard set delays the drain, because it may continue its chunk at any time. When it
// continues, it finds that the token is invalid.
func TestStoppedExecutorDelaysDrain(t *testing.T) {
	o := newBindingOwner(t)
	cutOff := uint64(0)
	for began := time.Now(); cutOff < 3; {
		o.board.stop.Store(0)
		c, mem := o.catch()
		token, _, ok := o.window.Invalidate(0)
		if !ok {
			t.Fatal("invalidate")
		}
		reads, writes, _ := o.total()
		o.checkNotDrained(c, token)
		if r, w, _ := o.total(); r != reads || w != writes {
			t.Fatal("the stopped copier has made a copy")
		}
		c.Resume()
		proctest.Eventually(t, "the drain ends", o.window.EndInvalidation)
		fill(mem, owned)
		o.watch(10)
		o.board.stop.Store(1)
		c.Wait()
		if c.hazard.Load() != 0 {
			t.Error("the hazard of the copier is still set")
		}
		r, w, _ := o.total()
		if done := r[NoFault] + w[NoFault] - reads[NoFault] - writes[NoFault]; done > 1 {
			t.Errorf("%d copies were done after the invalidation", done)
		}
		if cutOff = r[faultRevoked] + w[faultRevoked]; cutOff < 3 && time.Since(began) > 5*proctest.Timeout {
			t.Fatal("too few of the stopped copies fail")
		}
	}
	o.report()
}

// When a stopped process is killed, the drain ends as soon as a member finds it dead.
func TestDrainEndsAfterStoppedExecutorIsKilled(t *testing.T) {
	o := newBindingOwner(t)
	for range 3 {
		c, mem := o.catch()
		token, _, ok := o.window.Invalidate(0)
		if !ok {
			t.Fatal("invalidate")
		}
		o.checkNotDrained(c, token)
		deaths := o.member.Arena().Deaths()
		c.Kill()
		if o.domain.drained(token) && o.member.Arena().Deaths() == deaths { // an event may have reported it
			t.Error("drained before any member has found the process dead")
		}
		noticed := false
		o.member.CheckLiveness(func(id shm.MemberID) {
			if id == c.id {
				noticed = c.hazard.Load() != 0
			}
		})
		if drained := o.window.EndInvalidation(); !noticed || !drained {
			t.Fatalf("after the sweep: noticed %v, drained %v", noticed, drained)
		}
		fill(mem, owned)
		o.watch(10)
	}
}
