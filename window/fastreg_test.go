package window

import (
	"errors"
	"testing"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// fastRegion returns a region for fast registration.
func (s *side) fastRegion(t testing.TB) *Region {
	t.Helper()
	r, err := s.domain.NewRegion()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.InitializeFastRegister(); err != nil {
		t.Fatal(err)
	}
	return r
}

// counter counts the registrations that have ended.
type counter struct{ n int }

func (c *counter) ended() { c.n++ }

func (c *counter) want(t *testing.T, when string, n int) {
	t.Helper()
	if c.n != n {
		t.Fatalf("%s: %d registrations have ended, want %d", when, c.n, n)
	}
}

func TestFastRegisterLifeCycle(t *testing.T) {
	const base = 0xffff_ffff_0000_0001
	owner, executor, to := pair(t)
	for name, mem := range map[string][]byte{"arena": owner.alloc(t, 64), "private": make([]byte, 64)} {
		t.Run(name, func(t *testing.T) {
			var ends counter
			r := owner.fastRegion(t)
			if r.Bound() {
				t.Fatal("it is registered")
			}
			if err := r.Register(mem, allRights, nil); !errors.Is(err, nd.InvalidDeviceState) {
				t.Errorf("Register: %v", err)
			}
			first := r.PrepareFastRegister(mem, base, allRights, 7, ends.ended)
			local, remote := r.Tokens()
			second := r.PrepareFastRegister(mem[8:], 1, nd.AllowRemoteRead, 7, ends.ended)
			if l, f := r.Tokens(); l == local || f == remote || r.Bytes() != nil || r.Address() != 0 {
				t.Errorf("two registrations have the tokens %v %v and %v %v; address %#x", local, remote, l, f, r.Address())
			}
			ref := Operand{Token: local, Rights: Local | Read | Write, Address: shm.AddressOf(mem)}
			far := remoteOperand(to, remote, Read|Write, base)
			if f, g := owner.guard.Check(&ref, 64), executor.guard.Check(far, 64); f != faultBadToken || g != faultBadToken {
				t.Errorf("before it runs: %v, %v", f, g)
			}
			if !first.Apply() {
				t.Fatal("it does not run")
			}
			want := NoFault
			if name == "private" {
				want = FaultUnreachable
			}
			if f, g := owner.guard.Check(&ref, 64), executor.guard.Check(far, 64); f != NoFault || g != want || r.Address() != base {
				t.Errorf("when it has run: %v, %v, address %#x", f, g, r.Address())
			}
			far.Address-- // peers use base, not the owner's address
			if f := executor.guard.Check(far, 1); f != faultOutOfRange {
				t.Errorf("a byte below: %v", f)
			}
			if err := r.InitializeFastRegister(); !errors.Is(err, nd.InvalidDeviceState) {
				t.Errorf("InitializeFastRegister: %v", err)
			}
			ends.want(t, "one runs", 0)
			if second.Apply() {
				t.Fatal("the second runs as well")
			}
			ends.want(t, "one runs, one has failed", 1)
			if _, _, ok := r.Invalidate(8); ok {
				t.Error("invalidated by another endpoint")
			}
			end := owner.use(remote)
			token, done, ok := r.Invalidate(7)
			if !ok || token != remote || done {
				t.Fatalf("invalidate: %v, %v, done %v", token, ok, done)
			}
			if _, _, ok := r.Invalidate(7); ok || r.Bound() {
				t.Error("it is invalidated twice")
			}
			if r.PrepareFastRegister(mem, base, allRights, 7, ends.ended).Apply() {
				t.Error("registered before the invalidation has ended")
			}
			ends.want(t, "invalid, not ended", 2)
			end()
			ends.want(t, "drained, not ended", 2)
			if !r.EndInvalidation() {
				t.Error("not drained")
			}
			ends.want(t, "ended", 3)
			if f, g := owner.guard.Check(&ref, 1), executor.guard.Check(remoteOperand(to, remote, Read, base), 1); f != faultBadToken || g != faultBadToken {
				t.Errorf("afterwards: %v, %v", f, g)
			}
			r.PrepareFastRegister(mem, base, allRights, 7, ends.ended).Cancel()
			ends.want(t, "abandoned", 4)
			last := r.PrepareFastRegister(mem, base, allRights, 7, ends.ended)
			r.Retire(func() {})
			if last.Apply() {
				t.Error("registered although it is retired")
			}
			ends.want(t, "retired", 5)
			r.Free()
		})
	}
}

// An executor may use the memory through either token.
func TestFastRegisterDrainsBothTokens(t *testing.T) {
	owner, executor, _ := pair(t)
	mem := owner.alloc(t, 64)
	for _, kind := range []string{"local", "remote"} {
		var ends counter
		r := owner.fastRegion(t)
		r.PrepareFastRegister(mem, 1, allRights, 7, ends.ended).Apply()
		local, remote := r.Tokens()
		used := local
		if kind == "remote" {
			used = remote
		}
		executor.guard.publishHazard(makeHazard(used, 0))
		if _, done, ok := r.Invalidate(7); !ok || done || r.EndInvalidation() {
			t.Errorf("drained, while an executor uses the %s token", kind)
		}
		executor.guard.clearHazard()
		if !r.EndInvalidation() {
			t.Errorf("not drained, although no executor uses the %s token", kind)
		}
		ends.want(t, kind, 1)
	}
}

// A region with windows cannot be invalidated. When its endpoint ends, its tokens become invalid, but the registration ends
// with the last window.
func TestForcedInvalidateWaitsForWindows(t *testing.T) {
	owner, executor, to := pair(t)
	mem := owner.alloc(t, 64)
	var ends counter
	r, w, v := owner.fastRegion(t), owner.window(t), owner.window(t)
	r.PrepareFastRegister(mem, 1000, nd.AllowLocalWrite, 7, ends.ended).Apply()
	_, remote := r.Tokens()
	if owner.domain.Find(remote, Remote, 7) != &r.Invalidatable || owner.domain.Find(remote, Remote, 8) != nil {
		t.Error("the registration is not found, or by another endpoint")
	}
	token := bind(t, w, r, mem[8:24], Write, 9, false)
	pending, err := v.Prepare(r, mem, Read, 9, false)
	if err != nil {
		t.Fatal(err)
	}
	if d := w.Descriptor(); d.Address != 1008 {
		t.Errorf("the window starts at %d", d.Address)
	}
	if owner.domain.Find(remote, Remote, 7) != nil {
		t.Error("a region with a window is found")
	}
	if _, _, ok := r.Invalidate(7); ok {
		t.Error("a region with a window is invalidated")
	}
	if err := r.Deregister(); !errors.Is(err, nd.DeviceBusy) {
		t.Errorf("revoke: %v", err)
	}
	if gone, done, ok := r.InvalidateAtEnd(7); !ok || gone != remote || !done {
		t.Fatal("it does not expire")
	}
	ends.want(t, "two windows are left", 0)
	if err := r.Deregister(); !errors.Is(err, nd.DeviceBusy) || r.Bound() {
		t.Errorf("expired, with windows: %v, bound %v", err, r.Bound())
	}
	if r.PrepareFastRegister(mem, 1, 0, 7, func() {}).Apply() {
		t.Error("registered again, with windows")
	}
	if f := executor.guard.Check(remoteOperand(to, token, Write, 1008), 16); f != NoFault {
		t.Errorf("the window has ended with its region: %v", f)
	}
	pending.Cancel()
	ends.want(t, "one window is left", 0)
	invalidate(t, &w.Invalidatable)
	ends.want(t, "no window is left", 1)
	if r.Bound() || !r.PrepareFastRegister(mem, 1, 0, 7, ends.ended).Apply() {
		t.Error("it cannot be registered again")
	}
}

func TestFindFindsFastRegistration(t *testing.T) {
	owner := join(t, newArena(t))
	mem := owner.alloc(t, 64)
	var ends counter
	plain, r := owner.region(t, mem, allRights), owner.fastRegion(t)
	plainLocal, _ := plain.Tokens()
	r.PrepareFastRegister(mem, 1, allRights, 7, ends.ended).Apply()
	local, remote := r.Tokens()
	for name, c := range map[string]struct {
		token    nd.Token
		endpoint uint64
		want     *Invalidatable
	}{
		"its endpoint":     {local, 7, &r.Invalidatable},
		"another endpoint": {local, 8, nil},
		"remote token":     {remote, 7, nil},
		"plain region":     {plainLocal, 0, nil},
		"no token":         {0, 7, nil},
	} {
		if got := owner.domain.Find(c.token, Local, c.endpoint); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if owner.domain.Find(local, Remote, 7) != nil {
		t.Error("found by the local token in place of the remote one")
	}
}

func TestReservedTokenIsNeverValid(t *testing.T) {
	s := join(t, newArena(t))
	name, err := s.domain.ReserveToken()
	if err != nil || name == 0 {
		t.Fatal(name, err)
	}
	other, err := s.domain.ReserveToken()
	if err != nil || other == name {
		t.Fatal(other, err)
	}
	if f := s.guard.Check(&Operand{Token: name, Rights: Local | Read, Address: 1}, 0); f != faultBadToken {
		t.Errorf("it stands for something: %v", f)
	}
}
