package window

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// watchTables returns a function that reports whether the tables before the heap have not changed since. It covers the
// parts in use that change only when members join or chunks are allocated.
func watchTables(t testing.TB, a *shm.Arena) (unchanged func() bool) {
	t.Helper()
	var now, then [][]byte
	for _, r := range []struct {
		at shm.Offset
		n  uint64
	}{
		{0, 8 << 10}, // header, first member records
		{a.Info().WindowTable + shm.WindowEntries*shm.WindowEntrySize, 4 << 10}, // chunk words
	} {
		b, err := a.Bytes(r.at, r.n)
		if err != nil {
			t.Fatal(err)
		}
		now, then = append(now, b), append(then, bytes.Clone(b))
	}
	return func() bool { return slices.EqualFunc(now, then, bytes.Equal) }
}

// A copy through an entry that names memory outside the heap fails.
func TestForgedEntryIsRefused(t *testing.T) {
	owner, executor, to := pair(t)
	a := executor.arena
	mem := owner.alloc(t, 4096)
	w := owner.window(t)
	token := bind(t, w, owner.region(t, mem, allRights), mem, Read|Write, 0, false)
	e := owner.entry(token)
	base, good := e.base.Load(), e.offset.Load()
	size, heap := a.Info().Size, uint64(a.Info().HeapStart)
	unchanged := watchTables(t, a)
	plain := make([]byte, 4096)
	for _, tc := range []struct {
		name                 string
		base, length, offset uint64
		address, n           uint64
		want                 Fault
	}{
		{"the truth", base, 4096, good, base, 4096, NoFault},
		{"the last byte of the arena", base, 4096, size - 1, base, 1, NoFault},
		{"the first of the heap", base, 4096, heap, base, 1, NoFault},
		{"none of the arena", base, 4096, 0, base, 1, FaultUnreachable},
		{"the header", base, 4096, 1, base, 8, faultOutOfRange},
		{"the member records", base, 4096, 4096, base, 64, faultOutOfRange},
		{"its own entry", base, 4096, uint64(a.Info().WindowTable) + uint64(indexOf(token))*64, base, 64, faultOutOfRange},
		{"the last byte before the heap", base, 4096, heap - 1, base, 2, faultOutOfRange},
		{"a range that begins before the heap", base, 1 << 20, heap - 4096, base, 8192, faultOutOfRange},
		{"the last byte and one more", base, 4096, size - 1, base, 2, faultOutOfRange},
		{"the end of the arena", base, 4096, size, base, 1, faultOutOfRange},
		{"beyond the arena", base, 4096, size + 1, base, 1, faultOutOfRange},
		{"far beyond it", base, 4096, 1 << 62, base, 1, faultOutOfRange},
		{"the end of the numbers", base, 4096, math.MaxUint64, base, 1, faultOutOfRange},
		{"a range that ends beyond all numbers", base, math.MaxUint64, good, base + 4096, math.MaxUint64 - 4096, faultOutOfRange},
		{"offset and address overflow to the header", 0, math.MaxUint64, math.MaxUint64 - 99, 100, 8, faultOutOfRange},
		{"offset and address overflow into the tables", 0, math.MaxUint64, math.MaxUint64 - 99, 5000, 8, faultOutOfRange},
		{"offset and address overflow into the heap", 0, math.MaxUint64, math.MaxUint64 - 99, heap + 100, 8, NoFault},
		{"a huge length", base, math.MaxUint64, good, base, size, faultOutOfRange},
		{"a huge length, used within the heap", base, math.MaxUint64, good, base, 64, NoFault},
		{"base and length overflow", math.MaxUint64 - 9, 4096, good, math.MaxUint64 - 9, 10, NoFault},
		{"base and length overflow, used across", math.MaxUint64 - 9, 4096, good, 5, 8, faultOutOfRange},
		{"base 0", 0, math.MaxUint64, good, 0, 64, NoFault},
		{"base 0, far away", 0, math.MaxUint64, good, size, 1, faultOutOfRange},
		{"no length", base, 0, good, base, 1, faultOutOfRange},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e.base.Store(tc.base)
			e.length.Store(tc.length)
			e.offset.Store(tc.offset)
			want := tc.want
			ref := remoteOperand(to, token, Read|Write, tc.address)
			if f := executor.guard.Check(ref, tc.n); f != want {
				t.Fatalf("%v, want %v", f, want)
			}
			if want == NoFault {
				if _, f := executor.read(plain[:tc.n], ref); f != NoFault {
					t.Errorf("read: %v", f)
				}
				return
			}
			moved, f, _ := executor.guard.Copy(ref, &Operand{Mem: plain}, tc.n)
			if f != want || moved != 0 {
				t.Errorf("write: %d bytes, %v", moved, f)
			}
			moved, _, f = executor.guard.Copy(&Operand{Mem: plain}, ref, tc.n)
			if f != want || moved != 0 {
				t.Errorf("read: %d bytes, %v", moved, f)
			}
		})
	}
	if !unchanged() {
		t.Error("the tables have changed")
	}
}

// An entry that a peer has changed gives the owner's own requests no more access: the owner relies on its private records.
func TestOwnerIgnoresItsSharedEntries(t *testing.T) {
	a := newArena(t)
	owner := join(t, a)
	mem, secret := owner.alloc(t, 4096), make([]byte, 4096)
	fill(secret, 0x5c)
	r := owner.region(t, mem, nd.AllowRemoteRead)
	private := owner.region(t, secret, nd.AllowRemoteRead)
	w := owner.window(t)
	bound := bind(t, w, r, mem[1000:2000], Read, 7, true)
	local, remote := r.Tokens()
	_, privateRemote := private.Tokens()
	stale := bind(t, owner.window(t), r, mem, Read, 0, false)
	staleWindow := owner.domain.Find(stale, Remote, 0)
	invalidate(t, staleWindow)
	refs := []struct {
		ref  Operand
		n    uint64
		want Fault
	}{
		{Operand{Token: bound, Rights: Remote | Read, Address: shm.AddressOf(mem[1000:])}, 1000, NoFault},
		{Operand{Token: bound, Rights: Remote | Read, Address: shm.AddressOf(mem[1000:])}, 1001, faultOutOfRange},
		{Operand{Token: bound, Rights: Remote | Write, Address: shm.AddressOf(mem[1000:])}, 1, faultNoRight},
		{Operand{Token: bound, Rights: Remote | Read, Address: shm.AddressOf(mem[1000:]), Endpoint: 8}, 1, faultOtherScope},
		{Operand{Token: remote, Rights: Remote | Read, Address: shm.AddressOf(mem)}, 4096, NoFault},
		{Operand{Token: remote, Rights: Remote | Write, Address: shm.AddressOf(mem)}, 1, faultNoRight},
		{Operand{Token: local, Rights: Local | Read, Address: shm.AddressOf(mem)}, 4096, NoFault},
		{Operand{Token: local, Rights: Local | Write, Address: shm.AddressOf(mem)}, 4096, faultNoRight},
		{Operand{Token: local, Rights: Remote | Read, Address: shm.AddressOf(mem)}, 4096, faultBadToken},
		{Operand{Token: privateRemote, Rights: Remote | Read, Address: shm.AddressOf(secret)}, 4096, NoFault},
		{Operand{Token: privateRemote, Rights: Remote | Read, Address: shm.AddressOf(secret)}, 4097, faultOutOfRange},
		{Operand{Token: privateRemote, Rights: Remote | Write, Address: shm.AddressOf(secret)}, 1, faultNoRight},
		{Operand{Token: stale, Rights: Remote | Read, Address: shm.AddressOf(mem)}, 1, faultBadToken},
	}
	lies := []func(e *accessEntry, token nd.Token){
		func(e *accessEntry, token nd.Token) { // access to everything
			e.base.Store(0)
			e.length.Store(math.MaxUint64)
			e.offset.Store(uint64(a.Info().HeapStart))
			e.scope.Store(0)
			e.word.Store(uint64(wordOf(token, Read|Write|Local|Remote) | validBit))
		},
		func(e *accessEntry, _ nd.Token) { e.word.Store(0) },
		func(e *accessEntry, _ nd.Token) { e.word.Store(math.MaxUint64) },
		func(e *accessEntry, _ nd.Token) { e.owner.Store(12345) },
		func(e *accessEntry, _ nd.Token) { e.offset.Store(math.MaxUint64); e.length.Store(0) },
		func(e *accessEntry, _ nd.Token) { e.binds.Store(math.MaxUint32) },
	}
	for i, lie := range lies {
		for _, r := range refs {
			raw := owner.raw(t, r.ref.Token)
			saved := bytes.Clone(raw)
			lie(owner.entry(r.ref.Token), r.ref.Token)
			if f := owner.guard.Check(&r.ref, r.n); f != r.want {
				t.Errorf("lie %d: %+v: %v, want %v", i, r.ref, f, r.want)
			}
			b := make([]byte, r.n)
			if r.ref.Rights&Read != 0 {
				if moved, f := owner.read(b, &r.ref); f != r.want || (moved == r.n) != (f == NoFault) {
					t.Errorf("lie %d: read by %+v: %d bytes, %v, want %v", i, r.ref, moved, f, r.want)
				}
			}
			if private, f := owner.guard.IsPrivate(&r.ref, r.n); f != r.want || f == NoFault && private != (r.ref.Token == privateRemote) {
				t.Errorf("lie %d: %+v is private: %v, %v", i, r.ref, private, f)
			}
			copy(raw, saved)
		}
	}
	// The owner can invalidate a token whose word was forged, and the word is
	// then that of the invalid token.
	lies[0](owner.entry(bound), bound)
	if token, done, ok := w.Invalidate(7); !ok || token != bound || !done {
		t.Fatal("invalidate")
	}
	if word := entryWord(owner.entry(bound).word.Load()); word.valid() || word.token() != bound {
		t.Errorf("the word after the invalidation: %#x", uint64(word))
	}
}

// While another thread writes into all entries, the owner's requests work, and those of a peer do not crash or access
// memory outside the heap.
func TestEntriesChangeDuringAccess(t *testing.T) {
	owner, executor, to := pair(t)
	a := owner.arena
	mem := owner.alloc(t, 1<<16)
	r := owner.region(t, mem, allRights)
	tokens := []nd.Token{}
	for range 8 {
		tokens = append(tokens, bind(t, owner.window(t), r, mem, Read|Write|Atomic, 0, false))
	}
	unchanged := watchTables(t, a)
	stop, stopped := make(chan struct{}), make(chan struct{})
	defer func() { close(stop); <-stopped }()
	go func() {
		defer close(stopped)
		random := rand.New(rand.NewPCG(1, 2))
		interesting := []uint64{0, 1, math.MaxUint64, 1 << 63, uint64(a.Info().HeapStart), uint64(a.Info().HeapStart) - 8, a.Info().Size, a.Info().Size - 64,
			shm.AddressOf(mem), shm.AddressOf(mem) - 4, uint64(owner.offsetOf(t, mem)), 1 << 16, 0}
		for {
			select {
			case <-stop:
				return
			default:
			}
			token := tokens[random.IntN(len(tokens))]
			e := owner.entry(token)
			value := interesting[random.IntN(len(interesting))]
			switch random.IntN(7) {
			case 0:
				e.word.Store(uint64(wordOf(token, Rights(random.IntN(32))) | validBit))
			case 1:
				e.word.Store(value)
			case 2:
				e.base.Store(value)
			case 3:
				e.length.Store(value)
			case 4:
				e.offset.Store(value)
			case 5:
				e.owner.Store(uint64(to.Adapter))
			case 6:
				e.scope.Store(value & 1)
			}
		}
	}()
	own, plain := make([]byte, 1<<16), make([]byte, 1<<16)
	outcomes := map[Fault]int{}
	i := 0
	proctest.Eventually(t, "the peer has had every fault that can occur", func() bool {
		for range 1000 {
			i++
			token := tokens[i%len(tokens)]
			ref := &Operand{Token: token, Rights: Remote | Read | Write, Address: shm.AddressOf(mem)}
			n := uint64(1 + i*131%(1<<12))
			if moved, f := owner.read(own[:n], ref); moved != n || f != NoFault {
				t.Fatalf("own access: %d bytes, %v", moved, f)
			}
			change := &Operand{Token: token, Rights: Remote | Atomic, Address: ref.Address + n&^7}
			if _, f := owner.guard.Change(change, nd.RequestFetchAndAdd, 1, 0); f != NoFault {
				t.Fatalf("own change: %v", f)
			}
			ref.Far, change.Far = to, to
			_, f := executor.read(plain[:n], ref)
			outcomes[f]++
			_, f = executor.guard.Change(change, nd.RequestCompareAndSwap, n, 0)
			outcomes[f]++
		}
		delete(outcomes, faultRevoked) // too rare to wait for
		return len(outcomes) == int(faultUnspecified)-2
	})
	if !unchanged() {
		t.Error("the tables have changed")
	}
	t.Logf("results of the peer: %v", outcomes)
}

// Tokens that no owner has made, for each tag of an entry and for entries of all indexes.
func TestGuessedTokenIsRefused(t *testing.T) {
	owner, executor, to := pair(t)
	mem := owner.alloc(t, 64)
	_, remote := owner.region(t, mem, allRights).Tokens()
	for tag := range uint32(1 << tagBits) {
		token := makeToken(indexOf(remote), tag)
		if f := executor.guard.Check(remoteOperand(to, token, Read, shm.AddressOf(mem)), 1); (f == NoFault) != (token == remote) {
			t.Errorf("tag %#x: %v", tag, f)
		}
	}
	for index := range uint32(shm.WindowEntries / 64) {
		token := makeToken(index*64+63, tagOf(remote))
		for _, g := range []*Guard{executor.guard, owner.guard} {
			if f := g.Check(remoteOperand(to, token, Read, shm.AddressOf(mem)), 1); f != faultBadToken {
				t.Errorf("index %#x: %v", index*64+63, f)
			}
			if f := g.Check(&Operand{Token: token, Rights: Local, Address: shm.AddressOf(mem)}, 1); f != faultBadToken {
				t.Errorf("index %#x, own: %v", index*64+63, f)
			}
		}
	}
	for _, token := range []nd.Token{0, 1 << indexBits, 0xfff00000} { // index 0
		if f := executor.guard.Check(remoteOperand(to, token, 0, 0), 0); f != faultBadToken {
			t.Errorf("token %#x: %v", uint32(token), f)
		}
	}
}

func TestEntryHasDocumentedWords(t *testing.T) {
	s := join(t, newArena(t))
	mem := s.alloc(t, 64)
	local, _ := s.region(t, mem, 0).Tokens()
	raw := s.raw(t, local)
	if word := entryWord(binary.NativeEndian.Uint64(raw)); !word.valid() || word.token() != local {
		t.Errorf("the first word is %#x", uint64(word))
	}
	if base := binary.NativeEndian.Uint64(raw[8:]); base != shm.AddressOf(mem) {
		t.Errorf("the second is %#x", base)
	}
	if off := binary.NativeEndian.Uint64(raw[24:]); off != uint64(s.offsetOf(t, mem)) {
		t.Errorf("the fourth is %#x", off)
	}
}
