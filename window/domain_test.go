package window

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

func TestHazardNamesItsTokens(t *testing.T) {
	const a, b = nd.Token(0xabc00001), nd.Token(0x12300002)
	for _, tc := range []struct {
		sink, source nd.Token
		a, b         bool
	}{
		{0, 0, false, false}, {a, 0, true, false}, {0, a, true, false}, {a, a, true, false},
		{a, b, true, true}, {b, a, true, true}, {b, 0, false, true},
		{a ^ 1<<indexBits, a ^ 1, false, false}, // another tag, another index
	} {
		h := makeHazard(tc.sink, tc.source)
		if hazardNames(h, a) != tc.a || hazardNames(h, b) != tc.b {
			t.Errorf("hazard %#x names %#x: %v, %#x: %v", h, uint32(a), hazardNames(h, a), uint32(b), hazardNames(h, b))
		}
	}
	if h := makeHazard(a, b); nd.Token(h>>32) != a || nd.Token(h) != b {
		t.Errorf("hazard %#x has other tokens", h)
	}
}

func TestDrainedIgnoresDeadExecutors(t *testing.T) {
	s := join(t, newArena(t))
	other := join(t, s.arena)
	words := [3]atomic.Uint64{}
	dying := join(t, s.arena)
	peers := [3]*shm.Peer{nil, peer(t, s.arena, other.member.ID()), peer(t, s.arena, dying.member.ID())}
	const token, another = nd.Token(0x00500007), nd.Token(0x00600007)
	expect := func(when string, want bool) {
		t.Helper()
		if got := s.domain.drained(token); got != want {
			t.Errorf("%s: drained %v, want %v", when, got, want)
		}
	}
	for i := range words {
		words[i].Store(makeHazard(token, token))
	}
	expect("before there are hazards", true)
	for i := range words {
		words[i].Store(0)
		s.domain.AddHazard(&words[i], peers[i])
	}
	expect("no hazard is set", true)
	for i := range words {
		words[i].Store(makeHazard(token, 0))
		expect("as the sink", false)
		words[i].Store(makeHazard(0, token))
		expect("as the source", false)
		words[i].Store(makeHazard(another, token))
		expect("as the source, with another sink", false)
		words[i].Store(makeHazard(token, another))
		expect("as the sink, with another source", false)
		words[i].Store(makeHazard(another, another))
		expect("another token", true)
		if s.domain.drained(another) {
			t.Error("the other token is drained")
		}
		words[i].Store(0)
	}
	// The token is in use until the last of several executors has cleared its hazard.
	for i := range words {
		words[i].Store(makeHazard(token, 0))
	}
	words[0].Store(0)
	expect("two of three", false)
	words[1].Store(0)
	expect("one of three", false)
	s.domain.RemoveHazard(&words[2], peers[2])
	expect("none that is watched", true)
	s.domain.AddHazard(&words[2], peers[2])
	expect("watched again", false)
	s.domain.AddHazard(&words[2], peers[2])
	s.domain.RemoveHazard(&words[2], peers[2])
	expect("added twice and removed once", false)
	dying.leave(t)
	expect("the last one has left", true)
	words[1].Store(makeHazard(0, token))
	expect("a live one beside a dead one", false)
	words[1].Store(0)
	words[0].Store(makeHazard(0, token))
	expect("one of this process beside a dead one", false)
}

// Hazards are added and removed while another goroutine polls drained.
func TestDrainedWhileHazardsChange(t *testing.T) {
	s := join(t, newArena(t))
	const token = nd.Token(0x00500007)
	var named, free atomic.Uint64
	named.Store(makeHazard(token, 0))
	s.domain.AddHazard(&named, nil)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			s.domain.AddHazard(&free, nil)
			s.domain.RemoveHazard(&free, nil)
		}
	}()
	for range 20000 {
		if s.domain.drained(token) {
			t.Error("drained while a hazard names the token")
			break
		}
	}
	close(stop)
	<-stopped
	if n := len(*s.domain.hazards.Load()) - s.domain.removed; n != 3 { // the two of the side, and named
		t.Errorf("%d hazards are watched", n)
	}
}

// TestHazardsAddedAndRemoved adds and removes hazards in random order, some of them more than once. Those that are left
// keep tokens from being drained, and no others do.
func TestHazardsAddedAndRemoved(t *testing.T) {
	s := join(t, newArena(t))
	words, added := make([]atomic.Uint64, 50), make([]int, 50)
	for i := range words {
		words[i].Store(makeHazard(nd.Token(1000+i), 0))
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		i := random.IntN(len(words))
		if added[i] > 0 && random.IntN(2) == 0 {
			s.domain.RemoveHazard(&words[i], nil)
			added[i]--
		} else if added[i] < 3 {
			s.domain.AddHazard(&words[i], nil)
			added[i]++
		}
		if j := random.IntN(len(words)); s.domain.drained(nd.Token(1000+j)) != (added[j] == 0) {
			t.Fatalf("hazard %d was added %d times more than removed, and drained returns %v", j, added[j], added[j] != 0)
		}
	}
}

// TestHazardOfManyAllocatesLittle: a connection of a process with thousands of endpoints does not copy a list of all
// hazards.
func TestHazardOfManyAllocatesLittle(t *testing.T) {
	s := join(t, newArena(t))
	const n = 20000
	words := make([]atomic.Uint64, n)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range words {
		s.domain.AddHazard(&words[i], nil)
	}
	for i := range words {
		s.domain.RemoveHazard(&words[i], nil)
	}
	runtime.ReadMemStats(&after)
	if most := uint64(n * 1000); after.TotalAlloc-before.TotalAlloc > most {
		t.Errorf("%d hazards have allocated %d bytes, want at most %d", n, after.TotalAlloc-before.TotalAlloc, most)
	}
}

// The hazard is set from before the check until after the copy, also in a copy that is refused.
func TestCopyPublishesHazard(t *testing.T) {
	owner, executor, to := pair(t)
	mem := owner.alloc(t, 8<<20)
	_, remote := owner.region(t, mem, allRights).Tokens()
	near := executor.alloc(t, 8<<20)
	local, _ := executor.region(t, near, allRights).Tokens()
	for _, tc := range []struct {
		name         string
		sink, source Operand
		want         uint64
	}{
		{"write", *remoteOperand(to, remote, Write, shm.AddressOf(mem)), Operand{Token: local, Rights: Local | Read, Address: shm.AddressOf(near)}, makeHazard(remote, local)},
		{"read", Operand{Token: local, Rights: Local | Write, Address: shm.AddressOf(near)}, *remoteOperand(to, remote, Read, shm.AddressOf(mem)), makeHazard(local, remote)},
		{"plain source", *remoteOperand(to, remote, Write, shm.AddressOf(mem)), Operand{Mem: near}, makeHazard(remote, 0)},
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
			proctest.Eventually(t, "the hazard is seen", func() bool {
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
