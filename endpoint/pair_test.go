package endpoint

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// setup describes the two sides of a connection. Side 0 connects, side 1 accepts.
type setup struct {
	Executors [2]Executor
	Private   [2]bool // memory of the first region
	Processes bool    // side 1 is a process of its own
	Both      sideOptions
	Unwired   bool                         // do not connect
	ReadLimit int                          // of both sides, in and out; 0 = 16
	Shared    *nd.SharedReceiveQueueConfig // side 0 takes its receives from such a queue
	Peers     int                          // sides that accept, each from an endpoint of side 0; 0 = 1
}

func (s setup) String() string {
	memory := func(private bool) string {
		if private {
			return "private"
		}
		return "arena"
	}
	executors := [...]string{"auto", "target"}
	name := executors[s.Executors[0]]
	if s.Executors[1] != s.Executors[0] {
		name += "+" + executors[s.Executors[1]]
	}
	name += "/" + memory(s.Private[0])
	if s.Private[1] != s.Private[0] {
		name += "+" + memory(s.Private[1])
	}
	if s.Processes {
		return name + "/two processes"
	}
	return name + "/one process"
}

// pair is two connected sides, or one with several peers.
type pair struct {
	setup
	arena *shm.Arena
	a, b  *side
	peers []*side // of a; b is the first
}

// testArena is the size of an arena with about 90 MiB of heap.
const testArena = 176 << 20

func newArena(t testing.TB) *shm.Arena {
	t.Helper()
	arena, err := shm.Create(shm.Config{Size: testArena})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := arena.Close(); err != nil && !t.Failed() {
			t.Error(err)
		}
	})
	return arena
}

// newPair makes the sides and connects them, unless s says otherwise. Endpoint i of side 0 is connected with endpoint 0 of peer i.
func newPair(t testing.TB, s setup) *pair {
	t.Helper()
	p := &pair{setup: s, arena: newArena(t)}
	of := func(i int) sideOptions {
		o := s.Both
		o.Executor, o.Private = s.Executors[i], s.Private[i]
		return o
	}
	first := of(0)
	first.Shared = s.Shared
	p.a = newSide(t, p.arena, "a", first, false)
	p.a.memory = p.a.describe(0)
	for i := range max(s.Peers, 1) {
		name := "b"
		if i > 0 {
			name = fmt.Sprint("peer ", i)
			p.a.must(order{Do: doEndpoint})
		}
		b := newSide(t, p.arena, name, of(1), s.Processes)
		b.memory = b.describe(0)
		p.peers = append(p.peers, b)
		if !s.Unwired {
			p.a.connectTo(i, b, 0, b.listen(0), s.ReadLimit)
		}
	}
	p.b = p.peers[0]
	return p
}

// connect connects the two endpoints with a number.
func (p *pair) connect(addr netip.AddrPort, endpoint ...int) {
	p.a.t.Helper()
	n := 0
	if len(endpoint) > 0 {
		n = endpoint[0]
	}
	p.a.connectTo(n, p.b, n, addr, p.ReadLimit)
}

// connectTo connects endpoint i with endpoint j of a side that listens. A limit of 0 means 16.
func (s *side) connectTo(i int, to *side, j int, addr netip.AddrPort, limit int) {
	s.t.Helper()
	if limit == 0 {
		limit = 16
	}
	accepted := to.start(order{Do: doAccept, Endpoint: j, In: limit, Out: limit})
	connected := s.start(order{Do: doConnect, Endpoint: i, Addr: addr, In: limit, Out: limit})
	for range 2 {
		select {
		case r := <-accepted:
			if r.Status != nd.Success {
				s.t.Fatalf("accept: %s", r.Text)
			}
		case r := <-connected:
			if r.Status != nd.Success {
				s.t.Fatalf("connect: %s", r.Text)
			}
			s.must(order{Do: doComplete, Endpoint: i})
		}
	}
}

// addEndpoints makes another endpoint at each side and connects them.
func (p *pair) addEndpoints(addr netip.AddrPort) int {
	p.a.t.Helper()
	n := p.a.must(order{Do: doEndpoint}).N
	if m := p.b.must(order{Do: doEndpoint}).N; m != n {
		p.a.t.Fatalf("endpoints %d and %d are no pair", n, m)
	}
	p.connect(addr, n)
	return n
}

// at returns the descriptor of the bytes from off on in d.
func at(d nd.WindowDescriptor, off int) nd.WindowDescriptor {
	d.Address += uint64(off)
	return d
}

// mine names a range of a side's first region.
func mine(off, n int) []part { return []part{{Off: off, Len: n}} }

// success and failure are results without endpoint context; see expect.
func success(t nd.RequestType, context uint64, bytes int) nd.Result {
	return nd.Result{RequestType: t, RequestContext: context, BytesTransferred: uint32(bytes)}
}

func failure(t nd.RequestType, context uint64, s nd.Status) nd.Result {
	return nd.Result{RequestType: t, RequestContext: context, Status: s}
}

// executors and memory for which every rule of the data path must hold.
func everySetup(s setup) (all []setup) {
	for _, processes := range []bool{false, true} {
		for _, executor := range []Executor{Auto, Target} {
			for _, private := range []bool{false, true} {
				if raceDetector && processes {
					continue // the race detector sees nothing of another process, and slows it down
				}
				s.Processes = processes
				s.Executors = [2]Executor{executor, executor}
				s.Private = [2]bool{private, private}
				all = append(all, s)
			}
		}
	}
	return all
}

// onEvery runs a test with every executor and memory, within a process and across two.
func onEvery(t *testing.T, s setup, test func(t *testing.T, p *pair)) {
	t.Helper()
	onEach(t, everySetup(s), test)
}

// onEach runs a test with each of the setups.
func onEach(t *testing.T, all []setup, test func(t *testing.T, p *pair)) {
	t.Helper()
	runEach(t, all, func(t *testing.T, s setup) { test(t, newPair(t, s)) })
}

// runEach runs a test for each of the setups. Those with another process mostly wait for it, so
// they run in parallel.
func runEach(t *testing.T, all []setup, test func(t *testing.T, s setup)) {
	t.Helper()
	for _, s := range all {
		t.Run(s.String(), func(t *testing.T) {
			if s.Processes {
				t.Parallel()
			}
			test(t, s)
		})
	}
}

// mixedSetups are pairs whose sides differ.
func mixedSetups() (all []setup) {
	for _, executors := range [][2]Executor{{Auto, Target}, {Target, Auto}} {
		for _, private := range [][2]bool{{false, true}, {true, false}} {
			all = append(all, setup{Executors: executors, Private: private})
		}
	}
	return append(all, setup{Executors: [2]Executor{Target, Auto}, Processes: true},
		setup{Private: [2]bool{true, false}, Processes: true}, setup{Private: [2]bool{false, true}, Processes: true})
}
