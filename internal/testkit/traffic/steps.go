package traffic

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/softnd/softnd/nd"
)

// step makes a random step.
func (s *session) step() {
	if time.Since(s.moved) > stalled {
		s.fail(fmt.Errorf("no progress for %v: %d requests, %d receives, %d messages to send", stalled, len(s.pending), s.receives, len(s.outbox)))
	}
	if s.Wild && s.IntN(20_000) == 0 {
		_ = s.ep.Flush(context.Background())
	}
	if s.IntN(8) == 0 {
		s.checkTrap()
	}
	if s.far.fire && s.IntN(8) > 0 {
		if len(s.pending) <= depth/2 {
			s.fire()
		}
		s.take(s.cq.Poll(s.results[:])) // which copies
		return
	}
	if s.endsAccess && s.said[0] > 0 {
		s.useTrap()
	}
	switch k := s.IntN(40); {
	case k < 3:
		s.wait()
	case k < 12 || len(s.pending) > depth/2:
		n := s.cq.Poll(s.results[:1+s.IntN(len(s.results))])
		if s.take(n); n == 0 && len(s.pending) > depth/2 {
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
func (s *session) wait() {
	n := s.cq.Poll(s.results[:])
	if n == 0 && (!s.Wild || s.IntN(4) == 0) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		switch k := s.IntN(4); {
		case k == 0:
			_ = s.cq.Notify(ctx, nd.NotifyAny)
		case k == 1 && s.srq != nil:
			_ = s.srq.Notify(ctx)
		case k == 2:
			<-ctx.Done() // requests of the peer wait
		default:
			n, _ = s.cq.Wait(ctx, s.results[:])
		}
	}
	s.take(n)
}

// act posts something. It returns false if nothing can be posted now.
func (s *session) act() bool {
	if s.said[0] == 0 {
		return s.sendNext()
	}
	switch k := s.IntN(40); {
	case !s.Posts && k < 30:
		return false
	case s.Wild && k >= 30 && s.IntN(50) > 0: // most connections of a damaged arena are to last
	case k < 8:
		return s.sendData()
	case k < 16:
		return s.write()
	case k < 20:
		return s.read()
	case k < 24:
		return s.changeCounter()
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
		s.fail(s.cq.Resize(2*depth + sharedReceives + s.IntN(100)))
	}
	return true
}

// size chooses the size of a transfer.
func (s *session) size(limit int) int {
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
func (s *session) data(n int) []byte { return noise[s.IntN(len(noise)-n):][:n] }

// far is the access that the peer has granted.
type far struct {
	ok bool
	grantMessage
	desc nd.WindowDescriptor
	busy [len(slotSizes)]bool // slots that the peer has not acknowledged

	fire      bool // to use the trap without a pause
	trap      nd.WindowDescriptor
	transfers [2]*transfer // the source of Writes to the trap, and the sink of Reads
	burns     bool         // a transfer has succeeded
}

// Shared memory: the slots that the peer writes, the counter that it changes, then a pattern that it reads.
var slotSizes = [...]int{8 << 10, 8 << 10, 8 << 10, 8 << 10, 24 << 10, big}

const (
	counterAt   = 4*8<<10 + 24<<10 + big
	patternAt   = counterAt + 8
	patternSize = big + 16<<10
	sharedSize  = patternAt + patternSize
	guardSize   = chunk + 32<<10 // two chunks: the access can end between them
)

// slotAt is the offset of a slot.
func slotAt(slot int) (at int) {
	for _, n := range slotSizes[:slot] {
		at += n
	}
	return at
}

// write writes into a slot, and tells the peer the hash.
func (s *session) write() bool {
	slot := s.IntN(len(slotSizes))
	if !s.far.ok || s.far.busy[slot] && !s.Wild || !s.far.rights().Has(nd.AllowWrite) {
		return false
	}
	n := s.size(slotSizes[slot])
	c := s.blocks.load(s.Rand, n)
	if c == nil {
		return false
	}
	data := s.data(n)
	c.fill(data)
	at := s.IntN(slotSizes[slot] - n + 1)
	q := request{kind: nd.RequestWrite, bytes: n, done: func(bool) { c.drop() }}
	flags, sge, hasNumber := nd.OpFlags(0), nd.List(c.sge...), s.IntN(4) == 0
	if n <= s.inline && s.IntN(2) == 0 {
		flags, sge = nd.Inline, c.copied()
	}
	if !s.post(q, flags, func(x uint64, f nd.OpFlags) error {
		defer func() {
			if f.Has(nd.Inline) { // the memory is the program's again
				setAll(sge.First.Buffer, poison)
			}
		}()
		to := s.farAt(slotAt(slot)+at, n)
		if hasNumber {
			return s.ep.WriteImmediate(x, sge, to, s.far.desc.Token, uint32(s.said[0]), f)
		}
		return s.ep.Write(x, sge, to, s.far.desc.Token, f)
	}) {
		c.drop()
		return false
	}
	s.count(Writes)
	if hasNumber {
		s.count(Numbers)
		s.said[0]++
	}
	s.far.busy[slot] = true
	s.say(mWrote, wroteMessage{Slot: uint32(slot), At: uint32(at), N: uint32(n), Sum: xxhash.Sum64(data)}, 0)
	return true
}

// farAt returns the address of n bytes of shared memory. In a damaged arena the peer may have less.
func (s *session) farAt(at, n int) uint64 {
	d := s.far.desc
	if s.Wild && d.Length < sharedSize {
		return d.Address + uint64(at)%max(1, d.Length-min(d.Length, uint64(n)))&^7
	}
	return d.Address + uint64(at)
}

// changeCounter changes the counter of the peer, which nothing else changes.
func (s *session) changeCounter() bool {
	if !s.far.ok || !s.far.rights().Has(nd.AllowAtomic) {
		return false
	}
	b := s.blocks.free(s.Rand, 8)
	if b == nil {
		return false
	}
	b.used = true
	old, want := nd.SGE{Buffer: b.memory[:8:8], Token: b.token}, s.counter
	setAll(old.Buffer, cleared)
	kind, operand, compare := nd.RequestFetchAndAdd+nd.RequestType(s.IntN(3)), s.Uint64(), want+uint64(s.IntN(2))
	q := request{kind: kind, bytes: 8, done: func(ok bool) {
		if got := binary.NativeEndian.Uint64(old.Buffer); ok && got != want && !s.Wild {
			s.fail(fmt.Errorf("%v of %#x found %#x in the counter of the peer, want %#x", kind, operand, got, want))
		}
		b.used = false
	}}
	to := s.farAt(counterAt, 8)
	if !s.post(q, 0, func(x uint64, f nd.OpFlags) error {
		switch kind {
		case nd.RequestFetchAndAdd:
			return s.ep.FetchAndAdd(x, old, to, s.far.desc.Token, operand, f)
		case nd.RequestSwap:
			return s.ep.Swap(x, old, to, s.far.desc.Token, operand, f)
		}
		return s.ep.CompareAndSwap(x, old, to, s.far.desc.Token, compare, operand, f)
	}) {
		b.used = false
		return false
	}
	s.count(Atomics)
	switch {
	case kind == nd.RequestFetchAndAdd:
		s.counter += operand
	case kind == nd.RequestSwap || compare == want:
		s.counter = operand
	}
	return true
}

// read reads of the peer's pattern. Some Reads are followed by a message with the bytes, which only the fence makes wait.
func (s *session) read() bool {
	if !s.far.ok || !s.far.rights().Has(nd.AllowRead) {
		return false
	}
	limit := big
	relay := s.IntN(4) == 0
	if relay {
		limit = largestMessage - header
	}
	n := s.size(limit)
	c := s.blocks.load(s.Rand, n)
	if c == nil {
		return false
	}
	c.set(cleared)
	at := s.IntN(patternSize - n + 1)
	want := patternOf(s.Peer)[at:][:n]
	q := request{kind: nd.RequestRead, bytes: n, done: func(ok bool) { s.checkRead(c, ok, want); c.drop() }}
	if !s.post(q, 0, func(x uint64, f nd.OpFlags) error {
		return s.ep.Read(x, nd.List(c.sge...), s.farAt(patternAt+at, n), s.far.desc.Token, f)
	}) {
		c.drop()
		return false
	}
	s.count(Reads)
	if relay && len(c.sge) < 4 {
		s.relay(c, want)
	}
	return true
}

func (s *session) checkRead(c *transfer, ok bool, want []byte) {
	if ok && !s.Wild && c.sum() != xxhash.Sum64(want) {
		s.fail(fmt.Errorf("a Read of %d bytes returned others than the peer has", len(want)))
	}
}

// relay sends the data of a Read that has been posted.
func (s *session) relay(c *transfer, data []byte) {
	head := s.blocks.load(s.Rand, header)
	if head == nil {
		return
	}
	body := append([]byte{mData}, data...)
	head.fill(s.seal(body)[:header])
	both := &transfer{sge: append(head.sge[:len(head.sge):len(head.sge)], c.sge...)}
	c.users++
	if !s.sendCargo(both, header+len(data), nd.ReadFence, func(bool) { head.drop(); c.drop() }, nil) {
		head.drop()
		c.drop()
		return
	}
	s.count(Relays)
}

// readAndInvalidate reads into memory that is registered for this Read only.
func (s *session) readAndInvalidate() bool {
	if s.sinkBusy || !s.far.ok || !s.far.rights().Has(nd.AllowRead) {
		return false
	}
	b := s.blocks.free(s.Rand, 1+s.IntN(medium))
	if b == nil || b.token != s.local[0].LocalToken() {
		return false
	}
	b.used = true
	free := func() { b.used = false }
	n := 1 + s.IntN(len(b.memory))
	if !s.post(request{kind: nd.RequestFastRegister, done: func(bool) {}}, 0, func(x uint64, f nd.OpFlags) error {
		return s.ep.FastRegister(x, nd.FastRegistration{Region: s.sink, Pages: s.sinkPages.Pages(), Offset: s.sinkPages.Offset(), Length: blocksSize, BaseAddress: 1 << 41, Rights: nd.AllowLocalWrite}, f)
	}) {
		free()
		return false
	}
	s.count(Registrations)
	s.sinkBusy = true
	c := &transfer{sge: []nd.SGE{{Buffer: b.memory[:n], Token: s.sink.LocalToken()}}, users: 1}
	c.set(cleared)
	at := s.IntN(patternSize - n + 1)
	flags, done := nd.ReadLocalInvalidate, func(ok bool) {
		s.checkRead(c, ok, patternOf(s.Peer)[at:][:n])
		free()
		s.sinkBusy = !ok
	}
	if s.IntN(3) == 0 {
		flags = 0
		read := done
		done = func(ok bool) { read(ok); s.sinkBusy = true }
	}
	if !s.post(request{kind: nd.RequestRead, bytes: n, done: done}, flags, func(x uint64, f nd.OpFlags) error {
		return s.ep.Read(x, nd.List(c.sge...), s.farAt(patternAt+at, n), s.far.desc.Token, f)
	}) {
		free()
		return false
	}
	if flags == 0 {
		s.post(request{kind: nd.RequestInvalidate, done: func(ok bool) { s.sinkBusy = !ok }}, nd.ReadFence, func(x uint64, f nd.OpFlags) error {
			return s.ep.InvalidateRegion(x, s.sink, f)
		})
	}
	s.count(LocalInvalidations)
	return true
}

// transferNothing posts a Read or a Write of no bytes.
func (s *session) transferNothing() bool {
	if s.IntN(2) == 0 {
		return s.post(request{kind: nd.RequestRead, done: func(bool) {}}, 0, func(x uint64, f nd.OpFlags) error { return s.ep.Read(x, nd.SGL{}, 0, 0, f) })
	}
	return s.post(request{kind: nd.RequestWrite, done: func(bool) {}}, 0, func(x uint64, f nd.OpFlags) error { return s.ep.Write(x, nd.SGL{}, 0, 0, f) })
}

// fire uses the trap of the peer, which ends the access at any time. It prepares its memory once, so that a copy is
// under way most of the time.
func (s *session) fire() bool {
	if s.far.transfers[1] == nil {
		for i, content := range []byte{fired, cleared} {
			c := s.blocks.load(s.Rand, guardSize)
			if c == nil {
				if i == 1 { // which has two large blocks
					s.far.transfers[0].drop()
				}
				return false
			}
			c.set(content)
			s.far.transfers[i] = c
		}
	}
	call, c := s.ep.Write, s.far.transfers[0]
	q := request{kind: nd.RequestWrite, bytes: guardSize, mayFail: true, done: func(ok bool) {
		if ok && !s.far.burns {
			s.far.burns = true
			s.say(mBurns, revokeMessage{}, 0)
		}
	}}
	if s.far.burns && s.IntN(2) == 0 {
		call, c = s.ep.Read, s.far.transfers[1]
		q.kind, q.done = nd.RequestRead, func(ok bool) {
			if c.has(poison) || ok && c.has(cleared) {
				s.fail(fmt.Errorf("a Read, success %t, returned bytes of memory that was no longer granted", ok))
			}
		}
	}
	return s.post(q, 0, func(x uint64, f nd.OpFlags) error {
		return call(x, nd.List(c.sge...), s.far.trap.Address, s.far.trap.Token, f)
	})
}
