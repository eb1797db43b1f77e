package window

import (
	"math/rand/v2"
	"testing"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

func tagOf(t nd.Token) uint32 { return uint32(t) >> indexBits }

func TestTokenHasIndexAndTag(t *testing.T) {
	const lastIndex, lastTag = 1<<indexBits - 1, 1<<tagBits - 1
	for _, index := range []uint32{1, 2, 255, 256, 1 << 19, lastIndex} {
		for _, tag := range []uint32{0, 1, 2047, 2048, lastTag} {
			token := makeToken(index, tag)
			if indexOf(token) != index || tagOf(token) != tag || token == 0 {
				t.Errorf("index %#x and tag %#x make %#x, and that is %#x and %#x", index, tag, uint32(token), indexOf(token), tagOf(token))
			}
			if next := makeToken(index, tag+1<<tagBits); next != token {
				t.Errorf("tag %#x does not wrap: %#x, %#x", tag, uint32(next), uint32(token))
			}
		}
	}
}

func TestBoundWordHasGeneration(t *testing.T) {
	seen := make(map[entryWord]uint32)
	for _, bind := range []uint32{0, 1, tagMask, 1 << tagBits, 1<<tagBits + 1, 1 << 31, 1<<32 - 1} {
		const index, rights = 77, Local | Read
		w := boundWord(index, bind, rights)
		if w.valid() || w.token() != makeToken(index, bind) || w.rights() != rights {
			t.Errorf("bind %#x: %#x", bind, uint64(w))
		}
		if other, ok := seen[w]; ok {
			t.Errorf("binds %#x and %#x have the same word", bind, other)
		}
		seen[w] = bind
	}
}

func TestEntryWordHasTokenAndRights(t *testing.T) {
	for _, token := range []nd.Token{1, 1 << 31, 1<<32 - 1} {
		for rights := range Rights(16) {
			w := wordOf(token, rights)
			if w.valid() || w.token() != token || w.rights() != rights {
				t.Errorf("%#x with rights %#x: invalid word %#x", uint32(token), rights, uint64(w))
			}
			if w |= validBit; !w.valid() || w.token() != token || w.rights() != rights {
				t.Errorf("%#x with rights %#x: valid word %#x", uint32(token), rights, uint64(w))
			}
		}
	}
}

// A request does not continue under a later bind of the same token.
func TestGenerationFailsUnderLaterBind(t *testing.T) {
	owner, executor, to := pair(t)
	mem := owner.alloc(t, 64)
	region, w := owner.region(t, mem, allRights), owner.window(t)
	token := bind(t, w, region, mem, Read|Write, 0, false)
	peer, own := remoteOperand(to, token, Read, shm.AddressOf(mem)), remoteOperand(nil, token, Read, shm.AddressOf(mem))
	peer.BindCheck, own.BindCheck = new(BindCheck), new(BindCheck)
	check := func(when string, want Fault) {
		t.Helper()
		if f := executor.guard.Check(peer, 1); f != want {
			t.Errorf("a peer's token %s: %v, want %v", when, f, want)
		}
		if f := owner.guard.Check(own, 1); f != want {
			t.Errorf("an own token %s: %v, want %v", when, f, want)
		}
	}
	check("in the first part", NoFault)
	check("in the second part", NoFault)
	invalidate(t, &w.Invalidatable)
	check("when it is revoked", faultBadToken)
	for bind(t, w, region, mem, Read|Write, 0, false) != token {
		invalidate(t, &w.Invalidatable)
	}
	check("when it has come round", faultRevoked)
	*peer.BindCheck, *own.BindCheck = BindCheck{}, BindCheck{}
	check("in a request that begins then", NoFault)
}

// The limit of the promise: a tag is used again after 4,096 binds.
func TestStaleTokenIsRefusedFor4095Binds(t *testing.T) {
	const promised = 4095
	owner, executor, to := pair(t)
	mem := owner.alloc(t, 64)
	region, w := owner.region(t, mem, allRights), owner.window(t)
	first := bind(t, w, region, mem, Read|Write, 0, false)
	stale := remoteOperand(to, first, Read, shm.AddressOf(mem))
	if f := executor.guard.Check(stale, 1); f != NoFault {
		t.Fatalf("the first token: %v", f)
	}
	invalidate(t, &w.Invalidatable)
	for i := 1; i <= promised; i++ {
		token := bind(t, w, region, mem, Read|Write, 0, false)
		if token == first || indexOf(token) != indexOf(first) || token == 0 {
			t.Fatalf("bind %d has token %#x, the first %#x", i, uint32(token), uint32(first))
		}
		if f := executor.guard.Check(remoteOperand(to, token, Read, stale.Address), 1); f != NoFault {
			t.Fatalf("bind %d: %v", i, f)
		}
		if f := executor.guard.Check(stale, 1); f != faultBadToken {
			t.Fatalf("the first token at bind %d: %v", i, f)
		}
		if _, f := executor.read(make([]byte, 1), stale); f != faultBadToken {
			t.Fatalf("a copy with the first token at bind %d: %v", i, f)
		}
		invalidate(t, &w.Invalidatable)
		if f := executor.guard.Check(remoteOperand(to, token, Read, stale.Address), 1); f != faultBadToken {
			t.Fatalf("the token of bind %d after it: %v", i, f)
		}
	}
	if token := bind(t, w, region, mem, Read, 0, false); token != first {
		t.Errorf("bind %d has token %#x, want the first, %#x, again", promised+1, uint32(token), uint32(first))
	}
}

// Every prepared bind has the next tag, whether it is applied or not.
func TestTagChangesWithEachBind(t *testing.T) {
	s := join(t, newArena(t))
	mem := s.alloc(t, 64)
	region, w := s.region(t, mem, allRights), s.window(t)
	tag := tagOf(bind(t, w, region, mem, Read, 0, false))
	next := func(what string, token nd.Token) {
		t.Helper()
		if want := (tag + 1) & tagMask; tagOf(token) != want {
			t.Errorf("%s has tag %#x, want %#x", what, tagOf(token), want)
		}
		tag = tagOf(token)
	}
	b, err := w.Prepare(region, mem, Read, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	next("a bind that will be refused", w.Descriptor().Token)
	if b.Apply() {
		t.Fatal("bound twice")
	}
	if b, err = w.Prepare(region, mem, Read, 0, false); err != nil {
		t.Fatal(err)
	}
	b.Cancel()
	next("an abandoned bind", w.Descriptor().Token)
	invalidate(t, &w.Invalidatable)
	next("the next bind", bind(t, w, region, mem, Read, 0, false))
	invalidate(t, &w.Invalidatable)

	local, remote := region.Tokens()
	deregister(t, region)
	if err := region.Register(mem, allRights, nil); err != nil {
		t.Fatal(err)
	}
	tag = tagOf(local)
	local, newRemote := region.Tokens()
	next("the local token of the next registration", local)
	tag = tagOf(remote)
	next("the remote one", newRemote)
}

func TestFirstTagsDiffer(t *testing.T) {
	// For all indexes: no tag is much more frequent than another.
	secret := [2]uint64{rand.Uint64(), rand.Uint64()}
	var count [1 << tagBits]int
	same := 0
	for index := range uint32(1 << indexBits) {
		tag := bindBaseOf(secret, index)
		count[tag]++
		if tag == bindBaseOf(secret, index+1) {
			same++
		}
	}
	for tag, n := range count {
		if mean := 1 << (indexBits - tagBits); n < mean/2 || n > 2*mean {
			t.Errorf("%d of %d indexes start with tag %#x (secret %#x)", n, 1<<indexBits, tag, secret)
		}
	}
	if same > 2<<(indexBits-tagBits) {
		t.Errorf("%d indexes start like their neighbours (secret %#x)", same, secret)
	}
	// For many secrets: each of the two words changes the tag.
	for part := range 2 {
		same = 0
		for i := range uint64(1 << 16) {
			other := secret
			other[part] += i + 1
			if bindBaseOf(secret, 7) == bindBaseOf(other, 7) {
				same++
			}
		}
		if same > 2<<(16-tagBits) {
			t.Errorf("%d secrets that differ in part %d start alike", same, part)
		}
	}
}

func TestArenasHaveDifferentTags(t *testing.T) {
	a, b := join(t, newArena(t)), join(t, newArena(t))
	same := 0
	for range 64 {
		mem := make([]byte, 8)
		la, ra := a.region(t, mem, 0).Tokens()
		lb, rb := b.region(t, mem, 0).Tokens()
		for _, pair := range [][2]nd.Token{{la, lb}, {ra, rb}} {
			if tagOf(pair[0]) == tagOf(pair[1]) {
				same++
			}
		}
	}
	if same > 3 { // 128 times 1 in 4,096: four of them in one run of 25 million
		t.Errorf("%d of 128 tags are the same in both arenas", same)
	}
}

func TestLocalTokenIsNoRemoteToken(t *testing.T) {
	owner, executor, to := pair(t)
	mem := owner.alloc(t, 64)
	region := owner.region(t, mem, allRights)
	local, remote := region.Tokens()
	if local == remote || indexOf(local) == indexOf(remote) {
		t.Errorf("local %#x, remote %#x", uint32(local), uint32(remote))
	}
	w := owner.window(t)
	window := bind(t, w, region, mem, Read|Write, 0, false)
	for _, tc := range []struct {
		name  string
		token nd.Token
		kind  Rights
		want  Fault
	}{
		{"local as local", local, Local, NoFault},
		{"remote as remote", remote, Remote, NoFault},
		{"window as remote", window, Remote, NoFault},
		{"local as remote", local, Remote, faultBadToken},
		{"remote as local", remote, Local, faultBadToken},
		{"window as local", window, Local, faultBadToken},
	} {
		for _, right := range []Rights{0, Read, Write, Read | Write} {
			ref := Operand{Token: tc.token, Rights: tc.kind | right, Address: shm.AddressOf(mem)}
			if f := owner.guard.Check(&ref, 64); f != tc.want {
				t.Errorf("%s, right %d, by the owner: %v, want %v", tc.name, right, f, tc.want)
			}
			if ref.Far = to; executor.guard.Check(&ref, 64) != tc.want {
				t.Errorf("%s, right %d, by the peer: %v, want %v", tc.name, right, executor.guard.Check(&ref, 64), tc.want)
			}
		}
	}
}
