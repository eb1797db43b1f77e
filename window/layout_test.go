package window

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/softnd/softnd/internal/layout/layouttest"
	"github.com/softnd/softnd/shm"
)

func TestLayoutDescribesEntries(t *testing.T) {
	const all = 1<<32 - 1
	layouttest.Check(t, []string{"window.", "word window."},
		layouttest.Struct[accessEntry]("window.accessEntry"),
		"word window.token, 32 bits\n"+
			layouttest.Bits(uint64(makeToken(1<<indexBits-1, 0)), "index of its entry, never 0")+
			layouttest.Bits(uint64(makeToken(0, tagMask)), "tag: another one with each bind of the index"),
		"word window.accessEntry.word, 64 bits\n"+
			layouttest.Bits(uint64(wordOf(all, 0)), "token")+
			layouttest.Bits(uint64(wordOf(0, 0xff)), fmt.Sprintf("rights: %d read, %d write, %d remote token, %d local token, %d atomic", Read, Write, Remote, Local, Atomic))+
			layouttest.Bits(uint64(boundWord(0, all, 0)&^wordOf(all, 0)), "generation: number of the bind, without the tag")+
			layouttest.Bits(uint64(validBit), "the token is valid"),
		"word window.accessEntry.ends, 32 bits\n"+ // owners in C write it
			layouttest.Bits(0xffff, "head: bytes at the start that only the owner can access")+
			layouttest.Bits(0xffff<<16, "tail: bytes at the end that only the owner can access"),
		"word window.hazard, 64 bits: wire.SharedQP.Hazard\n"+
			layouttest.Bits(makeHazard(0, all), "token that is in use as the source, 0 = none")+
			layouttest.Bits(makeHazard(all, 0), "token that is in use as the sink, 0 = none"))
}

// The words that identify members, which other packages and processes read.
func TestLayoutDescribesMembers(t *testing.T) {
	const free, live, dead = 0, 1, 2
	id := shm.MemberID(1<<48 - 1)
	layouttest.Check(t, []string{"word shm.memberRecord", "word shm.MemberID"},
		"word shm.memberRecord.state, 64 bits\n"+
			layouttest.Bits(0xff, fmt.Sprintf("status: %d free, %d live, %d dead", free, live, dead))+
			layouttest.Bits(0xffffffff<<32, "incarnation of the slot"),
		"word shm.MemberID, 64 bits\n"+
			layouttest.Bits(uint64(id.Slot()), "slot")+
			layouttest.Bits(uint64(id)&^uint64(id.Slot()), "incarnation of the slot"))

	a := newArena(t)
	state := func(slot int) (status, incarnation uint64) {
		t.Helper()
		b, err := a.Bytes(shm.Offset(4096+512*slot), 8)
		if err != nil {
			t.Fatal(err)
		}
		word := binary.NativeEndian.Uint64(b)
		return word & 0xffffffff, word >> 32
	}
	watcher := join(t, a)
	for i := range uint64(3) {
		if status, incarnation := state(1); status != free || incarnation != i {
			t.Errorf("a free record: %d, %d", status, incarnation)
		}
		s := join(t, a)
		id := s.member.ID()
		if status, incarnation := state(1); status != live || incarnation != i+1 {
			t.Errorf("a live record: %d, %d", status, incarnation)
		}
		if uint64(id) != 1|(i+1)<<16 {
			t.Errorf("the second member is %#x", uint64(id))
		}
		s.leave(t)
		if status, incarnation := state(1); status != dead || incarnation != i+1 {
			t.Errorf("the record of one that has left: %d, %d", status, incarnation)
		}
		watcher.member.CheckLiveness(func(shm.MemberID) {})
	}
}
