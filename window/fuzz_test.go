package window

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"testing"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

func FuzzToken(f *testing.F) {
	f.Add(uint32(1), uint32(0), byte(0), uint64(0))
	f.Add(uint32(1<<indexBits-1), uint32(tagMask), byte(255), uint64(math.MaxUint64))
	f.Add(uint32(256), uint32(1<<31|7), byte(5), uint64(1)<<63)
	f.Fuzz(func(t *testing.T, index, tag uint32, rights byte, word uint64) {
		index &= 1<<indexBits - 1
		token := makeToken(index, tag)
		if indexOf(token) != index || uint32(token)>>indexBits != tag&tagMask {
			t.Errorf("index %#x and tag %#x make %#x", index, tag, uint32(token))
		}
		if (token == 0) != (index == 0 && tag&tagMask == 0) {
			t.Errorf("index %#x and tag %#x make %#x", index, tag, uint32(token))
		}
		for i := uint32(1); i <= tagMask; i += 1 + i/3 { // some of the binds that follow
			if next := makeToken(index, tag+i); next == token || indexOf(next) != index {
				t.Errorf("bind %d after %#x has %#x", i, uint32(token), uint32(next))
			}
		}
		if makeToken(index, tag+1<<tagBits) != token {
			t.Error("the tag is not used again")
		}
		w := wordOf(token, Rights(rights))
		if w.valid() || w.token() != token || w.rights() != Rights(rights) {
			t.Errorf("word %#x of %#x with rights %#x", uint64(w), uint32(token), rights)
		}
		if w |= validBit; !w.valid() || w.token() != token || w.rights() != Rights(rights) {
			t.Errorf("valid word %#x of %#x with rights %#x", uint64(w), uint32(token), rights)
		}
		// Any word, from a peer.
		any := entryWord(word)
		if again := wordOf(any.token(), any.rights()); again != any&(1<<40-1) {
			t.Errorf("word %#x becomes %#x", word, uint64(again))
		}
		if h := makeHazard(token, nd.Token(word)); !hazardNames(h, token) || !hazardNames(h, nd.Token(word)) {
			t.Errorf("hazard %#x", h)
		}
		if first := bindBaseOf([2]uint64{word, uint64(tag)}, index); first > tagMask {
			t.Errorf("first tag %#x", first)
		}
	})
}

// expected returns what the words of an entry allow to an operand with a token of owner. It follows the documented format,
// with arithmetic that detects overflow.
func expected(words [8]uint64, owner uint64, a *shm.Arena, r *Operand, n uint64) (f Fault, at uint64) {
	rights := Rights(words[0] >> 32)
	base, length, offset, scope := words[1], words[2], words[3], words[5]
	end, over := bits.Add64(r.Address, n, 0)
	limit, limitOver := bits.Add64(base, length, 0)
	at = offset + r.Address - base
	last, atOver := bits.Add64(at, n, 0)
	switch {
	case r.Far.State.Load() != established || r.Far.Disconnected.Load() != 0:
		return FaultDisconnected, 0
	case words[0]>>63 == 0 || nd.Token(words[0]) != r.Token || words[4] != owner:
		return faultBadToken, 0
	case scope != 0 && scope != r.Far.Endpoint:
		return faultOtherScope, 0
	case rights&(Local|Remote)&r.Rights != r.Rights&(Local|Remote):
		return faultBadToken, 0
	case rights&r.Rights != r.Rights:
		return faultNoRight, 0
	case r.Address < base || over > limitOver || over == limitOver && end > limit:
		return faultOutOfRange, 0
	case offset == 0 || words[6]>>32 != 0: // bytes at the ends that only the owner can access
		return FaultUnreachable, 0
	case at < uint64(a.Info().HeapStart) || atOver != 0 || last > a.Info().Size:
		return faultOutOfRange, 0
	}
	return NoFault, at
}

// The bits of help change an input so that it passes the first checks.
const (
	makeValid   = 1 << iota // the word becomes a valid one of the token
	makeOurs                // the entry becomes that of the adapter at the other end
	makeScope               // and is limited to this connection
	makeNear                // the address becomes one near the entry's base
	makeArena               // the offset becomes one near the heap's start
	scribbleOwn             // the entries of the owner's own tokens are overwritten as well
	abort                   // one side has ended the connection
	disconnect              // the owner has disconnected
)

// helped returns the words of the entry that an input describes, and its bytes. far is the connection of the executor.
func helped(raw []byte, token nd.Token, number uint32, a *shm.Arena, far *FarEnd, help byte) (words [8]uint64, entry [64]byte) {
	copy(entry[:], raw)
	for i := range words {
		words[i] = binary.NativeEndian.Uint64(entry[8*i:])
	}
	if help&makeValid != 0 {
		words[0] = words[0]&^math.MaxUint32 | uint64(token) | 1<<63
	}
	if help&makeOurs != 0 {
		words[4] = uint64(far.Adapter)
	}
	if help&makeScope != 0 {
		words[5] = far.Endpoint
	}
	if help&makeArena != 0 {
		words[3] = uint64(a.Info().HeapStart) - 4096 + words[3]%(1<<20)
	}
	for i := range words {
		binary.NativeEndian.PutUint64(entry[8*i:], words[i])
	}
	if help&abort != 0 {
		far.State.Add(number | 1)
	}
	if help&disconnect != 0 {
		far.Disconnected.Store(number | 1)
	}
	return words, entry
}

// entryOf returns the bytes of an entry.
func entryOf(words ...uint64) (b []byte) {
	for _, word := range words {
		b = binary.NativeEndian.AppendUint64(b, word)
	}
	return b
}

// FuzzEntry has an owner that writes arbitrary words into its entries.
func FuzzEntry(f *testing.F) {
	a := newArena(f)
	owner, executor := join(f, a), join(f, a)
	owner.admit(f, executor)
	mem := owner.alloc(f, 4096)
	region, w := owner.region(f, mem[:2048], nd.AllowLocalWrite|nd.AllowRemoteRead), owner.window(f)
	bound := bind(f, w, region, mem[1000:2000], Write, 7, true)
	local, remote := region.Tokens()
	base, offset := shm.AddressOf(mem), uint64(owner.offsetOf(f, mem))
	// The entries of this block are in use, so reading them does not allocate memory.
	block := indexOf(bound) / shm.WindowBlockEntries * shm.WindowBlockEntries
	entries, err := a.Bytes(a.Info().WindowTable+shm.Offset(block)*shm.WindowEntrySize, shm.WindowBlockEntries*shm.WindowEntrySize)
	if err != nil {
		f.Fatal(err)
	}
	plain, saved := make([]byte, ChunkSize+4096), make([]byte, ChunkSize+4096) // two chunks

	f.Add(entryOf(0, base, 4096, offset), uint32(9), byte(Remote|Read), base, uint64(64), byte(makeValid|makeOurs))
	f.Add(entryOf(0, base, 4096, offset, 0, 0, 8<<32), uint32(9), byte(Remote|Read), base, uint64(64), byte(makeValid|makeOurs))
	f.Add(entryOf(0, base, 4096, 0, 0, 7), uint32(9), byte(Remote|Write), base+1, uint64(4096), byte(makeValid|makeOurs))
	f.Add(entryOf(uint64(Remote|Read|Write)<<32, base, math.MaxUint64, a.Info().Size-1), uint32(1<<20|9), byte(Remote|Read), uint64(0), uint64(2), byte(makeValid|makeOurs|makeNear))
	f.Add(entryOf(uint64(Remote|Read|Write)<<32, math.MaxUint64-5, 100, 1), uint32(200), byte(Remote|Write), uint64(0), uint64(5), byte(makeValid|makeOurs|makeNear|makeArena|scribbleOwn))
	f.Add(entryOf(uint64(Remote|Read|Write)<<32, base, 4*ChunkSize, offset), uint32(9), byte(Remote|Read), base, uint64(2*ChunkSize), byte(makeValid|makeOurs))
	f.Add(bytes.Repeat([]byte{0xff}, 64), uint32(math.MaxUint32), byte(255), uint64(math.MaxUint64), uint64(math.MaxUint64), byte(scribbleOwn))
	f.Add([]byte{}, uint32(0), byte(0), uint64(0), uint64(0), byte(0))

	f.Fuzz(func(t *testing.T, raw []byte, number uint32, rights byte, address, n uint64, help byte) {
		token := makeToken(block+number%shm.WindowBlockEntries, number>>8)
		ref := &Operand{Token: token, Rights: Rights(rights), Address: address, Far: owner.farEnd(7)}
		words, entry := helped(raw, token, number, a, ref.Far, help)
		if help&makeNear != 0 {
			ref.Address = words[1] + address%8192
		}

		before := bytes.Clone(entries)
		defer copy(entries, before)
		lied := [][]byte{executor.raw(t, token)}
		if help&scribbleOwn != 0 {
			lied = append(lied, owner.raw(t, local), owner.raw(t, remote), owner.raw(t, bound))
		}
		for _, b := range lied {
			copy(b, entry[:])
		}
		unchanged, lies := watchTables(t, a), bytes.Clone(entries)

		// The peer of the owner.
		want, at := expected(words, ref.Far.Adapter, a, ref, n)
		if got := executor.guard.Check(ref, n); got != want {
			t.Errorf("%v, want %v", got, want)
		}
		length := n
		if want == NoFault {
			length = min(n, uint64(len(plain)))
		}
		fill(plain, 0x11)
		moved, g, got := executor.guard.Copy(&Operand{Mem: plain}, ref, length)
		if got != want || g != NoFault || (moved == length) != (want == NoFault) && length != 0 {
			t.Fatalf("read: %v, moved %d of %d, want %v", got, moved, length, want)
		}
		if want != NoFault && !only(plain, 0x11) {
			t.Error("a refused read has written")
		}
		if want == NoFault {
			there, err := a.Bytes(shm.Offset(at), length)
			if err != nil {
				t.Fatal(err)
			}
			if hazard := uint64(executor.at); at+length <= hazard || hazard+8 <= at { // else it changes during the copy
				if !bytes.Equal(plain[:length], there) || !only(plain[length:], 0x11) {
					t.Error("read: other bytes than those at the offset")
				}
				copy(saved, there)
				fill(plain[:length], 0x22)
				moved, got, g = executor.guard.Copy(ref, &Operand{Mem: plain}, length)
				if moved != length || got|g != NoFault || !only(there, 0x22) {
					t.Errorf("write: %v, %v, moved %d of %d", got, g, moved, length)
				}
				copy(there, saved)
			}
		} else if moved, got, _ := executor.guard.Copy(ref, &Operand{Mem: plain}, length); got != want || moved != 0 {
			t.Errorf("write: %v, moved %d, want %v", got, moved, want)
		}
		if !unchanged() || !bytes.Equal(entries, lies) {
			t.Error("the tables have changed")
		}

		// The owner itself, with its own tokens and with that of the forged entry.
		for own, allowed := range map[nd.Token]struct {
			rights Rights
			mem    []byte
			scope  uint64
		}{local: {Local | Read | Write, mem[:2048], 0}, remote: {Remote | Read, mem[:2048], 0}, bound: {Remote | Write, mem[1000:2000], 7}} {
			var mine [8]uint64
			mine[0] = uint64(allowed.rights)<<32 | uint64(own) | 1<<63
			mine[1], mine[2], mine[3], mine[5] = shm.AddressOf(allowed.mem), uint64(len(allowed.mem)), offset, allowed.scope
			mine[4] = owner.domain.Adapter
			ref := &Operand{Token: own, Rights: Rights(rights), Address: shm.AddressOf(mem) + address%8192 - 2048, Endpoint: number64(number)}
			same := *ref
			if same.Far = owner.farEnd(ref.Endpoint); ref.Endpoint == 0 {
				same.Far = owner.farEnd(allowed.scope)
			}
			want, _ := expected(mine, owner.domain.Adapter, a, &same, n)
			if got := owner.guard.Check(ref, n); got != want {
				t.Errorf("own token with rights %d: %v, want %v", allowed.rights, got, want)
			}
			if private, got := owner.guard.IsPrivate(ref, n); got != want || private {
				t.Errorf("own token with rights %d: private %v, %v, want %v", allowed.rights, private, got, want)
			}
			if n <= uint64(len(plain)) {
				if moved, _, got := owner.guard.Copy(&Operand{Mem: plain}, ref, n); got != want || want == NoFault && moved != n {
					t.Errorf("own token with rights %d: moved %d, %v, want %v", allowed.rights, moved, got, want)
				}
			}
		}
		if own := (&Operand{Token: token, Rights: Rights(rights), Address: address}); token != local && token != remote && token != bound {
			if got := owner.guard.Check(own, n); got != faultBadToken {
				t.Errorf("a token that the owner has not made: %v", got)
			}
		}
	})
}

// number64 returns an endpoint: the connected one, none, or another.
func number64(n uint32) uint64 { return []uint64{7, 0, 8, math.MaxUint64}[n>>30] }
