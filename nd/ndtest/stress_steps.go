package ndtest

import (
	"encoding/binary"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/softnd/softnd/nd"
)

// roundState is the state of addTransfers within a round.
type roundState struct {
	*direction
	peer     *direction // the other direction, whose access this one may use
	waited   bool       // a doAwait for the access was added
	sink     int        // bytes used of the area for Reads
	messages int        // bytes used of the peer's area for messages
	readData []byte     // data of the latest Read, which later requests may send
	readAt   int        // its offset in the area for Reads
	reads    []span     // read from the peer's area since the latest fence
	atomics  bool       // the same of atomics
	writes   []span     // changed in the peer's area, in order
	changed  int        // offset of the latest atomic in the peer's area
}

// addTransfers adds the transfers of a round to direction l.
func (p *plan) addTransfers(l, peer *direction) {
	v := &roundState{direction: l, peer: peer}
	for i := range l.steps {
		if s := &l.steps[i]; s.stepKind == doGrant {
			p.addReceive(v, s, s.size)
		}
	}
	for range 1 + p.IntN(stressBody) {
		switch p.IntN(7) {
		case 0, 1:
			p.write(v)
		case 2:
			p.read(v)
		case 3, 4:
			p.atomic(v)
		default:
			p.send(v, p.orImmediate(doSend, doSendImmediate))
		}
	}
	if peer.grant.live && p.oneIn(2) {
		p.await(v)
		p.send(v, doSendInvalidate)
		peer.grant.live = false
	}
	// When the result of this Read arrives, all requests before it are complete.
	l.add(step{stepKind: doRead, flags: nd.ReadFence, sum: xxhash.Sum64(nil)})
	l.noteVisible(v.writes)
}

// await adds a step that waits for the descriptor of the peer's access, if the peer grants it in
// this round.
func (p *plan) await(v *roundState) {
	if v.waited || !v.peer.grant.fresh {
		return
	}
	v.waited = true
	if n := len(v.steps); n > 0 {
		v.steps[n-1].flags &^= nd.Defer // a deferred request must not precede a wait that depends on it
	}
	v.add(step{stepKind: doAwait})
}

// useGrant decides whether a request uses the access that the peer granted.
func (p *plan) useGrant(v *roundState, right nd.OpFlags) bool {
	if !v.peer.grant.live || !v.peer.grant.rights.Has(right) || p.oneIn(2) {
		return false
	}
	p.await(v)
	return true
}

// size chooses the size of a request. Most are small; one in twelve can take long to copy.
func (p *plan) size() int {
	if p.oneIn(12) {
		return p.IntN(stressArea / 2)
	}
	return []int{p.IntN(64), p.IntN(2000), 8, 48, p.IntN(300)}[p.IntN(5)]
}

// bytes chooses the bytes of a request: a part of the source area, or of the data of the latest Read.
// The latter needs a fence.
func (p *plan) bytes(v *roundState, s *step) []byte {
	if len(v.readData) > 0 && p.oneIn(3) {
		s.flags |= nd.ReadFence
		s.size = 1 + p.IntN(len(v.readData))
		off := p.IntN(len(v.readData) - s.size + 1)
		s.parts = p.split(sinkAt(v.conn)+v.readAt+off, s.size)
		return v.readData[off : off+s.size]
	}
	s.size = p.size()
	off := p.IntN(stressArea - s.size)
	s.parts = p.split(sourceAt()+off, s.size)
	return v.source[off : off+s.size]
}

// split divides a span into one to four parts.
func (p *plan) split(off, n int) (parts []span) {
	for n > 1 && len(parts) < 3 && p.oneIn(3) {
		k := 1 + p.IntN(n-1)
		parts = append(parts, span{off, k})
		off, n = off+k, n-k
	}
	return append(parts, span{off, n})
}

// noteFence records the fence of a step. Later Writes may overwrite bytes that Reads before the fence
// have read.
func (v *roundState) noteFence(f nd.OpFlags) {
	if f.Has(nd.ReadFence) {
		v.reads, v.atomics = nil, false
	}
}

// maybeInline makes some requests inline. A request that sends the data of a Read cannot be inline,
// because the post copies inline bytes before the Read is complete.
func (p *plan) maybeInline(s *step) {
	if fromSink := len(s.parts) > 0 && s.parts[0].off >= stressArea; fromSink {
		return
	}
	if p.Inline > 0 && s.size <= p.Inline && p.oneIn(3) {
		s.flags |= nd.Inline
	}
}

func (p *plan) write(v *roundState) {
	s := step{stepKind: p.orImmediate(doWrite, doWriteImmediate), immediate: p.Uint32(), usesGrant: p.useGrant(v, nd.AllowWrite)}
	s.flags = p.flags(s.stepKind)
	data := p.bytes(v, &s)
	p.maybeInline(&s)
	s.at = p.IntN(stressArea - s.size)
	p.change(v, s, data)
	if s.stepKind == doWriteImmediate {
		p.addReceive(v, &v.steps[len(v.steps)-1], 0)
	}
}

// change adds a step that stores bytes in the peer's area.
func (p *plan) change(v *roundState, s step, data []byte) {
	to := span{s.at, len(data)}
	if overlaps(to, v.reads) {
		s.flags |= nd.ReadFence // without a fence the Read could see the bytes
	}
	v.noteFence(s.flags)
	copy(v.written[s.at:], data)
	v.writes = append(v.writes, to)
	v.add(s)
}

// orImmediate chooses between a request without and one with immediate data.
func (p *plan) orImmediate(without, with stepKind) stepKind {
	if p.Immediate && p.oneIn(3) {
		return with
	}
	return without
}

// atomic adds a change of 8 bytes of the peer's area, or of a shared number. The old value goes to the area for Reads.
func (p *plan) atomic(v *roundState) {
	if !p.Atomics || v.sink+8 > stressArea {
		return
	}
	s := step{stepKind: []stepKind{doFetchAndAdd, doCompareAndSwap, doSwap}[p.IntN(3)], size: 8, parts: []span{{sinkAt(v.conn) + v.sink, 8}}}
	s.flags, s.operands = p.flags(s.stepKind), [2]uint64{p.Uint64(), p.Uint64()}
	if p.oneIn(3) {
		v.sink += 8
		p.shared(&s)
		v.noteFence(s.flags)
		v.add(s)
		return
	}
	s.usesGrant = p.useGrant(v, nd.AllowAtomic)
	if p.oneIn(2) {
		v.changed = 8 * p.IntN(stressArea/8)
	}
	s.at = v.changed
	v.readData, v.readAt = slices.Clone(v.written[s.at:s.at+8]), v.sink
	v.sink += 8
	s.sum = xxhash.Sum64(v.readData)
	old := binary.NativeEndian.Uint64(v.readData)
	if p.oneIn(2) {
		s.operands[0] = old // a CompareAndSwap finds what it compares with
	}
	p.change(v, s, binary.NativeEndian.AppendUint64(nil, s.store(old)))
	v.atomics = true
}

// store returns the number that an atomic stores in the place of old.
func (s *step) store(old uint64) uint64 {
	switch {
	case s.stepKind == doFetchAndAdd:
		return old + s.operands[0]
	case s.stepKind == doSwap:
		return s.operands[0]
	case old == s.operands[0]:
		return s.operands[1]
	}
	return old
}

func (p *plan) read(v *roundState) {
	s := step{stepKind: doRead, flags: p.flags(doRead), size: p.size()}
	if v.sink+s.size > stressArea {
		return
	}
	s.usesGrant = p.useGrant(v, nd.AllowRead)
	v.noteFence(s.flags)
	s.at = p.IntN(stressArea - s.size)
	s.parts = p.split(sinkAt(v.conn)+v.sink, s.size)
	v.readData = append([]byte(nil), v.written[s.at:s.at+s.size]...)
	v.readAt = v.sink
	v.sink += s.size
	v.reads = append(v.reads, span{s.at, s.size})
	s.sum = xxhash.Sum64(v.readData)
	v.add(s)
}

func (p *plan) send(v *roundState, how stepKind) {
	s := step{stepKind: how, flags: p.flags(how), immediate: p.Uint32()}
	data := p.bytes(v, &s)
	p.maybeInline(&s)
	if how == doSendInvalidate && (len(v.reads) > 0 || v.atomics) {
		s.flags |= nd.ReadFence // Reads and atomics that use the access must complete first
	}
	s.sum = xxhash.Sum64(data)
	if v.messages+s.size > stressArea {
		s.size, s.parts, s.sum = 0, nil, xxhash.Sum64(nil)
	}
	v.noteFence(s.flags)
	s.visible = nil
	p.addReceive(v, v.add(s), s.size)
}

// addReceive chooses the list of the Receive for a step. The list has n bytes or more.
func (p *plan) addReceive(v *roundState, s *step, n int) {
	room := min(n+p.IntN(40), stressArea-v.messages)
	s.receiveInto = p.split(messagesAt(v.conn)+v.messages, room)
	v.messages += room
}

func overlaps(s span, list []span) bool {
	for _, o := range list {
		if s.off < o.off+o.n && o.off < s.off+s.n {
			return true
		}
	}
	return false
}

// noteVisible records for each message the latest change of the peer's area before it, which may be its own. The
// peer must see it when it has the result of the message. It is left out if a later one changes its bytes.
func (l *direction) noteVisible(writes []span) {
	k := 0
	for i := range l.steps {
		s := &l.steps[i]
		if s.stepKind == doWrite || s.stepKind == doWriteImmediate || s.isAtomic() && !s.shared {
			k++
		}
		if !s.takesReceive() || k == 0 || overlaps(writes[k-1], writes[k:]) {
			continue
		}
		w := writes[k-1]
		s.visible = append(s.visible, expectedBytes{span{writtenAt(l.conn) + w.off, w.n}, xxhash.Sum64(l.written[w.off : w.off+w.n])})
	}
}
