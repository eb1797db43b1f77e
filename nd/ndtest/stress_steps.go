package ndtest

import (
	"github.com/cespare/xxhash/v2"

	"github.com/softnd/softnd/nd"
)

// roundState is what invent keeps in mind within a round.
type roundState struct {
	*direction
	peer     *direction // the other direction, which may hold a grant for this one
	waited   bool       // for the grant
	sink     int        // bytes used of the place for Reads
	messages int        // bytes used of the peer's place for messages
	brought  []byte     // by the latest Read, to be sent on
	from     int        // where in the place for Reads
	reads    []span     // of the peer's place, by Reads that no fence has followed
	writes   []span     // of the peer's place, in order
}

// addTransfers makes the other steps of a lane.
func (p *plan) addTransfers(l, peer *direction) {
	v := &roundState{direction: l, peer: peer}
	for i := range l.steps {
		if s := &l.steps[i]; s.stepKind == doGrant {
			p.addReceive(v, s)
		}
	}
	for range 1 + p.IntN(stressBody) {
		switch p.IntN(5) {
		case 0, 1:
			p.write(v)
		case 2:
			p.read(v)
		default:
			p.send(v, doSend)
		}
	}
	if peer.grant.live && p.oneIn(2) {
		p.await(v)
		p.send(v, doSendInvalidate)
		peer.grant.live = false
	}
	// When its result is there, everything before it has been done.
	l.add(step{stepKind: doRead, flags: nd.ReadFence, sum: xxhash.Sum64(nil)})
	l.noteVisible(v.writes)
}

// await makes sure that the peer's grant has arrived.
func (p *plan) await(v *roundState) {
	if v.waited || !v.peer.grant.fresh {
		return
	}
	v.waited = true
	if n := len(v.steps); n > 0 {
		v.steps[n-1].flags &^= nd.Defer // else what is held back might be waited for
	}
	v.add(step{stepKind: doAwait})
}

// useGrant decides whether to use the peer's grant.
func (p *plan) useGrant(v *roundState, right nd.OpFlags) bool {
	if !v.peer.grant.live || !v.peer.grant.rights.Has(right) || p.oneIn(2) {
		return false
	}
	p.await(v)
	return true
}

// size picks mostly small sizes, and now and then one that takes a while to copy.
func (p *plan) size() int {
	if p.oneIn(12) {
		return p.IntN(stressArea / 2)
	}
	return []int{p.IntN(64), p.IntN(2000), 8, 48, p.IntN(300)}[p.IntN(5)]
}

// bytes picks what to send: a part of the source, or of what the latest Read has brought, which
// takes a fence.
func (p *plan) bytes(v *roundState, s *step) []byte {
	if len(v.brought) > 0 && p.oneIn(3) {
		s.flags |= nd.ReadFence
		s.size = 1 + p.IntN(len(v.brought))
		off := p.IntN(len(v.brought) - s.size + 1)
		s.parts = p.split(sinkAt(v.conn)+v.from+off, s.size)
		return v.brought[off : off+s.size]
	}
	s.size = p.size()
	off := p.IntN(stressArea - s.size)
	s.parts = p.split(sourceAt()+off, s.size)
	return v.source[off : off+s.size]
}

// split cuts a span into up to four.
func (p *plan) split(off, n int) (parts []span) {
	for n > 1 && len(parts) < 3 && p.oneIn(3) {
		k := 1 + p.IntN(n-1)
		parts = append(parts, span{off, k})
		off, n = off+k, n-k
	}
	return append(parts, span{off, n})
}

// noteFence notes a step's fence: it lets later Writes change what earlier Reads have brought.
func (v *roundState) noteFence(f nd.OpFlags) {
	if f.Has(nd.ReadFence) {
		v.reads = nil
	}
}

// maybeInline makes some requests inline; not those that send on what a Read brings, since their
// bytes are taken when they are posted.
func (p *plan) maybeInline(s *step) {
	if fromSink := len(s.parts) > 0 && s.parts[0].off >= stressArea; fromSink {
		return
	}
	if p.inline > 0 && s.size <= p.inline && p.oneIn(3) {
		s.flags |= nd.Inline
	}
}

func (p *plan) write(v *roundState) {
	s := step{stepKind: doWrite, flags: p.flags(doWrite), usesGrant: p.useGrant(v, nd.AllowWrite)}
	data := p.bytes(v, &s)
	p.maybeInline(&s)
	s.at = p.IntN(stressArea - s.size)
	to := span{s.at, s.size}
	if overlaps(to, v.reads) {
		s.flags |= nd.ReadFence // without it the Read might see this Write
	}
	v.noteFence(s.flags)
	copy(v.written[s.at:], data)
	v.writes = append(v.writes, to)
	v.add(s)
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
	v.brought = append([]byte(nil), v.written[s.at:s.at+s.size]...)
	v.from = v.sink
	v.sink += s.size
	v.reads = append(v.reads, span{s.at, s.size})
	s.sum = xxhash.Sum64(v.brought)
	v.add(s)
}

func (p *plan) send(v *roundState, how stepKind) {
	s := step{stepKind: how, flags: p.flags(how)}
	data := p.bytes(v, &s)
	p.maybeInline(&s)
	if how == doSendInvalidate && len(v.reads) > 0 {
		s.flags |= nd.ReadFence // Reads by the grant need it
	}
	s.sum = xxhash.Sum64(data)
	if v.messages+s.size > stressArea {
		s.size, s.parts, s.sum = 0, nil, xxhash.Sum64(nil)
	}
	v.noteFence(s.flags)
	s.visible = nil
	p.addReceive(v, v.add(s))
}

// addReceive makes the Receive for a message.
func (p *plan) addReceive(v *roundState, s *step) {
	room := min(s.size+p.IntN(40), stressArea-v.messages)
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

// noteVisible notes for each message the latest Write before it, if none after it changes the same
// bytes: the peer must see it when it has the message.
func (l *direction) noteVisible(writes []span) {
	k := 0
	for i := range l.steps {
		s := &l.steps[i]
		if s.stepKind == doWrite {
			k++
		}
		if !s.sends() || k == 0 || overlaps(writes[k-1], writes[k:]) {
			continue
		}
		w := writes[k-1]
		s.visible = append(s.visible, expectedBytes{span{writtenAt(l.conn) + w.off, w.n}, xxhash.Sum64(l.written[w.off : w.off+w.n])})
	}
}
