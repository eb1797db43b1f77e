package window

import (
	"bytes"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// arenaSize makes an arena with some 60 MiB of heap.
const arenaSize = 128 << 20

func newArena(t testing.TB) *shm.Arena {
	t.Helper()
	a, err := shm.Create(shm.Config{Size: arenaSize})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// side is what a process, or a test's stand-in for one, has: a member, its
// table, one adapter's space, and one executor.
type side struct {
	arena  *shm.Arena
	member *shm.Member
	table  *Table
	space  *Space
	guard  *Guard
	hazard *atomic.Uint64 // the executor's
	at     shm.Offset     // of that
}

// newSide joins an arena. Its executor's hazard lies in the arena, as every
// executor's must that uses tokens of another process.
func newSide(a *shm.Arena) (*side, error) {
	m, err := a.Join(shm.NotRank)
	if err != nil {
		return nil, err
	}
	s := &side{arena: a, member: m}
	if s.table, err = NewTable(m); err != nil {
		return nil, err
	}
	s.space = NewSpace(s.table, Owner(m.ID())<<16|1)
	if s.at, err = m.Heap().Alloc(shm.CacheLine); err != nil {
		return nil, err
	}
	if s.hazard, err = shm.At[atomic.Uint64](a, s.at); err != nil {
		return nil, err
	}
	s.guard = NewGuard(s.space, s.hazard)
	s.space.Watch(NewHazard(s.hazard, nil))
	return s, nil
}

// join is newSide until the test ends.
func join(t testing.TB, a *shm.Arena) *side {
	t.Helper()
	s, err := newSide(a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !gone(t, s) {
			s.leave(t)
		}
	})
	return s
}

func gone(t testing.TB, s *side) bool { return peer(t, s.arena, s.member.ID()).Gone() }

func (s *side) leave(t testing.TB) {
	t.Helper()
	if err := s.member.Leave(); err != nil {
		t.Error(err)
	}
}

func peer(t testing.TB, a *shm.Arena, id shm.MemberID) *shm.Peer {
	t.Helper()
	p, err := a.Peer(id)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// admit lets another side's executor use our tokens, as a connection does,
// and returns what that executor must know about us.
func (s *side) admit(t testing.TB, executor *side) *Peer {
	t.Helper()
	s.space.Watch(NewHazard(executor.hazard, peer(t, s.arena, executor.member.ID())))
	return s.peer(0)
}

// peer is the connection of an executor to one of our endpoints.
func (s *side) peer(endpoint uint64) *Peer {
	return &Peer{Owner: s.space.Owner(), Endpoint: endpoint, Link: openLink()}
}

// What the link of an open connection says in these tests.
const linkOpen = 3

func openLink() Link {
	l := Link{State: new(atomic.Uint32), Open: linkOpen, Left: new(atomic.Uint32)}
	l.State.Store(linkOpen)
	return l
}

// pair returns an owner, an executor, and the executor's connection to the
// owner.
func pair(t testing.TB) (owner, executor *side, to *Peer) {
	t.Helper()
	a := newArena(t)
	owner, executor = join(t, a), join(t, a)
	return owner, executor, owner.admit(t, executor)
}

// alloc returns n bytes of the side's arena memory.
func (s *side) alloc(t testing.TB, n uint64) []byte {
	t.Helper()
	off, err := s.member.Heap().Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.arena.Bytes(off, n)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// region registers memory.
func (s *side) region(t testing.TB, mem []byte, flags nd.RegionFlags) *Region {
	t.Helper()
	r, err := s.space.NewRegion()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Register(mem, flags); err != nil {
		t.Fatal(err)
	}
	return r
}

// everything a region can grant
const allRights = nd.AllowLocalWrite | nd.AllowRemoteRead | nd.AllowRemoteWrite

// window makes a window.
func (s *side) window(t testing.TB) *Window {
	t.Helper()
	w, err := s.space.NewWindow()
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// bind binds a window on an endpoint, at once.
func bind(t testing.TB, w *Window, r *Region, mem []byte, rights Rights, endpoint uint64, only bool) nd.Token {
	t.Helper()
	b, err := w.Prepare(r, mem, rights, endpoint, only)
	if err != nil {
		t.Fatal(err)
	}
	if !b.Run() {
		t.Fatal("the window is bound")
	}
	return w.Descriptor().Token
}

// unbind ends a bind that nobody is using.
func unbind(t testing.TB, w *Window) {
	t.Helper()
	token, ok := w.Invalidate(0)
	if !ok || !w.space.Drained(token) {
		t.Fatalf("invalidate: %v, drained: %v", ok, w.space.Drained(token))
	}
	w.Release()
}

// deregister ends a registration that nobody is using.
func deregister(t testing.TB, r *Region) {
	t.Helper()
	local, remote, err := r.Revoke()
	if err != nil {
		t.Fatal(err)
	}
	if !r.space.Drained(local) || !r.space.Drained(remote) {
		t.Fatal("not drained")
	}
	r.Release()
}

// farRef names n bytes behind a peer's remote token.
func farRef(of *Peer, token nd.Token, rights Rights, address uint64) *Ref {
	return &Ref{Token: token, Rights: Remote | rights, Address: address, Of: of}
}

// write copies plain bytes to a Ref, read copies from one.
func (s *side) write(to *Ref, b []byte) (moved uint64, f Fault) {
	moved, f, _ = s.guard.Copy(to, &Ref{Mem: b}, uint64(len(b)))
	return moved, f
}

func (s *side) read(b []byte, from *Ref) (moved uint64, f Fault) {
	moved, _, f = s.guard.Copy(&Ref{Mem: b}, from, uint64(len(b)))
	return moved, f
}

// pattern returns n bytes that differ from their neighbours.
func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7) + byte(i>>8) + seed
	}
	return b
}

func fill(b []byte, v byte) {
	if len(b) == 0 {
		return
	}
	b[0] = v
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// only tells whether b holds nothing but bytes of the given values.
func only(b []byte, values ...byte) bool {
	n := 0
	for i, v := range values {
		if !slices.Contains(values[:i], v) {
			n += bytes.Count(b, []byte{v})
		}
	}
	return n == len(b)
}

// raw returns the 64 shared bytes of a token's entry.
func (s *side) raw(t testing.TB, token nd.Token) []byte {
	t.Helper()
	b, err := s.arena.Bytes(s.arena.WindowTable()+shm.Offset(indexOf(token))*shm.WindowEntrySize, shm.WindowEntrySize)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (s *side) entry(token nd.Token) *entry { return &s.table.entries[indexOf(token)] }

// offsetOf returns where arena memory lies.
func (s *side) offsetOf(t testing.TB, b []byte) shm.Offset {
	t.Helper()
	off, ok := s.arena.Locate(b)
	if !ok {
		t.Fatal("not in the arena")
	}
	return off
}
