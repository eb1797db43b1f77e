package window

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// access is a token of the matrix and the access that it allows.
type access struct {
	name    string
	token   nd.Token
	rights  Rights // with Local or Remote
	mem     []byte
	private bool
	scope   uint64
}

// makeTokens makes tokens of each kind for the owner.
func makeTokens(t *testing.T, owner *side) (all []access) {
	for _, private := range []bool{false, true} {
		for _, flags := range []nd.RegionFlags{0, nd.AllowLocalWrite, nd.AllowRemoteRead, nd.AllowRemoteWrite, allRights} {
			mem := make([]byte, 300)
			if !private {
				mem = owner.alloc(t, 300)
			}
			r := owner.region(t, mem, flags)
			local, remote := r.Tokens()
			name := fmt.Sprintf("private %v, flags %#x", private, uint32(flags))
			readWrite := func(r, w bool) (rights Rights) {
				if r {
					rights |= Read
				}
				if w {
					rights |= Write
				}
				return rights
			}
			all = append(all,
				access{name + ", local", local, Local | readWrite(true, flags.LocalWrite()), mem, private, 0},
				access{name + ", remote", remote, Remote | readWrite(flags.RemoteRead(), flags.RemoteWrite()), mem, private, 0})
			if flags != nd.AllowLocalWrite {
				continue
			}
			for rights := range Rights(4) {
				for _, only := range []bool{false, true} {
					g := access{fmt.Sprintf("%s, window with rights %d, only %v", name, rights, only), 0, Remote | rights, mem[50:250], private, 0}
					if only {
						g.scope = 7
					}
					g.token = bind(t, owner.window(t), r, g.mem, rights, 7, only)
					all = append(all, g)
				}
			}
		}
	}
	return all
}

// The whole matrix: each kind of token, used by its owner and by peers, for each access right, connection and range.
func TestCopyChecksAccess(t *testing.T) {
	owner, executor, _ := pair(t)
	type user struct {
		name     string
		guard    *Guard
		of       *FarEnd
		endpoint uint64 // Operand.Endpoint, or the peer's
		stranger bool
		ended    bool
	}
	aborted, disconnected := owner.farEnd(7), owner.farEnd(7)
	aborted.State.Store(established + 1)
	disconnected.Disconnected.Store(1)
	users := []user{
		{"the owner", owner.guard, nil, 0, false, false},
		{"the owner for the right peer", owner.guard, nil, 7, false, false},
		{"the owner for another peer", owner.guard, nil, 8, false, false},
		{"the right peer", executor.guard, owner.farEnd(7), 7, false, false},
		{"another peer", executor.guard, owner.farEnd(8), 8, false, false},
		{"another adapter's peer", executor.guard, executor.farEnd(7), 7, true, false},
		{"another adapter", executor.guard, nil, 0, true, false},
		{"the peer after an abort", executor.guard, aborted, 7, false, true},
		{"the peer after our disconnect", executor.guard, disconnected, 7, false, true},
	}
	count := map[Fault]int{}
	for _, g := range makeTokens(t, owner) {
		base, size := shm.AddressOf(g.mem), uint64(len(g.mem))
		ranges := []struct {
			at, n uint64
			in    bool
		}{
			{base, size, true}, {base, 1, true}, {base + size - 1, 1, true}, {base + 13, size / 2, true},
			{base, 0, true}, {base + size, 0, true},
			{base, size + 1, false}, {base + 1, size, false}, {base - 1, 2, false}, {base - 1, size + 2, false},
			{base + size, 1, false}, {base + size + 1, 0, false}, {base, math.MaxUint64, false},
			{base + 1, math.MaxUint64, false}, {math.MaxUint64, 1, false}, {0, 1, false}, {base - size, 2 * size, false},
		}
		for _, u := range users {
			for _, kind := range []Rights{Local, Remote, 0} {
				for right := range Rights(4) {
					for _, r := range ranges {
						want := NoFault
						switch {
						case u.ended:
							want = FaultDisconnected
						case u.stranger:
							want = faultBadToken
						case g.scope != 0 && g.scope != u.endpoint && (u.of != nil || u.endpoint != 0):
							want = faultOtherScope
						case kind&^g.rights != 0:
							want = faultBadToken
						case right&^g.rights != 0:
							want = faultNoRight
						case !r.in:
							want = faultOutOfRange
						case u.of != nil && g.private:
							want = FaultUnreachable
						}
						ref := &Operand{Token: g.token, Rights: kind | right, Address: r.at, Far: u.of}
						if u.of == nil {
							ref.Endpoint = u.endpoint
						}
						count[want]++
						if f := u.guard.Check(ref, r.n); f != want {
							t.Fatalf("%s, by %s, kind %d, right %d, %d bytes at base%+d: %v, want %v",
								g.name, u.name, kind, right, r.n, int64(r.at-base), f, want)
						}
						if right == Read || right == Write {
							checkCopy(t, u.guard, ref, r.n, right, g.mem, want)
						}
					}
				}
			}
		}
	}
	for f := range faultUnspecified {
		if f != faultRevoked && f != faultUnaligned && count[f] == 0 { // of Change: see TestChange
			t.Errorf("the matrix has no case of %q", f)
		}
	}
	t.Logf("cases by fault: %v", count)
}

// checkCopy copies in the direction of the operand's access right, and checks every byte that can have changed.
func checkCopy(t *testing.T, g *Guard, ref *Operand, n uint64, right Rights, mem []byte, want Fault) {
	t.Helper()
	for i := range mem {
		mem[i] = byte(i)
	}
	before := bytes.Clone(mem)
	plain := bytes.Repeat([]byte{0xaa}, 400)
	var moved uint64
	var f, other Fault
	if right == Write {
		moved, f, other = g.Copy(ref, &Operand{Mem: plain}, n)
	} else {
		moved, other, f = g.Copy(&Operand{Mem: plain}, ref, n)
	}
	if f != want || other != NoFault {
		t.Fatalf("copy of %d bytes: %v, plain side %v; the check says %v", n, f, other, want)
	}
	if g.sharedHazard.Load() != 0 {
		t.Fatal("the hazard is still published")
	}
	at := ref.Address - shm.AddressOf(mem)
	if want != NoFault {
		if moved != 0 || !bytes.Equal(mem, before) || !only(plain, 0xaa) {
			t.Fatalf("refused, but %d bytes moved", moved)
		}
		return
	}
	if moved != n {
		t.Fatalf("moved %d of %d bytes", moved, n)
	}
	if right == Write {
		copy(before[at:], plain[:n])
	}
	if !bytes.Equal(mem, before) {
		t.Fatalf("%d bytes at %d: other bytes of the memory have changed, or not these", n, at)
	}
	if right == Read && (!bytes.Equal(plain[:n], mem[at:at+n]) || !only(plain[n:], 0xaa)) {
		t.Fatalf("%d bytes at %d: read %x", n, at, plain[:n])
	}
}

// Both operands are checked before anything is copied, the sink first.
func TestCopyChecksBothOperands(t *testing.T) {
	owner, executor, to := pair(t)
	mem := owner.alloc(t, 64)
	_, remote := owner.region(t, mem, allRights).Tokens()
	own := executor.alloc(t, 64)
	local, _ := executor.region(t, own, 0).Tokens()
	good, bad := remoteOperand(to, remote, Read|Write, shm.AddressOf(mem)), remoteOperand(to, remote+1<<indexBits, Read|Write, shm.AddressOf(mem))
	mine := &Operand{Token: local, Rights: Local | Read, Address: shm.AddressOf(own)}
	notMine := &Operand{Token: local, Rights: Local | Write, Address: shm.AddressOf(own)}
	for _, tc := range []struct {
		name         string
		sink, source *Operand
		f, g         Fault
	}{
		{"both good", good, mine, NoFault, NoFault},
		{"bad sink", bad, mine, faultBadToken, NoFault},
		{"bad source", &Operand{Mem: make([]byte, 64)}, bad, NoFault, faultBadToken},
		{"sink without right", notMine, good, faultNoRight, NoFault},
		{"both bad", notMine, bad, faultNoRight, NoFault},
		{"one token on both sides", good, good, NoFault, NoFault},
	} {
		moved, f, g := executor.guard.Copy(tc.sink, tc.source, 64)
		if f != tc.f || g != tc.g || (moved == 64) != (f|g == NoFault) {
			t.Errorf("%s: moved %d, %v, %v", tc.name, moved, f, g)
		}
		if executor.hazard.Load() != 0 {
			t.Errorf("%s: the hazard is still published", tc.name)
		}
	}
}

// Lengths near multiples of a chunk, from and to every kind of memory.
func TestCopyCopiesChunks(t *testing.T) {
	owner, executor, to := pair(t)
	const most = 3*ChunkSize + 17
	far, near := owner.alloc(t, most), executor.alloc(t, most)
	_, remote := owner.region(t, far, allRights).Tokens()
	local, _ := executor.region(t, near, nd.AllowLocalWrite).Tokens()
	private := make([]byte, most)
	privateLocal, _ := executor.region(t, private, nd.AllowLocalWrite).Tokens()
	memories := []struct {
		name string
		mem  []byte
		ref  func(Rights, []byte) *Operand
	}{
		{"far", far, func(r Rights, b []byte) *Operand { return remoteOperand(to, remote, r, shm.AddressOf(b)) }},
		{"own", near, func(r Rights, b []byte) *Operand {
			return &Operand{Token: local, Rights: Local | r, Address: shm.AddressOf(b)}
		}},
		{"private", private, func(r Rights, b []byte) *Operand {
			return &Operand{Token: privateLocal, Rights: Local | r, Address: shm.AddressOf(b)}
		}},
		{"plain", make([]byte, most), func(_ Rights, b []byte) *Operand { return &Operand{Mem: b} }},
	}
	for _, sink := range memories {
		for _, source := range memories {
			if sink.name == source.name {
				continue
			}
			for _, n := range []int{0, 1, 7, ChunkSize - 1, ChunkSize, ChunkSize + 1, 2 * ChunkSize, 3*ChunkSize - 5, 3 * ChunkSize} {
				for _, skew := range []int{0, 3} {
					copy(source.mem, pattern(most, byte(n+skew)))
					fill(sink.mem, 0x55)
					moved, f, g := executor.guard.Copy(sink.ref(Write, sink.mem[skew:]), source.ref(Read, source.mem[5:]), uint64(n))
					if moved != uint64(n) || f != NoFault || g != NoFault {
						t.Fatalf("%d bytes from %s to %s: moved %d, %v, %v", n, source.name, sink.name, moved, f, g)
					}
					if !bytes.Equal(sink.mem[skew:skew+n], source.mem[5:5+n]) || !only(sink.mem[:skew], 0x55) || !only(sink.mem[skew+n:], 0x55) {
						t.Fatalf("%d bytes from %s to %s: wrong bytes", n, source.name, sink.name)
					}
				}
			}
		}
	}
}

// result is how a copy ended: far is the operand whose token is invalidated.
type result struct {
	moved      uint64
	far, plain Fault
}

// running is a copy in another goroutine.
type running struct {
	done chan struct{}
	result
}

func run(t *testing.T, copy func() result) *running {
	r := &running{done: make(chan struct{})}
	go func() {
		r.result = copy()
		close(r.done)
	}()
	t.Cleanup(func() { <-r.done }) // before the arena is closed
	return r
}

func (r *running) over() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// If a token is invalidated during a transfer, the transfer fails after the present chunk.
func TestInvalidateFailsCopyInProgress(t *testing.T) {
	owner, executor, to := pair(t)
	const size = 8 << 20
	mem := owner.alloc(t, size)
	r, w := owner.region(t, mem, allRights), owner.window(t)
	plain := &Operand{Mem: make([]byte, size)}
	ref := func(token nd.Token, right Rights, of *FarEnd) *Operand {
		return &Operand{Token: token, Rights: Remote | right, Address: shm.AddressOf(mem), Far: of, Endpoint: 7}
	}
	for _, tc := range []struct {
		name string
		copy func(nd.Token) result
	}{
		{"sink, by a peer", func(token nd.Token) (r result) {
			r.moved, r.far, r.plain = executor.guard.Copy(ref(token, Write, to), plain, size)
			return r
		}},
		{"source, by a peer", func(token nd.Token) (r result) {
			r.moved, r.plain, r.far = executor.guard.Copy(plain, ref(token, Read, to), size)
			return r
		}},
		{"sink, by the owner", func(token nd.Token) (r result) {
			r.moved, r.far, r.plain = owner.guard.Copy(ref(token, Write, nil), plain, size)
			return r
		}},
		{"source, by the owner", func(token nd.Token) (r result) {
			r.moved, r.plain, r.far = owner.guard.Copy(plain, ref(token, Read, nil), size)
			return r
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			proctest.Eventually(t, "an invalidation falls into a copy", func() bool {
				token := bind(t, w, r, mem, Read|Write, 0, false)
				copying := run(t, func() result { return tc.copy(token) })
				proctest.Eventually(t, "the copy begins", func() bool {
					return executor.hazard.Load() != 0 || owner.hazard.Load() != 0 || copying.over()
				})
				gone, _, ok := w.Invalidate(0)
				if !ok || gone != token {
					t.Fatal("invalidate")
				}
				proctest.Eventually(t, "the drain ends", w.EndInvalidation)
				<-copying.done
				got := copying.result
				switch got.far {
				case NoFault:
					ok = got.moved == size
				case faultBadToken:
					ok = got.moved == 0
				case faultRevoked:
					ok = got.moved%ChunkSize == 0 && got.moved < size
				}
				if !ok || got.plain != NoFault || got.far > faultRevoked {
					t.Fatalf("moved %d of %d bytes, %v, plain side %v", got.moved, size, got.far, got.plain)
				}
				return got.far == faultRevoked && got.moved > 0
			})
		})
	}
	// The same for the local token of the other operand.
	far := executor.alloc(t, size)
	_, remote := executor.region(t, far, allRights).Tokens()
	back := executor.admit(t, owner)
	proctest.Eventually(t, "a deregistration falls into a copy", func() bool {
		local, _ := r.Tokens()
		source := &Operand{Token: local, Rights: Local | Read, Address: shm.AddressOf(mem)}
		copying := run(t, func() (r result) {
			r.moved, r.plain, r.far = owner.guard.Copy(remoteOperand(back, remote, Write, shm.AddressOf(far)), source, size)
			return r
		})
		proctest.Eventually(t, "the copy begins", func() bool { return owner.hazard.Load() != 0 || copying.over() })
		if err := r.Deregister(); err != nil {
			t.Fatal(err)
		}
		proctest.Eventually(t, "the drain ends", r.EndInvalidation)
		<-copying.done
		if err := r.Register(mem, allRights, nil); err != nil {
			t.Fatal(err)
		}
		return copying.far == faultRevoked && copying.plain == NoFault && copying.moved > 0 && copying.moved < size
	})
}
