package endpoint

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/endpoint/internal/ring"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// Choices of FuzzConnectionRecord, one bit each.
const (
	unheard    = iota // no listener
	agreeing          // the victim accepts
	rejecting         // it rejects
	completing        // the forger then sets the state to established
	planted           // the record is written where the offset points, whichever member owns that memory
	sentTwice
	trafficking // both sides use the connection
	dialled     // it is the victim's record, changed by the forger
)

// Small numbers in a record stand for members and adapters.
const (
	idOfAttacker = 1 + iota
	idOfVictim
	otherOfAttacker
	otherOfVictim
)

// FuzzConnectionRecord delivers an arbitrary connection request, at an arbitrary offset, or gives an
// arbitrary answer to one.
func FuzzConnectionRecord(f *testing.F) {
	r := newFuzzPair(f)
	const there = uint64(0) // the memory of a record
	one := func(n ...int) (choices uint8) {
		for _, i := range n {
			choices |= 1 << i
		}
		return choices
	}
	two := func(lower, upper uint32) uint64 { return uint64(lower) | uint64(upper)<<32 }
	request := func(link uint64, state cm.ConnState, from, to, owner, qp uint64) []byte {
		return bytesOf(link, two(uint32(state), 0), 0, 0, from, to, owner, 0, qp, 0, two(900, 7), two(16, 0), two(16, 0), two(3, 0), 0, 0x636261)
	}
	good := request(0, cm.ConnRequested, idOfAttacker, idOfVictim, idOfAttacker, landmark(attackersQP, 0))
	all := one(agreeing, completing, trafficking)
	f.Add(good, there, all)
	f.Add(good, there, one(rejecting))
	f.Add(good, there, one(unheard))
	f.Add(good, there, one(agreeing))
	f.Add(good, there, one())
	f.Add(good, there, all|one(sentTwice))
	answer := func(state cm.ConnState, to, owner, qp uint64) []byte {
		return bytesOf(0, two(uint32(state), 0), 0, 0, idOfVictim, to, 0, owner, 0, qp, two(900, 7), two(16, 16), two(16, 16), two(3, ^uint32(0)))
	}
	f.Add(answer(cm.ConnAccepted, idOfAttacker, idOfAttacker, landmark(attackersQP, 0)), there, all|one(dialled))
	f.Add(answer(cm.ConnAccepted, idOfAttacker, idOfVictim, landmark(attackersQP, 0)), there, all|one(dialled))
	f.Add(answer(cm.ConnAccepted, idOfAttacker, idOfAttacker, landmark(victimsMemory, 0)), there, all|one(dialled))
	for _, state := range []cm.ConnState{0, cm.ConnRequested, cm.ConnEstablished, cm.ConnRefused, cm.ConnWithdrawn, cm.ConnAborted, 99} {
		f.Add(answer(state, idOfAttacker, idOfAttacker, landmark(attackersQP, 0)), there, all|one(dialled))
	}
	for _, addresses := range []uint64{two(0, 0x0a000001), two(0x7f4e0001, 0x7f4e0001), two(0x7f4e0001, 0), two(0x0a000001, 0)} {
		f.Add(bytesOf(0, two(uint32(cm.ConnRequested), 0), 0, 0, idOfAttacker, idOfVictim, idOfAttacker, 0, landmark(attackersQP, 0), 0, two(900, 7), two(16, 0), two(16, 0), 0, addresses), there, all)
	}
	f.Add([]byte{}, there, all)
	f.Add(bytes.Repeat([]byte{0xff}, wire.ConnectionRecordSize), there, all)
	for _, state := range []cm.ConnState{0, cm.ConnAccepted, cm.ConnEstablished, cm.ConnRefused, cm.ConnWithdrawn, cm.ConnAborted, 7, 1 << 31} {
		f.Add(request(0, state, idOfAttacker, idOfVictim, idOfAttacker, landmark(attackersQP, 0)), there, all)
	}
	for _, from := range []uint64{idOfVictim, 0x10000, 0x20001, 1<<48 | 1, 0xffff, ^uint64(0)} {
		f.Add(request(0, cm.ConnRequested, from, idOfVictim, idOfAttacker, landmark(attackersQP, 0)), there, all)
	}
	f.Add(request(0, cm.ConnRequested, idOfAttacker, idOfAttacker, idOfAttacker, landmark(attackersQP, 0)), there, all)
	for _, owner := range []uint64{0, idOfVictim, otherOfAttacker, otherOfVictim, ^uint64(0)} {
		f.Add(request(0, cm.ConnRequested, idOfAttacker, idOfVictim, owner, landmark(attackersQP, 0)), there, all)
	}
	for _, qp := range []uint64{0, landmark(victimsQP, 0), landmark(victimsMemory, 0), landmark(arenaEnd, -wire.SharedQPSize), landmark(arenaEnd, 8), ^uint64(7), landmark(attackersQP, 4), landmark(tables, 0)} {
		f.Add(request(0, cm.ConnRequested, idOfAttacker, idOfVictim, idOfAttacker, qp), there, all)
	}
	for _, link := range []uint64{landmark(attackersRecord, 0), landmark(attackersMemory, margin), landmark(arenaEnd, -8), 12} {
		f.Add(request(link, cm.ConnRequested, idOfAttacker, idOfVictim, idOfAttacker, landmark(attackersQP, 0)), there, all)
	}
	for _, offset := range []uint64{1, 8, landmark(tables, 0), landmark(tables, 512), landmark(windowTable, 0), landmark(heapStart, -8), landmark(arenaEnd, -wire.ConnectionRecordSize), landmark(arenaEnd, -64), landmark(victimsQP, 0), ^uint64(7)} {
		f.Add(good, offset, all)
	}
	f.Add(good, landmark(attackersMemory, margin), all|one(planted))
	f.Add(good, landmark(victimsMemory, 0), all|one(planted))
	f.Add(request(0, cm.ConnEstablished, idOfAttacker, idOfVictim, idOfAttacker, 0), landmark(victimsMemory, margin+vastSize+1024), one(planted))
	f.Fuzz(func(t *testing.T, content []byte, offset uint64, choices uint8) {
		defer r.begin(t)()
		r.arrive(t)
		l := r.attacker
		heap := l.member
		off, err := heap.Alloc(wire.ConnectionRecordSize)
		if err != nil {
			t.Fatal(err)
		}
		r.mail = off
		at := r.mean(offset)
		if at == 0 {
			at = uint64(off)
		}
		restore := r.plant(off, content)
		if mem, err := r.arena.Bytes(shm.Offset(at), wire.ConnectionRecordSize); err == nil && bit(uint16(choices), planted) && r.mayPlant(mem, content) {
			restore = r.plant(shm.Offset(at), content)
		}
		tables, err := r.arena.Bytes(0, 8192)
		if err != nil {
			t.Fatal(err)
		}
		before := bytes.Clone(tables)

		if bit(uint16(choices), dialled) {
			r.dialAndChange(t, content, choices)
		} else {
			r.receiveMail(t, shm.Offset(at), choices)
		}
		r.attackerLeaves(t)
		if !bytes.Equal(tables, before) {
			t.Fatal("the tables of the arena have changed")
		}
		restore()
		if err := heap.Free(off); err != nil {
			t.Fatal(err)
		}
		r.mail = 0
		r.part(t)
	})
}

// plant writes the content of a record, which may be in memory of the victim.
func (r *fuzzPair) plant(off shm.Offset, content []byte) (restore func()) {
	list := make([]uint64, wire.ConnectionRecordSize/8)
	words(list, content)
	for i := range list[:15] {
		switch i {
		case 4, 5:
			list[i] = r.member(list[i])
		case 6, 7:
			list[i] = r.owner(list[i])
		case 14: // so that most requests have the right address
			if list[i]>>32 == 0 {
				list[i] |= uint64(addressWord(r.victim.addr.Addr())) << 32
			}
		default:
			list[i] = r.mean(list[i])
		}
	}
	to, err := shm.Slice[uint64](r.arena, off, uint64(len(list)))
	if err != nil {
		panic(err) // the caller has checked it
	}
	saved := append([]uint64(nil), to...)
	copy(to, list)
	mem, _ := r.arena.Bytes(off, wire.ConnectionRecordSize)
	e := r.victim.areas[inArena]
	from, mine := within(e.mem, mem)
	if mine { // so that the check sees only what the victim changes
		copy(e.was[from:], mem)
	}
	return func() {
		if mine && !bytes.Equal(mem, e.was[from:][:wire.ConnectionRecordSize]) {
			return // the check reports it
		}
		copy(to, saved)
		if mine {
			copy(e.was[from:], mem)
		}
	}
}

// within returns the offset of part in whole.
func within(whole, part []byte) (from int, ok bool) {
	a, b := shm.AddressOf(whole), shm.AddressOf(part)
	return int(b - a), b >= a && b-a <= uint64(len(whole)-len(part))
}

// mayPlant reports whether a record may be written to mem: memory of the forger, or of the
// victim unless it is to be a request of the victim itself.
func (r *fuzzPair) mayPlant(mem, content []byte) bool {
	var first [5]uint64
	words(first[:], content)
	_, attackers := within(r.attacker.areas[inArena].mem, mem)
	_, victims := within(r.victim.areas[inArena].mem, mem)
	return shm.AddressOf(mem)%8 == 0 && (attackers || victims && r.member(first[4]) != uint64(r.victim.member.ID()))
}

func (r *fuzzPair) member(word uint64) uint64 {
	switch word {
	case idOfAttacker:
		return uint64(r.attacker.member.ID())
	case idOfVictim:
		return uint64(r.victim.member.ID())
	}
	return word
}

func (r *fuzzPair) owner(word uint64) uint64 {
	of := map[uint64]uint64{
		idOfAttacker: r.attacker.adapter.domain.Adapter, idOfVictim: r.victim.adapter.domain.Adapter,
		otherOfAttacker: r.attacker.other.domain.Adapter, otherOfVictim: r.victim.other.domain.Adapter,
	}
	if o, ok := of[word]; ok {
		return uint64(o)
	}
	return word
}

// receiveMail makes the victim read and handle the record at an offset.
func (r *fuzzPair) receiveMail(t *testing.T, off shm.Offset, choices uint8) {
	t.Helper()
	v, c := r.victim, uint16(choices)
	ports := &v.provider.ports
	if bit(c, unheard) {
		ports.SetListener(v.addr.Port(), nil)
	}
	r.deliver(t, off)
	if bit(c, sentTwice) {
		r.deliver(t, off)
	}
	ports.SetListener(v.addr.Port(), v.listener)
	if len(v.listener.queue) > 0 && (bit(c, agreeing) || bit(c, rejecting)) {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = v.listener.GetConnectionRequest(ended, v.connector) // there may be no valid request
	}
	if v.connector.conn == nil {
		return
	}
	_, _ = v.connector.GetPrivateData(make([]byte, wire.MaxPrivateData))
	if bit(c, rejecting) {
		_ = v.connector.Reject([]byte("no")) // it fails if the forger has withdrawn
		return
	}
	conn, err := v.connector.startAccept(v.ep, nd.ConnectParams{PrivateData: []byte("yes")})
	if err != nil {
		return
	}
	if bit(c, completing) {
		conn.record.Shared.State.Store(uint32(cm.ConnEstablished))
	}
	v.established()
	if bit(c, trafficking) {
		r.traffic(t)
	}
}

// deliver sends the record at an offset, and makes the victim read it.
func (r *fuzzPair) deliver(t *testing.T, off shm.Offset) {
	t.Helper()
	peer, err := r.arena.Peer(r.victim.member.ID())
	if err != nil {
		t.Fatal(err)
	}
	link := new(atomic.Uint64) // the link that counts is the one in the record
	if err := peer.SendMail(off, link); err != nil {
		t.Fatal(err)
	}
	r.victim.provider.progressAll()
	if n := len(r.victim.provider.conns); n > 1000 { // more than the records that an input can write
		t.Fatalf("one letter has made %d requests", n)
	}
}

// dialAndChange makes the victim connect, and the forger answer by writing into the record.
func (r *fuzzPair) dialAndChange(t *testing.T, content []byte, choices uint8) {
	t.Helper()
	v, c := r.victim, uint16(choices)
	conn := v.dial(t, r.attacker)
	if _, err := r.attacker.member.TakeMail(func(shm.Offset) (*atomic.Uint64, error) { return &conn.record.Shared.Link, nil }); err != nil {
		t.Fatal(err)
	}
	r.plant(conn.record.Offset, content)
	if conn.state() == cm.ConnAccepted {
		if v.complete(conn) == nil && bit(c, trafficking) {
			r.traffic(t)
		}
	} else {
		v.giveUp(conn)
	}
	_, _ = v.connector.GetPrivateData(make([]byte, wire.MaxPrivateData))
	_, _, _ = v.connector.ReadLimits()
}

// traffic makes both sides use a connection that may not exist.
func (r *fuzzPair) traffic(t *testing.T) {
	t.Helper()
	v, conn := r.victim, r.victim.ep.conn
	r.settle(t)
	v.receive(0)
	v.receive(3)
	valid := r.token(remote(theVictim, inArena, small))
	put := ring.Words{wire.Header(wire.WriteInEntry, wire.FlagFirst|wire.FlagLast|wire.FlagAckRequest, 8, valid), r.mean(address(theVictim, inArena, small, 0)), 1}
	send := ring.Words{wire.Header(wire.SendInEntry, wire.FlagFirst|wire.FlagLast, 8, 0), 1}
	// If the victim mistook its own tokens for the forger's, it would copy into its own memory.
	sink := wire.SGE{Address: r.mean(address(theVictim, inArena, local, 448)), Length: 64, Token: r.token(localOf(theVictim, inArena, local))}
	if conn.record.Shared.Adapter[1-conn.record.Side] == v.other.domain.Adapter {
		sink = wire.SGE{Address: r.mean(address(theVictim, inArena, foreign, 0)), Length: 64, Token: r.token(localOf(theVictim, inArena, foreign))}
	}
	gift := wire.Fragment(wire.ReadFragment, wire.FlagFirst|wire.FlagLast|wire.FlagAckRequest, valid, sink, r.mean(address(theVictim, inArena, small, 0)), 64)
	for i, s := range []ring.Words{put, send, gift} {
		r.write(uint64(i), &s)
	}
	r.rest(t, false, nil)
	v.post(nd.RequestWrite, 0, 100, r.attacker, 0)
	v.post(nd.RequestSend, 0, 100, nil, 0)
	r.rest(t, false, nil)
}

// attackerLeaves ends the victim's connections as their other side would.
func (r *fuzzPair) attackerLeaves(t *testing.T) {
	t.Helper()
	v := r.victim
	for _, c := range v.listener.queue {
		c.refuse()
	}
	v.listener.queue = nil
	v.ep.Close()
	v.connector.Close()
	for c := range v.provider.conns {
		mem, _ := r.arena.Bytes(c.record.Offset, wire.ConnectionRecordSize)
		if _, mine := within(v.areas[inArena].mem, mem); !mine {
			c.record.Shared.Detached[1-c.record.Side].Store(wire.DetachedRecord)
		} else {
			t.Fatal("the victim took a request that lies in its own memory")
		}
	}
	r.victim.provider.deferred.Run()
}
