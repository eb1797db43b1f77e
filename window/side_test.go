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

// side is a process, or a part of the test in its place: a member, its table, the domain of one adapter, and one executor.
type side struct {
	arena  *shm.Arena
	member *shm.Member
	table  *Table
	domain *Domain
	guard  *Guard
	hazard *atomic.Uint64 // the executor's
	at     shm.Offset     // of that
}

// newSide joins an arena. Its executor's hazard word is in the arena, so that other processes can read it.
func newSide(a *shm.Arena) (*side, error) {
	m, err := a.Join(shm.NoRank)
	if err != nil {
		return nil, err
	}
	s := &side{arena: a, member: m}
	if s.table, err = NewTable(m); err != nil {
		return nil, err
	}
	s.domain = NewDomain(s.table, uint64(m.ID())<<16|1)
	if s.at, err = m.Alloc(128); err != nil {
		return nil, err
	}
	if s.hazard, err = shm.At[atomic.Uint64](a, s.at); err != nil {
		return nil, err
	}
	s.guard = NewGuard(s.domain, s.hazard)
	s.domain.AddHazard(s.hazard, nil)
	return s, nil
}

// join is newSide for the time of the test.
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

// admit adds another side's hazard to our domain, as a connection does, and returns the FarEnd for that side's executor.
func (s *side) admit(t testing.TB, executor *side) *FarEnd {
	t.Helper()
	s.domain.AddHazard(executor.hazard, peer(t, s.arena, executor.member.ID()))
	return s.farEnd(0)
}

// farEnd returns the FarEnd of an executor that is connected to one of our endpoints.
func (s *side) farEnd(endpoint uint64) *FarEnd {
	p := &FarEnd{Adapter: s.domain.Adapter, Endpoint: endpoint,
		State: new(atomic.Uint32), Established: established, Disconnected: new(atomic.Uint32)}
	p.State.Store(established)
	return p
}

// established is the state of an open connection in these tests.
const established = 3

// pair returns an owner, an executor, and the FarEnd with which the executor uses the owner's tokens.
func pair(t testing.TB) (owner, executor *side, to *FarEnd) {
	t.Helper()
	a := newArena(t)
	owner, executor = join(t, a), join(t, a)
	return owner, executor, owner.admit(t, executor)
}

// alloc returns n bytes of the side's arena memory.
func (s *side) alloc(t testing.TB, n uint64) []byte {
	t.Helper()
	off, err := s.member.Alloc(n)
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
	r, err := s.domain.NewRegion()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Register(mem, flags, nil); err != nil {
		t.Fatal(err)
	}
	return r
}

// allRights are all flags of a region.
const allRights = nd.AllowLocalWrite | nd.AllowRemoteRead | nd.AllowRemoteWrite

// window returns a new window.
func (s *side) window(t testing.TB) *Window {
	t.Helper()
	w, err := s.domain.NewWindow()
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// bind binds a window on an endpoint.
func bind(t testing.TB, w *Window, r *Region, mem []byte, rights Rights, endpoint uint64, only bool) nd.Token {
	t.Helper()
	b, err := w.Prepare(r, mem, rights, endpoint, only)
	if err != nil {
		t.Fatal(err)
	}
	if !b.Apply() {
		t.Fatal("the window is bound")
	}
	return w.Descriptor().Token
}

// invalidate invalidates a window that no executor is using.
func invalidate(t testing.TB, w *Invalidatable) {
	t.Helper()
	if _, done, ok := w.Invalidate(w.boundOn); !ok || !done {
		t.Fatalf("invalidate: %v, done: %v", ok, done)
	}
}

// use makes an executor that names a token in its hazard word, until end is called.
func (s *side) use(token nd.Token) (end func()) {
	word := new(atomic.Uint64)
	word.Store(makeHazard(token, 0))
	s.domain.AddHazard(word, nil)
	return func() { s.domain.RemoveHazard(word, nil) }
}

// deregister deregisters a region that no executor is using.
func deregister(t testing.TB, r *Region) {
	t.Helper()
	if err := r.Deregister(); err != nil {
		t.Fatal(err)
	}
	if !r.EndInvalidation() {
		t.Fatal("not drained")
	}
}

func localTokenOf(r *Region) nd.Token {
	local, _ := r.Tokens()
	return local
}

func remoteTokenOf(r *Region) nd.Token {
	_, remote := r.Tokens()
	return remote
}

// remoteOperand returns the operand for a peer's remote token.
func remoteOperand(of *FarEnd, token nd.Token, rights Rights, address uint64) *Operand {
	return &Operand{Token: token, Rights: Remote | rights, Address: address, Far: of}
}

// write copies plain bytes to an operand, read copies from one.
func (s *side) write(to *Operand, b []byte) (moved uint64, f Fault) {
	moved, f, _ = s.guard.Copy(to, &Operand{Mem: b}, uint64(len(b)))
	return moved, f
}

func (s *side) read(b []byte, from *Operand) (moved uint64, f Fault) {
	moved, _, f = s.guard.Copy(&Operand{Mem: b}, from, uint64(len(b)))
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

// only reports whether each byte of b is one of the given values.
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
	b, err := s.arena.Bytes(s.arena.Info().WindowTable+shm.Offset(indexOf(token))*shm.WindowEntrySize, shm.WindowEntrySize)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (s *side) entry(token nd.Token) *accessEntry { return &s.table.entries[indexOf(token)] }

// offsetOf returns the offset of memory in the arena.
func (s *side) offsetOf(t testing.TB, b []byte) shm.Offset {
	t.Helper()
	off, ok := s.arena.Locate(b)
	if !ok {
		t.Fatal("not in the arena")
	}
	return off
}
