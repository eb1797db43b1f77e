package window

import (
	"sync/atomic"
	"testing"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

func TestHazardWord(t *testing.T) {
	const a, b = nd.Token(0xabc00001), nd.Token(0x12300002)
	for _, tc := range []struct {
		sink, source nd.Token
		a, b         bool
	}{
		{0, 0, false, false}, {a, 0, true, false}, {0, a, true, false}, {a, a, true, false},
		{a, b, true, true}, {b, a, true, true}, {b, 0, false, true},
		{a ^ 1<<indexBits, a ^ 1, false, false}, // another tag, another index
	} {
		h := hazardOf(tc.sink, tc.source)
		if hazardNames(h, a) != tc.a || hazardNames(h, b) != tc.b {
			t.Errorf("hazard %#x names %#x: %v, %#x: %v", h, uint32(a), hazardNames(h, a), uint32(b), hazardNames(h, b))
		}
	}
	if h := hazardOf(a, b); nd.Token(h>>32) != a || nd.Token(h) != b {
		t.Errorf("the halves of hazard %#x", h)
	}
}

func TestDrained(t *testing.T) {
	s := join(t, newArena(t))
	other := join(t, s.arena)
	words := [3]atomic.Uint64{}
	dying := join(t, s.arena)
	hazards := []*Hazard{
		NewHazard(&words[0], nil),
		NewHazard(&words[1], peer(t, s.arena, other.member.ID())),
		NewHazard(&words[2], peer(t, s.arena, dying.member.ID())),
	}
	const token, another = nd.Token(0x00500007), nd.Token(0x00600007)
	expect := func(when string, want bool) {
		t.Helper()
		if got := s.space.Drained(token); got != want {
			t.Errorf("%s: drained %v, want %v", when, got, want)
		}
		if !s.space.Drained(0) {
			t.Errorf("%s: token 0 is not drained", when)
		}
	}
	for i := range words {
		words[i].Store(hazardOf(token, token))
	}
	expect("before anybody is watched", true)
	for i, h := range hazards {
		words[i].Store(0)
		s.space.Watch(h)
	}
	expect("nobody uses anything", true)
	for i := range words {
		words[i].Store(hazardOf(token, 0))
		expect("as the sink", false)
		words[i].Store(hazardOf(0, token))
		expect("as the source", false)
		words[i].Store(hazardOf(another, token))
		expect("as the source, with another sink", false)
		words[i].Store(hazardOf(token, another))
		expect("as the sink, with another source", false)
		words[i].Store(hazardOf(another, another))
		expect("another token", true)
		if s.space.Drained(another) {
			t.Error("the other token is drained")
		}
		words[i].Store(0)
	}
	// Each of several counts until the last one is gone.
	for i := range words {
		words[i].Store(hazardOf(token, 0))
	}
	words[0].Store(0)
	expect("two of three", false)
	words[1].Store(0)
	expect("one of three", false)
	s.space.Unwatch(hazards[2])
	expect("none that is watched", true)
	s.space.Watch(hazards[2])
	expect("watched again", false)
	dying.leave(t)
	expect("the last one has left", true)
	words[1].Store(hazardOf(0, token))
	expect("a live one beside a dead one", false)
	words[1].Store(0)
	words[0].Store(hazardOf(0, token))
	expect("one of this process beside a dead one", false)
}

// Watch and Unwatch while others drain.
func TestWatchWhileDraining(t *testing.T) {
	s := join(t, newArena(t))
	const token = nd.Token(0x00500007)
	var named, free atomic.Uint64
	named.Store(hazardOf(token, 0))
	s.space.Watch(NewHazard(&named, nil))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			h := NewHazard(&free, nil)
			s.space.Watch(h)
			s.space.Unwatch(h)
		}
	}()
	for range 20000 {
		if s.space.Drained(token) {
			t.Error("drained while a hazard names the token")
			break
		}
	}
	close(stop)
	<-stopped
	if n := len(*s.space.hazards.Load()); n != 2 { // the side's own, and named
		t.Errorf("%d hazards are watched", n)
	}
}

// The hazard is there from before the check until after the copy: also for a
// copy that is refused, and for a token that never was.
func TestHazardOfACopy(t *testing.T) {
	owner, executor, to := pair(t)
	mem := owner.alloc(t, 8<<20)
	_, remote := owner.region(t, mem, allRights).Tokens()
	near := executor.alloc(t, 8<<20)
	local, _ := executor.region(t, near, allRights).Tokens()
	for _, tc := range []struct {
		name         string
		sink, source Ref
		want         uint64
	}{
		{"write", *farRef(to, remote, Write, shm.AddressOf(mem)), Ref{Token: local, Rights: Local | Read, Address: shm.AddressOf(near)}, hazardOf(remote, local)},
		{"read", Ref{Token: local, Rights: Local | Write, Address: shm.AddressOf(near)}, *farRef(to, remote, Read, shm.AddressOf(mem)), hazardOf(local, remote)},
		{"plain source", *farRef(to, remote, Write, shm.AddressOf(mem)), Ref{Mem: near}, hazardOf(remote, 0)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var seen atomic.Bool
			stop, stopped := make(chan struct{}), make(chan struct{})
			defer func() { close(stop); <-stopped }()
			go func() {
				defer close(stopped)
				for {
					switch h := executor.hazard.Load(); h {
					case 0:
					case tc.want:
						seen.Store(true)
					default:
						t.Errorf("hazard %#x, want %#x", h, tc.want)
						return
					}
					select {
					case <-stop:
						return
					default:
					}
				}
			}()
			eventually(t, "the hazard is seen", func() bool {
				if _, f, g := executor.guard.Copy(&tc.sink, &tc.source, 8<<20); f|g != NoFault {
					t.Fatal(f, g)
				}
				if executor.hazard.Load() != 0 {
					t.Fatal("the hazard is still published")
				}
				return seen.Load()
			})
		})
	}
}
