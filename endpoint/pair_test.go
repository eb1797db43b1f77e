package endpoint

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// setup describes the two sides of a connection. Side 0 connects, side 1 accepts.
type setup struct {
	Executors [2]Executor
	Private   [2]bool // memory of the first region
	Processes bool    // side 1 is a process of its own
	Both      sideOptions
	Unwired   bool // do not connect
	ReadLimit int  // of both sides, in and out; 0 = 16
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

// party is one side as a test sees it, in this process or another one.
type party struct {
	t       testing.TB
	name    string
	local   *side // nil if it is another process
	process *remoteSide
	member  shm.MemberID
	memory  nd.WindowDescriptor // the first region
}

// pair is two connected sides.
type pair struct {
	setup
	arena *shm.Arena
	a, b  *party
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

// newParty makes a side in this process or in another one. When the test ends it closes all
// objects, checks the edges of its memory, and leaves.
func newParty(t testing.TB, arena *shm.Arena, name string, o sideOptions, otherProcess bool) *party {
	t.Helper()
	p := &party{t: t, name: name}
	if otherProcess {
		p.process = startRemoteSide(t, arena, o)
		p.member = p.process.member
		t.Cleanup(p.process.leave)
	} else {
		s, err := newSide(proctest.Context(t), arena, o)
		if err != nil {
			t.Fatal(err)
		}
		p.local, p.member = s, s.member.ID()
		t.Cleanup(func() {
			if err := s.checkEdges(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if err := s.leave(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	return p
}

// newPair makes two sides and connects them, unless s says otherwise.
func newPair(t testing.TB, s setup) *pair {
	t.Helper()
	p := &pair{setup: s, arena: newArena(t)}
	of := func(i int) sideOptions {
		o := s.Both
		o.Executor, o.Private = s.Executors[i], s.Private[i]
		return o
	}
	p.a = newParty(t, p.arena, "a", of(0), false)
	p.b = newParty(t, p.arena, "b", of(1), s.Processes)
	p.a.memory, p.b.memory = p.a.region(0), p.b.region(0)
	if !s.Unwired {
		p.connect(p.b.must(order{Do: doListen}).Addr)
	}
	return p
}

// connect connects the two endpoints with a number.
func (p *pair) connect(addr netip.AddrPort, endpoint ...int) {
	p.a.t.Helper()
	limit := p.ReadLimit
	if limit == 0 {
		limit = 16
	}
	o := order{In: limit, Out: limit, Addr: addr}
	if len(endpoint) > 0 {
		o.Endpoint = endpoint[0]
	}
	accept, connect, complete := o, o, o
	accept.Do, connect.Do, complete.Do = doAccept, doConnect, doComplete
	accepted, connected := p.b.start(accept), p.a.start(connect)
	for range 2 {
		select {
		case r := <-accepted:
			if r.Status != nd.Success {
				p.a.t.Fatalf("accept: %s", r.Text)
			}
		case r := <-connected:
			if r.Status != nd.Success {
				p.a.t.Fatalf("connect: %s", r.Text)
			}
			p.a.must(complete)
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

// do executes an order and returns its reply.
func (p *party) do(o order) reply {
	if p.local != nil {
		return p.local.execute(o)
	}
	return p.process.execute(o)
}

// start executes an order in the background.
func (p *party) start(o order) <-chan reply {
	c := make(chan reply, 1)
	go func() { c <- p.do(o) }()
	return c
}

// must executes an order that has to succeed.
func (p *party) must(o order) reply {
	p.t.Helper()
	r := p.do(o)
	if r.Status != nd.Success {
		p.t.Fatalf("%s: %s: %s\n%s", p.name, o.Do, r.Text, p.why())
	}
	return r
}

// refuse executes an order that has to return a status.
func (p *party) refuse(want nd.Status, o order) reply {
	p.t.Helper()
	r := p.do(o)
	if r.Status != want {
		p.t.Errorf("%s: %s returns %v (%s), want %v", p.name, o.Do, r.Status, r.Text, want)
	}
	return r
}

// why returns why the endpoints of this side have ended.
func (p *party) why() string {
	r := p.do(order{Do: doWhy})
	return fmt.Sprintf("%s says: %q", p.name, r.Text)
}

// region describes a region to peers.
func (p *party) region(i int) nd.WindowDescriptor {
	p.t.Helper()
	return p.must(order{Do: doRegionInfo, Region: i}).Far
}

// results waits for n results of a queue.
func (p *party) results(q queue, n int) []nd.Result {
	p.t.Helper()
	r := p.do(order{Do: doWait, Queue: q, N: n})
	if r.Status != nd.Success {
		p.t.Fatalf("%s: waiting for %d results of queue %d: %s (the last are %v)\n%s", p.name, n, q, r.Text, r.Results[max(0, len(r.Results)-3):], p.why())
	}
	return r.Results
}

// expect waits for the results of a queue, which must be exactly these. It fills in the first
// endpoint's context.
func (p *party) expect(q queue, want ...nd.Result) {
	p.t.Helper()
	for i := range want {
		if want[i].EndpointContext == 0 {
			want[i].EndpointContext = endpointContext(0)
		}
	}
	for i, got := range p.results(q, len(want)) {
		if got != want[i] {
			p.t.Fatalf("%s: result %d of queue %d\n got %v\nwant %v\n%s", p.name, i, q, got, want[i], p.why())
		}
	}
}

// nothing checks that a queue has no result.
func (p *party) nothing(q queue) {
	p.t.Helper()
	if r := p.must(order{Do: doPoll, Queue: q, N: 4}); len(r.Results) != 0 {
		p.t.Errorf("%s: unexpected results of queue %d: %v", p.name, q, r.Results)
	}
}

func (p *party) fill(region, off, n int, seed uint64) {
	p.t.Helper()
	p.must(order{Do: doFill, Region: region, Off: off, Len: n, Seed: seed})
}

func (p *party) sum(region, off, n int) uint64 {
	p.t.Helper()
	return p.must(order{Do: doSum, Region: region, Off: off, Len: n}).Sum
}

// at returns the descriptor of the bytes from off on in d.
func at(d nd.WindowDescriptor, off int) nd.WindowDescriptor {
	d.Address += uint64(off)
	return d
}

// mine names a range of a party's first region.
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
