package window

import (
	"bytes"
	"errors"
	"runtime"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

func TestRegionLifeCycle(t *testing.T) {
	s := join(t, newArena(t))
	for name, mem := range map[string][]byte{"arena": s.alloc(t, 64), "private": make([]byte, 64)} {
		t.Run(name, func(t *testing.T) {
			r, err := s.domain.NewRegion()
			if err != nil {
				t.Fatal(err)
			}
			refused := func(when string) {
				t.Helper()
				if err := r.Register(mem, 0, nil); !errors.Is(err, nd.InvalidDeviceState) {
					t.Errorf("register %s: %v", when, err)
				}
			}
			unrevocable := func(when string) {
				t.Helper()
				if err := r.Deregister(); !errors.Is(err, nd.InvalidDeviceState) {
					t.Errorf("revoke %s: %v", when, err)
				}
			}
			valid := func(token nd.Token, kind Rights) bool {
				return s.guard.Check(&Operand{Token: token, Rights: kind, Address: shm.AddressOf(mem)}, 64) == NoFault
			}
			if local, remote := r.Tokens(); local != 0 || remote != 0 || r.Bytes() != nil {
				t.Errorf("before the first registration: %v, %v, %d bytes", local, remote, len(r.Bytes()))
			}
			unrevocable("before the first registration")
			for range 3 {
				if err := r.Register(mem, allRights, nil); err != nil {
					t.Fatal(err)
				}
				refused("while registered")
				local, remote := r.Tokens()
				if !valid(local, Local) || !valid(remote, Remote) {
					t.Error("the tokens do not work")
				}
				if b := r.Bytes(); &b[0] != &mem[0] || len(b) != len(mem) {
					t.Error("the memory is another")
				}
				if err := r.Deregister(); err != nil {
					t.Errorf("revoke: %v", err)
				}
				if valid(local, Local) || valid(remote, Remote) || r.Bytes() != nil {
					t.Error("revoked, and still in use")
				}
				refused("while it drains")
				unrevocable("while it drains")
				if !r.EndInvalidation() {
					t.Error("not drained")
				}
				unrevocable("after the invalidation has ended")
				if l, f := r.Tokens(); l != local || f != remote {
					t.Error("the stale tokens have gone")
				}
			}
			r.Free()
		})
	}
}

// The five combinations of flags that the model names, as both tokens allow them to owner and peer.
func TestRegionFlagsSetRights(t *testing.T) {
	owner, executor, to := pair(t)
	for flags, want := range map[nd.RegionFlags]struct{ local, remote Rights }{
		0:                                        {Read, 0},
		nd.AllowLocalWrite:                       {Read | Write, 0},
		nd.AllowRemoteRead:                       {Read, Read},
		nd.AllowRemoteWrite:                      {Read | Write, Write},
		nd.AllowRemoteRead | nd.AllowRemoteWrite: {Read | Write, Read | Write},
	} {
		mem := owner.alloc(t, 64)
		local, remote := owner.region(t, mem, flags).Tokens()
		for right := range Rights(4) {
			for _, tc := range []struct {
				token      nd.Token
				kind, have Rights
			}{{local, Local, want.local}, {remote, Remote, want.remote}} {
				wanted := NoFault
				if right&^tc.have != 0 {
					wanted = faultNoRight
				}
				ref := Operand{Token: tc.token, Rights: tc.kind | right, Address: shm.AddressOf(mem)}
				if f := owner.guard.Check(&ref, 64); f != wanted {
					t.Errorf("flags %v, kind %d, right %d, own: %v, want %v", flags, tc.kind, right, f, wanted)
				}
				ref.Far = to
				if f := executor.guard.Check(&ref, 64); f != wanted {
					t.Errorf("flags %v, kind %d, right %d, peer: %v, want %v", flags, tc.kind, right, f, wanted)
				}
			}
		}
	}
}

func TestRegisterRecognisesArenaMemory(t *testing.T) {
	owner, executor, to := pair(t)
	mem := owner.alloc(t, 4096)
	for name, tc := range map[string]struct {
		mem     []byte
		private bool
	}{
		"all of an arena object":  {mem, false},
		"a part of it":            {mem[100:3000:3000], false},
		"a part with a long tail": {mem[100:200], false},
		"its last byte":           {mem[4095:], false},
		"Go memory":               {make([]byte, 4096)[96:], true},
		"one byte of it":          {make([]byte, 1), true},
	} {
		t.Run(name, func(t *testing.T) {
			r := owner.region(t, tc.mem, allRights)
			local, remote := r.Tokens()
			n, at := uint64(len(tc.mem)), shm.AddressOf(tc.mem)
			private, f := owner.guard.IsPrivate(&Operand{Token: local, Rights: Local | Write, Address: at}, n)
			if private != tc.private || f != NoFault {
				t.Errorf("private: %v, %v", private, f)
			}
			want := NoFault
			if tc.private {
				want = FaultUnreachable
			}
			if f := executor.guard.Check(remoteOperand(to, remote, Read, at), n); f != want {
				t.Errorf("to a peer it is: %v", f)
			}
			// The tail of the slice is not part of the region.
			if f := owner.guard.Check(&Operand{Token: local, Rights: Local, Address: at}, n+1); f != faultOutOfRange {
				t.Errorf("one byte more: %v", f)
			}
			b := pattern(len(tc.mem), 1)
			if _, f := owner.write(&Operand{Token: local, Rights: Local | Write, Address: at}, b); f != NoFault {
				t.Errorf("write: %v", f)
			}
			if string(tc.mem) != string(b) {
				t.Error("other bytes than were written")
			}
			if !tc.private {
				got := make([]byte, n)
				if _, f := executor.read(got, remoteOperand(to, remote, Read, at)); f != NoFault || string(got) != string(b) {
					t.Errorf("the peer reads other bytes, fault %v", f)
				}
			}
		})
	}
}

// Private memory that only the region refers to is kept while it is registered, and freed afterwards.
func TestRegionKeepsPrivateMemory(t *testing.T) {
	s := join(t, newArena(t))
	r, err := s.domain.NewRegion()
	if err != nil {
		t.Fatal(err)
	}
	const size = 1 << 16
	freed := make(chan struct{})
	at := func() uint64 {
		mem := new([size]byte)
		runtime.SetFinalizer(mem, func(*[size]byte) { close(freed) })
		if err := r.Register(mem[:], nd.AllowLocalWrite, nil); err != nil {
			t.Fatal(err)
		}
		return shm.AddressOf(mem[:])
	}()
	for range 3 {
		runtime.GC()
	}
	select {
	case <-freed:
		t.Fatal("freed while it is registered")
	default:
	}
	local, _ := r.Tokens()
	b, got := pattern(size, 3), make([]byte, size)
	if _, f := s.write(&Operand{Token: local, Rights: Local | Write, Address: at}, b); f != NoFault {
		t.Error(f)
	}
	if _, f := s.read(got, &Operand{Token: local, Rights: Local | Read, Address: at}); f != NoFault || !bytes.Equal(got, b) {
		t.Errorf("other bytes than were written, %v", f)
	}
	deregister(t, r)
	proctest.Eventually(t, "the memory is freed", func() bool {
		runtime.GC()
		select {
		case <-freed:
			return true
		default:
			return false
		}
	})
	if _, f := s.read(got, &Operand{Token: local, Rights: Local | Read, Address: at}); f != faultBadToken {
		t.Errorf("access to freed memory: %v", f)
	}
}

func TestDeregisterFailsWhileWindowsAreBound(t *testing.T) {
	owner, executor, to := pair(t)
	mem := owner.alloc(t, 128)
	r, w, v := owner.region(t, mem, allRights), owner.window(t), owner.window(t)
	busy := func(when string, want bool) {
		t.Helper()
		err := r.Deregister()
		switch {
		case !want:
			if err != nil {
				t.Fatalf("%s: %v", when, err)
			}
			r.EndInvalidation()
			if err := r.Register(mem, allRights, nil); err != nil {
				t.Fatal(err)
			}
		case !errors.Is(err, nd.DeviceBusy):
			t.Fatalf("%s: %v", when, err)
		default: // and nothing has changed
			_, token := r.Tokens()
			if f := executor.guard.Check(remoteOperand(to, token, Read|Write, shm.AddressOf(mem)), 128); f != NoFault {
				t.Errorf("%s, and refused: the token is %v", when, f)
			}
		}
	}
	prepare := func(w *Window) Prepared {
		t.Helper()
		b, err := w.Prepare(r, mem[:64], Read, 0, false)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	busy("fresh", false)
	first := prepare(w)
	busy("a bind is prepared", true)
	first.Cancel()
	busy("it was abandoned", false)

	first, second := prepare(w), prepare(w)
	busy("two binds are prepared", true)
	if !first.Apply() {
		t.Fatal("the first bind does not run")
	}
	busy("one runs, one is prepared", true)
	if second.Apply() {
		t.Fatal("the second runs as well")
	}
	busy("one runs", true)
	end := owner.use(w.binding.permissions.token)
	if _, done, ok := w.Invalidate(0); !ok || done {
		t.Fatal("invalidate")
	}
	busy("it is invalid, not ended", true)
	end()
	busy("it is drained, not ended", true)
	if !w.EndInvalidation() {
		t.Fatal("not drained")
	}
	busy("it is ended", false)

	bind(t, w, r, mem, Read, 0, false)
	bind(t, v, r, mem, Read, 0, false) // over the same bytes
	invalidate(t, &w.Invalidatable)
	busy("one of two windows is bound", true)
	invalidate(t, &v.Invalidatable)
	busy("none is", false)
}

func TestBufferCanBeRegisteredManyTimes(t *testing.T) {
	const many = 10000
	s := join(t, newArena(t))
	for name, mem := range map[string][]byte{"arena": s.alloc(t, 64), "private": make([]byte, 64)} {
		t.Run(name, func(t *testing.T) {
			seen := make(map[nd.Token]bool, 2*many)
			regions := make([]*Region, many)
			for i := range regions {
				regions[i] = s.region(t, mem, allRights)
				local, remote := regions[i].Tokens()
				if seen[local] || seen[remote] || local == remote {
					t.Fatalf("region %d has tokens %#x and %#x, which are not new", i, uint32(local), uint32(remote))
				}
				seen[local], seen[remote] = true, true
			}
			for i, r := range regions {
				local, remote := r.Tokens()
				if s.guard.Check(&Operand{Token: local, Rights: Local | Write, Address: shm.AddressOf(mem)}, 64) != NoFault ||
					s.guard.Check(&Operand{Token: remote, Rights: Remote | Write, Address: shm.AddressOf(mem)}, 64) != NoFault {
					t.Fatalf("region %d does not work", i)
				}
			}
			for _, r := range regions {
				deregister(t, r)
				r.Free()
			}
		})
	}
}
