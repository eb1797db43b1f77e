package window

import (
	"errors"
	"math"
	"sync"
	"testing"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

func TestWindowLifeCycle(t *testing.T) {
	owner, executor, to := pair(t)
	mem := owner.alloc(t, 256)
	r, w := owner.region(t, mem, allRights), owner.window(t)
	address := shm.AddressOf(mem)
	expect := func(when string, token nd.Token, want Fault) {
		t.Helper()
		if f := executor.guard.Check(remoteOperand(to, token, Read, address), 64); f != want {
			t.Errorf("%s: %v, want %v", when, f, want)
		}
	}
	refused := func(when string, endpoint uint64) {
		t.Helper()
		if token, _, ok := w.Invalidate(endpoint); ok || token != 0 {
			t.Errorf("invalidate by %d, %s: %v, %v", endpoint, when, token, ok)
		}
	}
	if d := w.Descriptor(); d != (nd.WindowDescriptor{}) {
		t.Errorf("before the first bind: %+v", d)
	}
	refused("before the first bind", 0)
	refused("before the first bind", 7)

	first, err := w.Prepare(r, mem[:64], Read, 7, false)
	if err != nil {
		t.Fatal(err)
	}
	d1 := w.Descriptor()
	if d1.Address != address || d1.Length != 64 || d1.Token == 0 {
		t.Errorf("descriptor of a prepared bind: %+v", d1)
	}
	expect("prepared", d1.Token, faultBadToken)
	refused("when it is prepared", 7)
	second, err := w.Prepare(r, mem[:128], Read|Write, 7, false)
	if err != nil {
		t.Fatal(err)
	}
	d2 := w.Descriptor()
	if d2.Address != address || d2.Length != 128 || d2.Token == d1.Token {
		t.Errorf("descriptor of the second: %+v", d2)
	}

	if !first.Apply() {
		t.Fatal("the first bind does not run")
	}
	expect("bound", d1.Token, NoFault)
	expect("prepared only", d2.Token, faultBadToken)
	refused("bound on another endpoint", 8)
	expect("bound", d1.Token, NoFault)
	if second.Apply() {
		t.Fatal("bound while it is bound")
	}
	expect("after the refused bind", d1.Token, NoFault)
	expect("refused", d2.Token, faultBadToken)

	end := owner.use(d1.Token)
	token, done, ok := w.Invalidate(7)
	if !ok || token != d1.Token || done {
		t.Fatalf("invalidate: %#x, %v, done %v", uint32(token), ok, done)
	}
	expect("invalidated", d1.Token, faultBadToken)
	refused("while it drains", 7)
	refused("while it drains", 0)
	third, err := w.Prepare(r, mem[:64], Read, 9, false)
	if err != nil {
		t.Fatal(err)
	}
	if third.Apply() { // an executor may use what it has read of the old bind
		t.Fatal("bound while it drains")
	}
	if w.EndInvalidation() {
		t.Fatal("ended while an executor uses the token")
	}
	end()
	for range 2 { // the second call changes nothing
		if !w.EndInvalidation() {
			t.Fatal("not drained, although there is no executor")
		}
	}
	refused("ended", 7)
	expect("ended", d1.Token, faultBadToken)

	d3 := bind(t, w, r, mem[:64], Read, 9, false)
	expect("bound again", d3, NoFault)
	expect("the last bind's token", d1.Token, faultBadToken)
	if token, done, ok := w.Invalidate(9); !ok || token != d3 || !done {
		t.Errorf("invalidate: %#x, %v, done %v", uint32(token), ok, done)
	}
	if d := w.Descriptor(); d.Token != d3 {
		t.Error("the stale descriptor has gone")
	}
	w.Free()
	deregister(t, r)
	r.Free()
}

func TestRetiredWindowCannotBeBound(t *testing.T) {
	owner, executor, to := pair(t)
	mem := owner.alloc(t, 64)
	r := owner.region(t, mem, allRights)
	prepare := func(w *Window) Prepared {
		t.Helper()
		b, err := w.Prepare(r, mem, Read, 7, false)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	check := func(w *Window, want Fault) {
		t.Helper()
		if f := executor.guard.Check(remoteOperand(to, w.Descriptor().Token, Read, shm.AddressOf(mem)), 64); f != want {
			t.Errorf("%v, want %v", f, want)
		}
	}
	unbindable := func(w *Window) {
		t.Helper()
		if prepare(w).Apply() || w.Bound() {
			t.Error("a retired window is bound")
		}
		check(w, faultBadToken)
	}

	fresh, prepared, bound, ending := owner.window(t), owner.window(t), owner.window(t), owner.window(t)
	if fresh.Retire(); !fresh.EndInvalidation() || fresh.Bound() {
		t.Errorf("a fresh window: bound %v", fresh.Bound())
	}
	unbindable(fresh)

	b := prepare(prepared)
	if prepared.Retire(); !prepared.EndInvalidation() {
		t.Error("a prepared window drains")
	}
	if b.Apply() {
		t.Error("the prepared bind of a retired window runs")
	}
	unbindable(prepared)

	token := bind(t, bound, r, mem, Read, 7, false)
	if !bound.Bound() {
		t.Error("a bound window is not bound")
	}
	end := owner.use(token)
	if bound.Retire(); bound.EndInvalidation() || bound.Bound() {
		t.Errorf("a bound window that is in use: bound %v", bound.Bound())
	}
	check(bound, faultBadToken)
	if got, _, ok := bound.Invalidate(7); ok {
		t.Errorf("invalidated twice: %#x", uint32(got))
	}
	if err := r.Deregister(); !errors.Is(err, nd.DeviceBusy) {
		t.Errorf("deregistration before the invalidation has ended: %v", err)
	}
	end()
	if !bound.EndInvalidation() {
		t.Error("a bound window: not drained")
	}
	unbindable(bound)

	end = owner.use(bind(t, ending, r, mem, Read, 7, false))
	if _, done, ok := ending.Invalidate(7); !ok || done {
		t.Fatal("invalidate")
	}
	if ending.Retire(); ending.EndInvalidation() {
		t.Error("ended while another caller waits for the drain")
	}
	end()
	for range 2 { // both callers
		if !ending.EndInvalidation() {
			t.Error("not drained")
		}
	}
	unbindable(ending)
	deregister(t, r) // no window is bound to it
}

// Two prepared binds can be applied in either order.
func TestPreparedBindsApplyInAnyOrder(t *testing.T) {
	for _, last := range []bool{false, true} {
		owner, executor, to := pair(t)
		mem := owner.alloc(t, 256)
		r, w := owner.region(t, mem, allRights), owner.window(t)
		var bindings [2]Prepared
		var tokens [2]nd.Token
		for i := range bindings {
			b, err := w.Prepare(r, mem[128*i:128*i+100], Read, 0, false)
			if err != nil {
				t.Fatal(err)
			}
			bindings[i], tokens[i] = b, w.Descriptor().Token
		}
		one, other := 0, 1
		if last {
			one, other = 1, 0
		}
		if !bindings[one].Apply() {
			t.Fatal("it does not run")
		}
		check := func(i int, want Fault) {
			t.Helper()
			if f := executor.guard.Check(remoteOperand(to, tokens[i], Read, shm.AddressOf(mem[128*i:])), 100); f != want {
				t.Errorf("bind %d: %v, want %v", i, f, want)
			}
		}
		check(one, NoFault)
		check(other, faultBadToken)
		invalidate(t, &w.Invalidatable)
		if !bindings[other].Apply() {
			t.Fatal("the other does not run after the invalidation")
		}
		check(one, faultBadToken)
		check(other, NoFault)
		invalidate(t, &w.Invalidatable)
		deregister(t, r)
	}
}

// Of many binds that are applied at once, one succeeds. Afterwards none of them keeps the region from being deregistered.
func TestConcurrentBindsApplyOnce(t *testing.T) {
	s := join(t, newArena(t))
	mem := s.alloc(t, 64)
	r, w := s.region(t, mem, allRights), s.window(t)
	for range 200 {
		var done sync.WaitGroup
		var bound, invalidated sync.Map
		for i := range 4 {
			done.Go(func() {
				b, err := w.Prepare(r, mem, Read, uint64(i+1), false)
				if err == nil && b.Apply() {
					bound.Store(i, true)
				}
			})
		}
		done.Wait()
		endpoint := w.boundOn
		for i := range 4 {
			done.Go(func() {
				if token, _, ok := w.Invalidate(endpoint); ok {
					invalidated.Store(i, token)
				}
			})
		}
		done.Wait()
		if n, m := size(&bound), size(&invalidated); n != 1 || m != 1 {
			t.Fatalf("%d are bound, %d have invalidated", n, m)
		}
		w.EndInvalidation()
	}
	deregister(t, r)
}

func size(m *sync.Map) (n int) {
	m.Range(func(any, any) bool { n++; return true })
	return n
}

func TestPrepareChecksRange(t *testing.T) {
	s := join(t, newArena(t))
	all := s.alloc(t, 4096)
	mem := all[1024:2048:2048]
	writable, plain := s.region(t, mem, nd.AllowLocalWrite), s.region(t, mem, nd.AllowRemoteRead)
	empty, err := s.domain.NewRegion()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		r      *Region
		mem    []byte
		rights Rights
		ok     bool
	}{
		{"all of it", writable, mem, Read | Write, true},
		{"its first byte", writable, mem[:1], Write, true},
		{"its last byte", writable, mem[1023:], Write, true},
		{"its middle", writable, mem[500:600], Read, true},
		{"another slice of the same bytes", writable, all[1024:2048], Write, true},
		{"no rights", writable, mem, 0, true},
		{"read, without local write", plain, mem, Read, true},
		{"no rights, without local write", plain, mem, 0, true},
		{"write, without local write", plain, mem, Write, false},
		{"read and write, without local write", plain, mem, Read | Write, false},
		{"one byte before", writable, all[1023:2048], Read, false},
		{"one byte after", writable, all[1024:2049], Read, false},
		{"just before", writable, all[1023:1024], Read, false},
		{"just after", writable, all[2048:2049], Read, false},
		{"all around it", writable, all, Read, false},
		{"nothing", writable, nil, Read, false},
		{"nothing in its middle", writable, mem[500:500], Read, false},
		{"other memory", writable, make([]byte, 8), Read, false},
		{"a region that is not registered", empty, mem, Read, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := s.window(t)
			before := w.Descriptor()
			b, err := w.Prepare(tc.r, tc.mem, tc.rights, 3, false)
			if !tc.ok {
				if !errors.Is(err, nd.AccessViolation) || b != nil {
					t.Errorf("%v, %v", b, err)
				}
				if w.Descriptor() != before {
					t.Error("the refused bind shows in the descriptor")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			b.Cancel()
		})
	}
	// None of these binds is left.
	deregister(t, writable)
	deregister(t, plain)
	if _, err := s.window(t).Prepare(writable, mem, Read, 0, false); !errors.Is(err, nd.AccessViolation) {
		t.Errorf("bind of a deregistered region: %v", err)
	}
}

func TestPrepareFailsWhileRegionDrains(t *testing.T) {
	s := join(t, newArena(t))
	mem := s.alloc(t, 64)
	r := s.region(t, mem, allRights)
	if err := r.Deregister(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.window(t).Prepare(r, mem, Read, 0, false); !errors.Is(err, nd.AccessViolation) {
		t.Errorf("%v", err)
	}
	r.EndInvalidation()
}

func TestWithin(t *testing.T) {
	const top = math.MaxUint64
	for _, tc := range []struct {
		at, n, base, size uint64
		want              bool
	}{
		{100, 10, 100, 10, true},
		{100, 11, 100, 10, false},
		{101, 10, 100, 10, false},
		{99, 10, 100, 10, false},
		{99, 1, 100, 10, false},
		{109, 1, 100, 10, true},
		{110, 1, 100, 10, false},
		{110, 0, 100, 10, true},
		{111, 0, 100, 10, false},
		{99, 0, 100, 10, false},
		{100, 0, 100, 0, true},
		{100, 1, 100, 0, false},
		{0, 0, 0, 0, true},
		{0, top, 0, top, true},
		{1, top, 0, top, false},
		{1, top - 1, 0, top, true},
		{100, top, 100, 10, false},
		{100, top - 99, 100, 10, false}, // at+n overflows to 0
		{100, top - 89, 100, 10, false}, // and to 10
		{top, 1, 100, 10, false},
		{top, 1, top, 1, true}, // the last address
		{top, 2, top, 1, false},
		{top, 2, top, 10, true}, // a range that extends beyond the last address
		{0, 1, top, 10, false},
		{top - 4, 5, top - 9, 10, true},
		{top - 4, 6, top - 9, 10, false},
		{0, 1, 1, top, false},
		{top, 0, 0, top, true},
		{5, top - 5, 0, top, true},
		{5, top - 4, 0, top, false},
	} {
		if got := within(tc.at, tc.n, tc.base, tc.size); got != tc.want {
			t.Errorf("%d bytes at %#x in %d bytes at %#x: %v", tc.n, tc.at, tc.size, tc.base, got)
		}
	}
}

func TestFindFindsBoundWindow(t *testing.T) {
	a := newArena(t)
	s, other := join(t, a), join(t, a)
	twin := NewDomain(s.table, s.domain.Adapter+1) // another adapter of the same process
	mem := s.alloc(t, 64)
	r, w := s.region(t, mem, allRights), s.window(t)
	find := func(when string, in *Domain, token nd.Token, endpoint uint64, want *Invalidatable) {
		t.Helper()
		if got := in.Find(token, Remote, endpoint); got != want {
			t.Errorf("%s, on endpoint %d: %v, want %v", when, endpoint, got, want)
		}
	}
	find("before the first bind", s.domain, 0, 7, nil)
	b, err := w.Prepare(r, mem, Read, 7, false)
	if err != nil {
		t.Fatal(err)
	}
	token := w.Descriptor().Token
	find("prepared", s.domain, token, 7, nil)
	b.Apply()
	find("bound", s.domain, token, 7, &w.Invalidatable)
	find("bound", s.domain, token, 8, nil)
	find("bound", s.domain, token, 0, nil)
	find("another tag", s.domain, token+1<<indexBits, 7, nil)
	find("another adapter", twin, token, 7, nil)
	find("another member", other.domain, token, 7, nil)
	local, remote := r.Tokens()
	find("a region's token", s.domain, remote, 0, nil)
	find("a region's local token", s.domain, local, 0, nil)
	end := s.use(token)
	w.Invalidate(7)
	find("invalidated", s.domain, token, 7, nil)
	end()
	w.EndInvalidation()
	find("ended", s.domain, token, 7, nil)
	find("bound again", s.domain, bind(t, w, r, mem, Read, 9, true), 9, &w.Invalidatable)
	find("the last bind's token", s.domain, token, 7, nil)
}

// A window that is bound for one connection only.
func TestWindowScopeLimitsPeers(t *testing.T) {
	owner, executor, _ := pair(t)
	mem := owner.alloc(t, 64)
	r, w := owner.region(t, mem, allRights), owner.window(t)
	for _, only := range []bool{false, true} {
		token := bind(t, w, r, mem, Read|Write, 7, only)
		for endpoint, inScope := range map[uint64]bool{7: true, 8: !only, 0: !only} {
			want := NoFault
			if !inScope {
				want = faultOtherScope
			}
			if f := executor.guard.Check(remoteOperand(owner.farEnd(endpoint), token, Read, shm.AddressOf(mem)), 64); f != want {
				t.Errorf("only %v: the peer of endpoint %d: %v, want %v", only, endpoint, f, want)
			}
			// The owner, when it executes that peer's request; 0 is its own request.
			if endpoint == 0 {
				want = NoFault
			}
			ref := &Operand{Token: token, Rights: Remote | Read, Address: shm.AddressOf(mem), Endpoint: endpoint}
			if f := owner.guard.Check(ref, 64); f != want {
				t.Errorf("only %v: the owner for the peer of endpoint %d: %v, want %v", only, endpoint, f, want)
			}
		}
		invalidate(t, &w.Invalidatable)
	}
}
