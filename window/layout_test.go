package window

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"reflect"
	"strings"
	"testing"

	"github.com/softnd/softnd/shm"
)

// checkLayout compares sections of the layout description with the given ones, by their first lines. The description must
// have no other sections whose names begin with one of prefixes.
func checkLayout(t *testing.T, prefixes []string, sections ...string) {
	t.Helper()
	have := map[string]string{}
	for section := range strings.SplitSeq(strings.TrimSpace(shm.Layout), "\n\n") {
		title, _, _ := strings.Cut(section, "\n")
		have[title] = strings.TrimSpace(section) + "\n"
	}
	for _, want := range sections {
		title, _, _ := strings.Cut(want, "\n")
		if have[title] != want {
			t.Errorf("shm/LAYOUT.txt should have a section\n%s", want)
		}
		delete(have, title)
	}
	for title := range have {
		for _, prefix := range prefixes {
			if strings.HasPrefix(title, prefix) {
				t.Errorf("shm/LAYOUT.txt has a section %q, which describes nothing in this package", title)
			}
		}
	}
}

// field returns the line that describes some bits of a word.
func field(mask uint64, meaning string) string {
	first, last := bits.TrailingZeros64(mask), bits.Len64(mask)-1
	switch {
	case mask>>first != 1<<(last-first+1)-1:
		return fmt.Sprintf("  mask %#x has holes\n", mask)
	case first == last:
		return fmt.Sprintf("  bit      %d %s\n", first, meaning)
	}
	return fmt.Sprintf("  bits %2d..%2d %s\n", first, last, meaning)
}

func TestLayoutDescribesEntries(t *testing.T) {
	const all = 1<<32 - 1
	checkLayout(t, []string{"window.", "word window."},
		shm.DescribeStruct("window.accessEntry", reflect.TypeFor[accessEntry]()),
		"word window.token, 32 bits\n"+
			field(uint64(makeToken(1<<indexBits-1, 0)), "index of its entry, never 0")+
			field(uint64(makeToken(0, tagMask)), "tag: another one with each bind of the index"),
		"word window.accessEntry.word, 64 bits\n"+
			field(uint64(wordOf(all, 0)), "token")+
			field(uint64(wordOf(0, 0xff)), fmt.Sprintf("rights: %d read, %d write, %d remote token, %d local token", Read, Write, Remote, Local))+
			field(uint64(boundWord(0, all, 0)&^wordOf(all, 0)), "generation: number of the bind, without the tag")+
			field(uint64(validBit), "the token is valid"),
		"word window.hazard, 64 bits: wire.SharedQP.Hazard\n"+
			field(makeHazard(0, all), "token that is in use as the source, 0 = none")+
			field(makeHazard(all, 0), "token that is in use as the sink, 0 = none"))
}

// The words that identify members, which other packages and processes read.
func TestLayoutDescribesMembers(t *testing.T) {
	const free, live, dead = 0, 1, 2
	id := shm.MemberID(1<<48 - 1)
	checkLayout(t, []string{"word shm."},
		"word shm.memberRecord.state, 64 bits\n"+
			field(0xff, fmt.Sprintf("status: %d free, %d live, %d dead", free, live, dead))+
			field(0xffffffff<<32, "incarnation of the slot"),
		"word shm.MemberID, 64 bits\n"+
			field(uint64(id.Slot()), "slot")+
			field(uint64(id)&^uint64(id.Slot()), "incarnation of the slot"))

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
