package soak

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/softnd/softnd/nd"
)

// step makes a random step.
func (s *soakSession) step() {
	if time.Since(s.moved) > soakStalled {
		s.fail(fmt.Errorf("no progress for %v: %d requests, %d receives, %d messages to send", soakStalled, len(s.pending), s.receives, len(s.outbox)))
	}
	if s.IntN(8) == 0 {
		s.checkTrap()
	}
	if s.far.fire && s.IntN(8) > 0 {
		if len(s.pending) <= soakDepth/2 {
			s.fire()
		}
		s.take(s.cq.Poll(s.results[:])) // which copies
		return
	}
	if s.endsAccess && s.said[0] > 0 {
		s.useTrap()
	}
	switch k := s.IntN(40); {
	case k == 0:
		s.wait()
	case k < 12 || len(s.pending) > soakDepth/2:
		n := s.cq.Poll(s.results[:1+s.IntN(len(s.results))])
		if s.take(n); n == 0 && len(s.pending) > soakDepth/2 {
			s.wait()
		}
	case k < 24 && len(s.outbox) > 0:
		s.sendNext()
	case s.endsAccess && k < 38:
	default:
		if !s.act() {
			s.wait()
		}
	}
}

// wait waits a moment for results.
func (s *soakSession) wait() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	n, _ := s.cq.Wait(ctx, s.results[:])
	s.take(n)
}

// act posts something. It returns false if nothing can be posted now.
func (s *soakSession) act() bool {
	if s.said[0] == 0 {
		return s.sendNext()
	}
	switch k := s.IntN(40); {
	case k < 8:
		return s.sendData()
	case k < 16:
		return s.write()
	case k < 22:
		return s.read()
	case k < 24:
		return s.count()
	case k < 27:
		return s.readAndInvalidate()
	case k < 29:
		return s.sendPattern()
	case k < 30:
		return s.transferNothing()
	case k < 34:
		s.useGrant()
	case k < 36:
		return s.sendAndInvalidate()
	case k < 38:
		s.useTrap()
	case k < 39:
		s.fail(s.cq.Resize(2*soakDepth + soakReceives + s.IntN(100)))
	}
	return true
}

// size chooses the size of a transfer.
func (s *soakSession) size(limit int) int {
	switch s.IntN(6) {
	case 0:
		return min(limit, s.IntN(limit+1))
	case 1:
		return min(limit, 1+s.IntN(8))
	case 2:
		return min(limit, 41+s.IntN(16)) // near the limits of ring entries
	}
	return min(limit, 1+s.IntN(4000))
}

// data returns n random bytes.
func (s *soakSession) data(n int) []byte { return soakNoise[s.IntN(len(soakNoise)-n):][:n] }

// ---- Requests to memory of the peer ----

// soakFar is the access that the peer has granted.
type soakFar struct {
	ok bool
	grantMessage
	desc nd.WindowDescriptor
	busy [len(soakSlotSizes)]bool // slots that the peer has not acknowledged

	fire      bool // to use the trap without a pause
	trap      nd.WindowDescriptor
	transfers [2]*soakTransfer // the source of Writes to the trap, and the sink of Reads
	burns     bool             // a transfer has succeeded
}

// Shared memory: the slots that the peer writes, the counter that it changes, then a pattern that it reads.
var soakSlotSizes = [...]int{8 << 10, 8 << 10, 8 << 10, 8 << 10, 24 << 10, 24 << 10, soakBig, soakBig}

const (
	soakCounter     = 4*8<<10 + 2*24<<10 + 2*soakBig
	soakSlots       = soakCounter + 8
	soakPatternSize = 256 << 10
	soakSharedSize  = soakSlots + soakPatternSize
	soakGuardSize   = 128 << 10
)

// slotAt is the offset of a slot.
func slotAt(slot int) (at int) {
	for _, n := range soakSlotSizes[:slot] {
		at += n
	}
	return at
}

// write writes into a slot, and tells the peer the hash.
func (s *soakSession) write() bool {
	slot := s.IntN(len(soakSlotSizes))
	if !s.far.ok || s.far.busy[slot] || !s.far.rights().Has(nd.AllowWrite) {
		return false
	}
	n := s.size(soakSlotSizes[slot])
	c := s.blocks.load(s.Rand, n)
	if c == nil {
		return false
	}
	data := s.data(n)
	c.fill(data)
	at := s.IntN(soakSlotSizes[slot] - n + 1)
	q := soakRequest{kind: nd.RequestWrite, bytes: n, done: func(bool) { c.drop() }}
	flags, sge, hasNumber := nd.OpFlags(0), nd.List(c.sge...), s.IntN(4) == 0
	if n <= s.inline && s.IntN(2) == 0 {
		flags, sge = nd.Inline, c.copied()
	}
	if !s.post(q, flags, func(x uint64, f nd.OpFlags) error {
		defer func() {
			if f.Has(nd.Inline) { // the memory is the program's again
				setAll(sge.First.Buffer, soakPoison)
			}
		}()
		to := s.far.desc.Address + uint64(slotAt(slot)+at)
		if hasNumber {
			return s.ep.WriteImmediate(x, sge, to, s.far.desc.Token, uint32(s.said[0]), f)
		}
		return s.ep.Write(x, sge, to, s.far.desc.Token, f)
	}) {
		c.drop()
		return false
	}
	s.rank.count(soakWrites)
	if hasNumber {
		s.rank.count(soakNumbers)
		s.said[0]++
	}
	s.far.busy[slot] = true
	s.say(mWrote, wroteMessage{Slot: uint32(slot), At: uint32(at), N: uint32(n), Sum: xxhash.Sum64(data)}, 0)
	return true
}

// count adds to the counter of the peer, which nothing else changes.
func (s *soakSession) count() bool {
	if !s.far.ok || !s.far.rights().Has(nd.AllowAtomic) {
		return false
	}
	b := s.blocks.free(s.Rand, 8)
	if b == nil {
		return false
	}
	b.used = true
	old, want := nd.SGE{Buffer: b.memory[:8:8], Token: b.token}, s.added
	setAll(old.Buffer, soakCleared)
	q := soakRequest{kind: nd.RequestFetchAndAdd, bytes: 8, done: func(ok bool) {
		if got := binary.NativeEndian.Uint64(old.Buffer); ok && got != want {
			s.fail(fmt.Errorf("addition %d to the counter of the peer found %d", want, got))
		}
		b.used = false
	}}
	if !s.post(q, 0, func(x uint64, f nd.OpFlags) error {
		return s.ep.FetchAndAdd(x, old, s.far.desc.Address+soakCounter, s.far.desc.Token, 1, f)
	}) {
		b.used = false
		return false
	}
	s.rank.count(soakAtomics)
	s.added++
	return true
}

// read reads of the peer's pattern. Some Reads are followed by a message with the bytes, which only the fence makes wait.
func (s *soakSession) read() bool {
	if !s.far.ok || !s.far.rights().Has(nd.AllowRead) {
		return false
	}
	limit := soakBig
	relay := s.IntN(4) == 0
	if relay {
		limit = soakMessage - soakHeader
	}
	n := s.size(limit)
	c := s.blocks.load(s.Rand, n)
	if c == nil {
		return false
	}
	c.set(soakCleared)
	at := s.IntN(soakPatternSize - n + 1)
	want := soakPattern(s.peer)[at:][:n]
	q := soakRequest{kind: nd.RequestRead, bytes: n, done: func(ok bool) { s.checkRead(c, ok, want); c.drop() }}
	if !s.post(q, 0, func(x uint64, f nd.OpFlags) error {
		return s.ep.Read(x, nd.List(c.sge...), s.far.desc.Address+uint64(soakSlots+at), s.far.desc.Token, f)
	}) {
		c.drop()
		return false
	}
	s.rank.count(soakReads)
	if relay && len(c.sge) < 4 {
		s.relay(c, want)
	}
	return true
}

func (s *soakSession) checkRead(c *soakTransfer, ok bool, want []byte) {
	if ok && c.sum() != xxhash.Sum64(want) {
		s.fail(fmt.Errorf("a Read of %d bytes returned others than the peer has", len(want)))
	}
}

// relay sends the data of a Read that has been posted.
func (s *soakSession) relay(c *soakTransfer, data []byte) {
	head := s.blocks.load(s.Rand, soakHeader)
	if head == nil {
		return
	}
	body := append([]byte{mData}, data...)
	head.fill(s.seal(body)[:soakHeader])
	both := &soakTransfer{sge: append(head.sge[:len(head.sge):len(head.sge)], c.sge...)}
	c.users++
	if !s.sendCargo(both, soakHeader+len(data), nd.ReadFence, func(bool) { head.drop(); c.drop() }, nil) {
		head.drop()
		c.drop()
		return
	}
	s.rank.count(soakRelays)
}

// readAndInvalidate reads into memory that is registered for this Read only.
func (s *soakSession) readAndInvalidate() bool {
	if s.sinkBusy || !s.far.ok || !s.far.rights().Has(nd.AllowRead) {
		return false
	}
	b := s.blocks.free(s.Rand, 1+s.IntN(soakMedium))
	if b == nil || b.token != s.local[0].LocalToken() {
		return false
	}
	b.used = true
	free := func() { b.used = false }
	n := 1 + s.IntN(len(b.memory))
	if !s.post(soakRequest{kind: nd.RequestFastRegister, done: func(bool) {}}, 0, func(x uint64, f nd.OpFlags) error {
		return s.ep.FastRegister(x, nd.FastRegistration{Region: s.sink, Pages: s.sinkPages.Pages(), Offset: s.sinkPages.Offset(), Length: soakBlocksSize, BaseAddress: 1 << 41, Rights: nd.AllowLocalWrite}, f)
	}) {
		free()
		return false
	}
	s.rank.count(soakRegistrations)
	s.sinkBusy = true
	c := &soakTransfer{sge: []nd.SGE{{Buffer: b.memory[:n], Token: s.sink.LocalToken()}}, users: 1}
	c.set(soakCleared)
	at := s.IntN(soakPatternSize - n + 1)
	flags, done := nd.ReadLocalInvalidate, func(ok bool) {
		s.checkRead(c, ok, soakPattern(s.peer)[at:][:n])
		free()
		s.sinkBusy = !ok
	}
	if s.IntN(3) == 0 {
		flags = 0
		read := done
		done = func(ok bool) { read(ok); s.sinkBusy = true }
	}
	if !s.post(soakRequest{kind: nd.RequestRead, bytes: n, done: done}, flags, func(x uint64, f nd.OpFlags) error {
		return s.ep.Read(x, nd.List(c.sge...), s.far.desc.Address+uint64(soakSlots+at), s.far.desc.Token, f)
	}) {
		free()
		return false
	}
	if flags == 0 {
		s.post(soakRequest{kind: nd.RequestInvalidate, done: func(ok bool) { s.sinkBusy = !ok }}, nd.ReadFence, func(x uint64, f nd.OpFlags) error {
			return s.ep.InvalidateRegion(x, s.sink, f)
		})
	}
	s.rank.count(soakLocalInvalidates)
	return true
}

// transferNothing posts a Read or a Write of no bytes.
func (s *soakSession) transferNothing() bool {
	if s.IntN(2) == 0 {
		return s.post(soakRequest{kind: nd.RequestRead, done: func(bool) {}}, 0, func(x uint64, f nd.OpFlags) error { return s.ep.Read(x, nd.SGL{}, 0, 0, f) })
	}
	return s.post(soakRequest{kind: nd.RequestWrite, done: func(bool) {}}, 0, func(x uint64, f nd.OpFlags) error { return s.ep.Write(x, nd.SGL{}, 0, 0, f) })
}

// fire uses the trap of the peer, which ends the access at any time. It prepares its memory once, so that a copy is
// under way most of the time.
func (s *soakSession) fire() bool {
	if s.far.transfers[1] == nil {
		for i, content := range []byte{soakFired, soakCleared} {
			if s.far.transfers[i] == nil {
				if s.far.transfers[i] = s.blocks.load(s.Rand, soakGuardSize); s.far.transfers[i] == nil {
					return false
				}
				s.far.transfers[i].set(content)
			}
		}
	}
	call, c := s.ep.Write, s.far.transfers[0]
	q := soakRequest{kind: nd.RequestWrite, bytes: soakGuardSize, mayFail: true, done: func(ok bool) {
		if ok && !s.far.burns {
			s.far.burns = true
			s.say(mBurns, revokeMessage{}, 0)
		}
	}}
	if s.far.burns && s.IntN(2) == 0 {
		call, c = s.ep.Read, s.far.transfers[1]
		q.kind, q.done = nd.RequestRead, func(ok bool) {
			if c.has(soakPoison) || ok && c.has(soakCleared) {
				s.fail(fmt.Errorf("a Read, success %t, returned bytes of memory that was no longer granted", ok))
			}
		}
	}
	return s.post(q, 0, func(x uint64, f nd.OpFlags) error {
		return call(x, nd.List(c.sge...), s.far.trap.Address, s.far.trap.Token, f)
	})
}

// ---- Access to own memory ----

// soakTrap is memory whose access ends while the peer uses it.
type soakTrap struct {
	open     bool      // the peer has access
	revoking bool      // an Invalidate runs
	sealed   bool      // no peer has access: the memory is poisoned, and must stay so
	region   bool      // access is by the region's own token
	gone     bool      // the region is not registered
	fire     bool      // the peer was told to go on without a pause
	fired    bool      // the same, also of an earlier access
	burns    bool      // the peer does so
	until    time.Time // the access ends then, so that its end has nothing to do with the peer's messages
}

// useTrap grants access to the guarded memory, or ends it.
func (s *soakSession) useTrap() {
	t := &s.trap
	switch {
	case t.revoking || t.burns && !t.open: // the next transfer of the peer ends the connection
	case t.open:
		if !t.fire || t.burns && time.Now().After(t.until) {
			s.revokeTrap()
		}
	default:
		s.checkTrap()
		fire := s.endsAccess || s.IntN(6) == 0
		t.sealed = false
		if t.gone {
			s.fail(s.guard.Register(context.Background(), s.guard0, soakAnything))
			t.gone = false
		}
		setAll(s.guard.Bytes(), soakGuarded)
		desc := nd.DescriptorOf(s.guard)
		if t.region = s.IntN(3) == 0; !t.region {
			flags := soakBoth
			if s.IntN(2) == 0 {
				flags |= nd.ThisEndpointOnly
			}
			if !s.post(soakRequest{kind: nd.RequestBind, done: func(bool) {}}, flags, func(x uint64, f nd.OpFlags) error {
				return s.ep.Bind(x, s.guard, s.guardWindow, s.guard.Bytes(), f)
			}) {
				return
			}
			s.rank.count(soakBinds)
			desc = s.guardWindow.Descriptor()
		}
		t.open, t.fire, t.fired = true, fire, t.fired || fire
		s.say(mTrap, trapMessage{Fire: fire, Desc: encode(desc)}, 0)
	}
}

// revokeTrap ends the access.
func (s *soakSession) revokeTrap() {
	ended := func() {
		s.trap.open, s.trap.revoking, s.trap.sealed = false, false, true
		setAll(s.guard0, soakPoison)
		s.rank.count(soakRevocations)
	}
	if s.trap.region {
		ctx, cancel := context.WithTimeout(context.Background(), soakStalled)
		defer cancel()
		s.fail(s.guard.Deregister(ctx))
		s.trap.gone = true
		ended()
		return
	}
	s.trap.revoking = s.post(soakRequest{kind: nd.RequestInvalidate, loud: true, done: func(ok bool) {
		if ok {
			ended()
		}
	}}, 0, func(x uint64, f nd.OpFlags) error { return s.ep.Invalidate(x, s.guardWindow, f) })
	for range 1000 { // a copy that is still under way must meet the poison
		if !s.trap.revoking {
			break
		}
		s.take(s.cq.Poll(s.results[:1]))
	}
}

// checkTrap checks that no byte has changed since the access ended.
func (s *soakSession) checkTrap() {
	if s.trap.sealed && !isAll(s.guard0, soakPoison) {
		s.fail(fmt.Errorf("a byte has changed after the end of the access to it"))
	}
}
