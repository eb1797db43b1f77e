package window

import (
	"bytes"
	"math"
	"testing"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// TestKnownBindIsNotUsedForALaterOne binds a window until its token has come again, for other memory. The executor knows the first
// bind, and has not asked since.
func TestKnownBindIsNotUsedForALaterOne(t *testing.T) {
	owner, executor, to := pair(t)
	d := newFastPath(t, executor)
	mem := owner.alloc(t, 1024)
	base := shm.AddressOf(mem)
	r, w := owner.region(t, mem, allRights), owner.window(t)
	put := func(token nd.Token, at uint64) Fault { // as a post does
		if d.putWord(to, token, base+at, d.tokens[fullToken], d.registered[:8]) || d.guard.Put(to, &nd.SGE{Buffer: d.registered[:8], Token: d.tokens[fullToken]}, base+at, token) == NoFault {
			return NoFault
		}
		_, f, _ := d.guard.Copy(remoteOperand(to, token, Write, base+at), near(d.tokens[fullToken], Read, shm.AddressOf(d.registered)), 8)
		return f
	}
	first := bind(t, w, r, mem[:512], Write, 7, false)
	if f := put(first, 0); f != NoFault {
		t.Fatal(f)
	}
	token := nd.Token(0)
	for binds := 0; token != first; binds++ {
		if binds > 4096 {
			t.Fatal("the token has not come again")
		}
		if _, done, ok := w.Invalidate(7); !ok || !done {
			t.Fatal("invalidate")
		}
		if f := put(first, 0); f == NoFault {
			t.Fatal("a Put with a token that is invalid")
		}
		token = bind(t, w, r, mem[512:], Write, 7, false)
	}
	fill(mem, 0x33)
	copy(d.registered, pattern(8, 5))
	for range 2 {
		if f := put(first, 0); f != faultOutOfRange || !only(mem[:512], 0x33) {
			t.Errorf("a Put of what the first bind allowed: %v", f)
		}
		if f := put(first, 512); f != NoFault || !bytes.Equal(mem[512:520], pattern(8, 5)) {
			t.Errorf("a Put of what the last bind allows: %v", f)
		}
	}
}

// An invalidation between check and recheck makes PutWord fail, and waits for it.
func TestPutWordChecksAgain(t *testing.T) {
	owner, executor, to := pair(t)
	d := newFastPath(t, executor)
	mem := owner.alloc(t, 20) // its last 4 bytes are no word
	r, w := owner.region(t, mem, allRights), owner.window(t)
	token, local, source := bind(t, w, r, mem, Write, 7, false), d.tokens[fullToken], d.registered[:8]
	if f := d.guard.Put(to, &nd.SGE{Buffer: source, Token: local}, shm.AddressOf(mem), token); f != NoFault {
		t.Fatal(f)
	}
	known := to.Known(token)
	for offset, want := range map[uint64]bool{0: true, 8: true, 12: true, 13: false, 16: false, 20: false, math.MaxUint64: false, math.MaxUint64 - 7: false} {
		if got := known.HasWord(token, shm.AddressOf(mem)+offset); got != want {
			t.Errorf("the word at %d is found: %v", int64(offset), got)
		}
		if got := d.guard.HasSource(local, shm.AddressOf(d.registered)+offset); got != (int64(offset) >= 0) {
			t.Errorf("the source at %d is allowed: %v", int64(offset), got)
		}
	}
	if known.HasWord(token+1<<indexBits, shm.AddressOf(mem)) || d.guard.HasSource(local+1<<indexBits, shm.AddressOf(d.registered)) {
		t.Error("another token is taken for the known one")
	}
	short := bind(t, owner.window(t), r, mem[:4], Write, 7, false)
	if f := d.guard.Put(to, &nd.SGE{Buffer: source[:4], Token: local}, shm.AddressOf(mem), short); f != NoFault || to.Known(short).HasWord(short, shm.AddressOf(mem)) {
		t.Errorf("a word of 4 bytes: %v", f)
	}
	write := func(end *permissions) (present, ok bool) {
		present = known.IsPresent()
		p, isSame := d.guard.Begin(token, local)
		if p == nil || !isSame {
			t.Error("Begin does not find the local token")
		}
		known.PutWord(shm.AddressOf(mem), source)
		if end == nil {
			end = p
		}
		return present, d.guard.End(end, known.IsPresent())
	}
	if present, ok := write(nil); !present || !ok {
		t.Errorf("a Write of a valid token: %v, %v", present, ok)
	}
	if _, ok := write(new(permissions)); ok {
		t.Error("a Write succeeds whose local token was revoked meanwhile")
	}
	d.guard.Begin(token, local)
	if _, done, ok := w.Invalidate(7); !ok || done {
		t.Errorf("Invalidate: %v, drained %v", ok, done)
	}
	if known.IsPresent() {
		t.Error("the invalid token is present")
	}
	d.guard.End(nil, false)
	if !w.EndInvalidation() {
		t.Error("the token is not drained")
	}
}

// TestManyTokensInTurn uses more tokens of a peer in turn than an executor remembers, and others whose last bits are the same.
func TestManyTokensInTurn(t *testing.T) {
	owner, executor, to := pair(t)
	d := newFastPath(t, executor)
	mem := owner.alloc(t, 64*3*knownBinds)
	r := owner.region(t, mem, allRights)
	var tokens []nd.Token
	for i := range 3 * knownBinds {
		tokens = append(tokens, bind(t, owner.window(t), r, mem[64*i:][:64], Read|Write, 7, false))
	}
	for range 3 {
		for i, token := range tokens {
			at := mem[64*i:][:64]
			if put, get := d.across(t, to, token, shm.AddressOf(at), d.tokens[fullToken], d.registered[:64], at); !put || !get {
				t.Fatalf("token %d: put %v, get %v", i, put, get)
			}
			if put, get := d.across(t, to, token, shm.AddressOf(at)+1, d.tokens[fullToken], d.registered[:64], nil); put || get {
				t.Fatalf("behind token %d: put %v, get %v", i, put, get)
			}
		}
	}
}
