package shm

import (
	"errors"
	"strconv"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

// An arena has one relay at a time. A relay that has died or left is none, and any member can take its place.
func TestRelay(t *testing.T) {
	a := newArena(t, 0)
	if _, err := a.Relay(); !errors.Is(err, errNoRelay) {
		t.Errorf("a new arena: %v", err)
	}
	is := func(want MemberID) {
		t.Helper()
		for _, arena := range []*Arena{a, again(t, a)} {
			p, err := arena.Relay()
			if err != nil || p.ID() != want || p.Name() != "the relay" {
				t.Errorf("the relay is %v, %v, want %v", p, err, want)
			}
		}
	}
	first, other := join(t, a, NoRank), join(t, a, NoRank)
	for range 2 {
		if err := first.BecomeRelay(); err != nil {
			t.Fatal(err)
		}
		is(first.ID())
	}
	if err := other.BecomeRelay(); !errors.Is(err, ErrTaken) {
		t.Errorf("a second relay: %v", err)
	}
	is(first.ID())
	if err := first.Leave(); err != nil {
		t.Fatal(err)
	}
	if p, err := a.Relay(); !errors.Is(err, errGone) {
		t.Errorf("after it has left: %v, %v", p, err)
	}

	process := proctest.StartWith(t, a.File(), roleMember)
	id, err := strconv.ParseUint(process.Hear(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	process.Say("relay")
	process.Expect("relay")
	is(MemberID(id))
	if err := other.BecomeRelay(); !errors.Is(err, ErrTaken) {
		t.Errorf("while a relay lives in another process: %v", err)
	}
	process.Kill()
	if err := other.BecomeRelay(); err != nil { // it finds the death itself
		t.Error(err)
	}
	is(other.ID())
}

// A number that no member has had is no relay.
func TestDamagedRelay(t *testing.T) {
	a := newArena(t, 0)
	m := join(t, a, NoRank)
	for _, id := range []MemberID{m.ID() + 1, m.ID() + 1<<16, m.ID() | 1<<48, maxMembers, 1<<16 | maxMembers, 0xffff, ^MemberID(0)} {
		a.header().relay.Store(uint64(id))
		if p, err := a.Relay(); err == nil {
			t.Errorf("%v is a relay: %v", id, p)
		}
	}
	if err := m.BecomeRelay(); err != nil {
		t.Error(err)
	}
}
