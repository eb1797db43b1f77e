package shm

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/layout"
)

// testSize is the size of an arena with some 30 MiB of heap.
const testSize = 96 << 20

// newArena creates a small arena, and closes it when the test ends.
func newArena(t testing.TB, ranks int) *Arena {
	t.Helper()
	a, err := Create(Config{Ranks: ranks, Size: testSize})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if a.mem == nil {
			return
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// join joins an arena, and leaves it when the test ends.
func join(t testing.TB, a *Arena, rank int) *Member {
	t.Helper()
	m, err := a.Join(rank)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !m.left.Load() {
			if err := m.Leave(); err != nil {
				t.Error(err)
			}
		}
	})
	return m
}

// again maps an arena a second time, as another process does.
func again(t testing.TB, a *Arena) *Arena {
	t.Helper()
	b, err := Attach(t.Context(), a.File())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// peerOf returns the peer with that identity.
func peerOf(t testing.TB, m *Member, id MemberID) *Peer {
	t.Helper()
	p, err := m.Arena().Peer(id)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func noDrop(MemberID) {}

// blocks returns how many bytes of the arena are allocated.
func blocks(t testing.TB, a *Arena) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(a.File().Fd()), &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

// chunksOf counts the chunks that a member slot owns.
func chunksOf(a *Arena, slot int) (n int) {
	words := a.words(a.geo.chunkOwners, a.geo.chunks)
	for i := range words {
		if words[i].Load() == uint32(slot)+1 {
			n++
		}
	}
	return n
}

func stateIn(a *Arena, slot int) memberState { return memberState(a.member(slot).state.Load()) }

// memfd creates a memory file that begins with content.
func memfd(t testing.TB, content []byte, size int64, seals int) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("crafted", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "crafted")
	t.Cleanup(func() { f.Close() })
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(content[:min(size, int64(len(content)))], 0); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	return f
}

// headerPage returns a valid header page for an arena of size bytes, modified by change. The checksum
// matches the modified page.
func headerPage(size uint64, change func(*header)) []byte {
	page := make([]byte, headerSize)
	h := (&Arena{mem: page}).header()
	h.magic, h.layout, h.size = arenaMagic, layout.Hash(), size
	h.secret, h.id = [2]uint64{1, 2}, [2]uint64{3, 4}
	h.version.Store(layout.Version)
	if change != nil {
		change(h)
	}
	h.checksum = h.constants().sum()
	return page
}

// fakeChunks is the size of a fake arena's heap in chunks.
const fakeChunks = 4

// fakeArena returns an arena in the test's memory, without a file. No record in it can be locked, and no
// page reserved or released. It is cheap to create. Its tables have the real sizes; it has no window
// table.
func fakeArena(ranks int) *Arena {
	g := geometry{chunks: fakeChunks}
	at := uint64(headerSize)
	table := func(bytes uint64) Offset {
		o := Offset(at)
		at = roundUp(at+bytes, pageSize)
		return o
	}
	g.memberTable = table(maxMembers * memberStride)
	g.rankRecords = table(MaxRanks * rankRecordStride)
	g.windowOwners = table(windowBlocks * 4)
	g.numberOwners = table(numberBlocks * 4)
	g.chunkOwners = table(fakeChunks * 4)
	g.heap = Offset(roundUp(at, chunkSize))
	g.size = uint64(g.heap) + fakeChunks*chunkSize
	return &Arena{mem: make([]byte, g.size), geo: g, ranks: ranks}
}

// fakeMember puts a live member into a slot of a fake arena.
func fakeMember(a *Arena, slot, rank int) *Member {
	rec := a.member(slot)
	incarnation := memberState(rec.state.Load()).incarnation() + 1
	a.useSlot(slot)
	rec.rank.Store(uint32(rank + 1))
	rec.deathEpoch.Store(notCounted(incarnation))
	rec.state.Store(uint64(stateOf(statusLive, incarnation)))
	return &Member{Peer: *newPeer(a, memberID(slot, incarnation), rec), slot: slot, rank: rank, heap: newHeap(a, slot)}
}

// isNoMemory reports whether err is a [NoMemoryError].
func isNoMemory(err error) bool {
	_, ok := errors.AsType[*NoMemoryError](err)
	return ok
}
