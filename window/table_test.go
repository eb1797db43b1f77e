package window

import (
	"errors"
	"slices"
	"testing"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

func TestTableReusesOldestEntryFirst(t *testing.T) {
	table := join(t, newArena(t)).table
	take := func() *ownEntry {
		t.Helper()
		g, err := table.take()
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	var given []uint32
	for range 5 {
		given = append(given, take().index)
	}
	back := []int{3, 0, 4, 1}
	for _, i := range back {
		table.giveBack(&ownEntry{index: given[i], entry: &table.entries[given[i]]})
	}
	var again []uint32
	for i := 0; len(again) < len(back); i++ {
		g := take()
		if slices.Contains(given, g.index) {
			again = append(again, g.index)
			if i < shm.WindowBlockEntries/2 {
				t.Errorf("index %d comes back after %d others", g.index, i)
			}
		}
		if g.index == 0 {
			t.Fatal("index 0 is given out")
		}
	}
	for n, i := range back {
		if again[n] != given[i] {
			t.Errorf("given back %v of %v, reused as %v", back, given, again)
			break
		}
	}
}

// Because of the reserve, an entry that is taken and given back all the time is not the same one each time.
func TestTableKeepsReserve(t *testing.T) {
	table := join(t, newArena(t)).table
	last := map[uint32]int{}
	for i := range 4 * shm.WindowBlockEntries {
		g, err := table.take()
		if err != nil {
			t.Fatal(err)
		}
		if at, ok := last[g.index]; ok && i-at <= shm.WindowBlockEntries/2 {
			t.Fatalf("index %d comes back after %d takes", g.index, i-at)
		}
		last[g.index] = i
		table.giveBack(g)
	}
}

func TestTableEntriesAreUnique(t *testing.T) {
	a := newArena(t)
	seen := map[uint32]bool{}
	for _, s := range []*side{join(t, a), join(t, a), join(t, a)} {
		for range 3 * shm.WindowBlockEntries {
			g, err := s.table.take()
			if err != nil {
				t.Fatal(err)
			}
			if seen[g.index] || g.index == 0 || g.index >= shm.WindowEntries {
				t.Fatalf("index %d is given out (again)", g.index)
			}
			seen[g.index] = true
		}
	}
}

func TestTableFull(t *testing.T) {
	a := newArena(t)
	hog, s := join(t, a), join(t, a)
	if _, err := s.domain.NewWindow(); err != nil { // so that s has a block when the other takes all the rest
		t.Fatal(err)
	}
	for {
		if _, err := hog.member.ClaimWindowBlock(); err != nil {
			if !errors.Is(err, shm.ErrFull) {
				t.Fatal(err)
			}
			break
		}
	}
	if _, err := hog.domain.NewWindow(); !errors.Is(err, shm.ErrFull) {
		t.Errorf("a window without an index: %v", err)
	}
	if _, err := hog.domain.NewRegion(); !errors.Is(err, shm.ErrFull) {
		t.Errorf("a region without an index: %v", err)
	}
	if _, err := hog.domain.ReserveToken(); !errors.Is(err, shm.ErrFull) {
		t.Errorf("reserved token: %v", err)
	}
	left := len(s.table.free)
	for range left - 1 { // the reserve is used when there are no more blocks
		if _, err := s.domain.NewWindow(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.domain.NewRegion(); !errors.Is(err, shm.ErrFull) {
		t.Errorf("a region with one index: %v", err)
	}
	w, err := s.domain.NewWindow() // the failed NewRegion has given it back
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.domain.NewWindow(); !errors.Is(err, shm.ErrFull) {
		t.Errorf("a window without an index: %v", err)
	}
	w.Free()
	if _, err := s.domain.NewWindow(); err != nil {
		t.Errorf("after a window was freed: %v", err)
	}
}

// A member that leaves does not change its entries. The next owner of the block makes them invalid and continues the tags.
func TestNewBlockOwnerInvalidatesEntries(t *testing.T) {
	a := newArena(t)
	executor, leaver := join(t, a), join(t, a)
	far := leaver.admit(t, executor)
	mem := leaver.alloc(t, 4096)
	region := leaver.region(t, mem, allRights)
	tokens := map[uint32]nd.Token{}
	local, remote := region.Tokens()
	for _, token := range []nd.Token{local, remote} {
		tokens[indexOf(token)] = token
	}
	for range 3 {
		w := leaver.window(t)
		bind(t, w, region, mem, Read|Write, 0, false)
		invalidate(t, &w.Invalidatable)
		token := bind(t, w, region, mem, Read|Write, 0, false)
		tokens[indexOf(token)] = token
	}
	if f := executor.guard.Check(remoteOperand(far, remoteTokenOf(region), Read, shm.AddressOf(mem)), 1); f != NoFault {
		t.Fatal(f)
	}
	leaver.leave(t)
	executor.member.CheckLiveness(func(shm.MemberID) {})

	heir := join(t, a)
	if heir.member.ID().Slot() != leaver.member.ID().Slot() {
		t.Fatal("the test expects the slot to be used again, and the block with it")
	}
	near := heir.admit(t, executor)
	mem = heir.alloc(t, 4096)
	region = heir.region(t, mem, allRights)
	for old, token := range tokens {
		word := entryWord(heir.table.entries[old].word.Load())
		if word.valid() && word.token() == token {
			t.Errorf("token %#x is still valid", uint32(token))
		}
		for _, of := range []*FarEnd{far, near} {
			ref := remoteOperand(of, token, 0, shm.AddressOf(mem))
			if f := executor.guard.Check(ref, 1); f != faultBadToken {
				t.Errorf("token %#x of the member that left, owner %#x: %v", uint32(token), of.Adapter, f)
			}
			if ref.Rights = Local; executor.guard.Check(ref, 1) != faultBadToken {
				t.Errorf("token %#x of the member that left, as a local one, owner %#x: not refused", uint32(token), of.Adapter)
			}
		}
	}
	found := 0
	for range len(tokens) + 2 {
		w := heir.window(t)
		token := bind(t, w, region, mem, Read, 0, false)
		old, ok := tokens[indexOf(token)]
		if !ok {
			continue
		}
		found++
		if want := (tagOf(old) + 1) & tagMask; tagOf(token) != want {
			t.Errorf("index %d: tag %#x, after %#x at its last owner", indexOf(token), tagOf(token), tagOf(old))
		}
	}
	for _, token := range []nd.Token{localTokenOf(region), remoteTokenOf(region)} {
		if old, ok := tokens[indexOf(token)]; ok {
			found++
			if want := (tagOf(old) + 1) & tagMask; tagOf(token) != want {
				t.Errorf("index %d: tag %#x, after %#x at its last owner", indexOf(token), tagOf(token), tagOf(old))
			}
		}
	}
	if found != len(tokens) {
		t.Errorf("%d of %d indexes were found again", found, len(tokens))
	}
}

func TestLookupFindsOwnTokensOnly(t *testing.T) {
	owner, executor, _ := pair(t)
	region := owner.region(t, owner.alloc(t, 64), allRights)
	for _, token := range []nd.Token{localTokenOf(region), remoteTokenOf(region), 0, 1, makeToken(1<<indexBits-1, 0)} {
		if _, p, _ := executor.table.lookup(token); p != nil {
			t.Errorf("%#x is found by another member", uint32(token))
		}
	}
	if _, p, _ := owner.table.lookup(localTokenOf(region)); p == nil {
		t.Error("not found by its owner")
	}
	if _, p, _ := owner.table.lookup(localTokenOf(region) + 1<<indexBits); p != nil {
		t.Error("found under another tag")
	}
	deregister(t, region)
	if _, p, _ := owner.table.lookup(localTokenOf(region)); p != nil {
		t.Error("found after the deregistration")
	}
	token := localTokenOf(region)
	region.Free()
	if _, p, _ := owner.table.lookup(token); p != nil {
		t.Error("found after its index was given back")
	}
}
