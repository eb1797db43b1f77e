package endpoint

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/softnd/softnd/nd"
)

// randomTraffic is two sides with several connections that post requests of all kinds in random order.
// The test computes what each request must have done.
type randomTraffic struct {
	t     *testing.T
	p     *pair
	seed  uint64
	lanes [2][trafficConnections]*lane
}

const (
	trafficConnections = 3
	trafficArea        = 64 << 10
	trafficRegion      = (1 + 3*trafficConnections) * trafficArea
)

// lane is one direction of one connection. Every side's region starts with the data it sends.
// Then follow, for each connection, the areas for the peer's writes, for the results of Reads,
// and for messages.
type lane struct {
	from, to *side
	endpoint int
	random   *rand.Rand
	window   int // of to
	far      nd.WindowDescriptor
	source   []byte // the data that from sends
	written  []byte // the expected content of to's area
	checks   []func() error
}

func (l *lane) area(kind int) int { return (1 + 3*l.endpoint + kind) * trafficArea }

const (
	writtenArea = iota
	readArea
	messageArea
)

func TestStress(t *testing.T) {
	rounds := scale(6, 12)
	if testing.Short() {
		rounds = 3
	}
	for _, s := range append(everySetup(setup{}), mixedSetups()...) {
		s.Unwired, s.Both = true, sideOptions{Size: trafficRegion}
		t.Run(s.String(), func(t *testing.T) {
			d := newRandomTraffic(t, newPair(t, s), rand.Uint64())
			for range rounds {
				d.round()
			}
		})
	}
}

func newRandomTraffic(t *testing.T, p *pair, seed uint64) *randomTraffic {
	d := &randomTraffic{t: t, p: p, seed: seed}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the seed was %d", seed)
		}
	})
	addr := p.b.must(order{Do: doListen}).Addr
	p.connect(addr)
	for range trafficConnections - 1 {
		p.addEndpoints(addr)
	}
	for way, sides := range [][2]*side{{p.a, p.b}, {p.b, p.a}} {
		source := make([]byte, trafficArea)
		fill(source, seed+uint64(way))
		sides[0].fill(0, 0, trafficArea, seed+uint64(way))
		for i := range trafficConnections {
			l := &lane{
				from: sides[0], to: sides[1], endpoint: i, source: source, written: make([]byte, trafficArea),
				random: rand.New(rand.NewPCG(seed, uint64(way*trafficConnections+i))), window: sides[1].newWindow(),
			}
			d.lanes[way][i] = l
			fill(l.written, 0)
			l.to.fill(0, l.area(writtenArea), trafficArea, 0)
		}
	}
	return d
}

// round binds all windows, starts all lanes, checks the results, and invalidates some of the
// windows.
func (d *randomTraffic) round() {
	d.t.Helper()
	for _, way := range d.lanes {
		for _, l := range way {
			if l.far.Token == 0 {
				o := order{Do: doBind, Endpoint: l.endpoint, Window: l.window, Off: l.area(writtenArea), Len: trafficArea, Flags: nd.AllowRead | nd.AllowWrite}
				l.far = l.to.must(o).Far
				l.to.results(initiatorQueue, 1)
			}
		}
	}
	var all sync.WaitGroup
	for _, way := range d.lanes {
		var want, receives [trafficConnections][]nd.Result
		var orders [][]order
		for i, l := range way {
			var mine []order
			mine, want[i], receives[i] = l.invent()
			orders = append(orders, mine)
		}
		all.Go(func() {
			post(d.t, way[0], orders)
			check(d.t, way[0].from, initiatorQueue, want)
			check(d.t, way[0].to, receiveQueue, receives)
		})
	}
	all.Wait()
	for _, way := range d.lanes {
		for _, l := range way {
			l.checks = append(l.checks, func() error {
				return l.same("writes", l.to, l.area(writtenArea), l.written)
			})
			for _, c := range l.checks {
				if err := c(); err != nil {
					d.t.Fatal(err)
				}
			}
			l.checks = nil
			if l.far.Token != 0 && l.random.IntN(2) == 0 {
				l.to.must(order{Do: doInvalidate, Endpoint: l.endpoint, Window: l.window})
				if r := l.to.results(initiatorQueue, 1)[0]; r.Status != nd.Success {
					d.t.Fatalf("invalidate: %v", r)
				}
				l.far = nd.WindowDescriptor{}
			}
		}
	}
	if d.t.Failed() {
		d.t.FailNow()
	}
}

// post posts each lane's orders in order, and the lanes interleaved.
func post(t *testing.T, l *lane, orders [][]order) {
	for len(orders) > 0 {
		i := l.random.IntN(len(orders))
		if len(orders[i]) == 0 {
			orders = append(orders[:i], orders[i+1:]...)
			continue
		}
		who, o := l.from, orders[i][0]
		if o.Do == doReceive {
			who = l.to
		}
		orders[i] = orders[i][1:]
		if r := who.do(o); r.Status != nd.Success {
			t.Errorf("%s: %s: %s", who.name, o.Do, r.Text)
			return
		}
	}
}

// check takes the results of a queue that all connections share, and compares each connection's.
func check(t *testing.T, p *side, q queue, want [trafficConnections][]nd.Result) {
	n := 0
	for _, w := range want {
		n += len(w)
	}
	r := p.do(order{Do: doWait, Queue: q, N: n})
	if r.Status != nd.Success {
		t.Errorf("%s: %s", p.name, r.Text)
		return
	}
	for _, got := range r.Results {
		i := int(got.EndpointContext - endpointContext(0))
		if i < 0 || i >= len(want) || len(want[i]) == 0 {
			t.Errorf("%s: unexpected result %v", p.name, got)
			return
		}
		w := want[i][0]
		w.EndpointContext = got.EndpointContext
		want[i] = want[i][1:]
		if got != w {
			t.Errorf("%s: result %v, want %v (%s)", p.name, got, w, p.do(order{Do: doWhy, Endpoint: i}).Text)
			return
		}
	}
}

// invent makes random requests, with the receives they need first, and their expected results.
func (l *lane) invent() (orders []order, want, receives []nd.Result) {
	read, message := l.area(readArea), l.area(messageArea) // offsets of the next one
	var posts []order
	n := 1 + l.random.IntN(12)
	for i := range uint64(n) {
		size := []int{l.random.IntN(60), l.random.IntN(4000), 48, 8}[l.random.IntN(4)]
		if l.random.IntN(12) == 0 {
			size = l.random.IntN(trafficArea / 3)
		}
		from := l.random.IntN(trafficArea - size)
		at := l.random.IntN(trafficArea - size)
		o := order{Endpoint: l.endpoint, Context: i, Parts: l.split(from, size), Far: nd.WindowDescriptor{Address: l.far.Address + uint64(at), Token: l.far.Token}}
		kind := nd.RequestWrite
		switch l.random.IntN(4) {
		case 0, 1:
			o.Do = doWrite
			copy(l.written[at:], l.source[from:from+size])
		case 2:
			if read+size > l.area(readArea)+trafficArea {
				continue
			}
			o.Do, kind, o.Parts = doRead, nd.RequestRead, l.split(read, size)
			l.expect("reads", l.from, read, l.written[at:at+size])
			read += size
		case 3:
			if message+size > l.area(messageArea)+trafficArea {
				continue
			}
			o.Do, kind, o.Far = doSend, nd.RequestSend, nd.WindowDescriptor{}
			room := min(size+l.random.IntN(100), l.area(messageArea)+trafficArea-message)
			orders = append(orders, order{Do: doReceive, Endpoint: l.endpoint, Context: i, Parts: l.split(message, room)})
			got := success(nd.RequestReceive, i, size)
			l.expect("messages", l.to, message, l.source[from:from+size])
			message += size
			if l.random.IntN(8) == 0 && l.far.Token != 0 && i == uint64(n-1) {
				o.Do, o.Far = doSendRevoking, l.far
				got.RequestType, got.InvalidatedToken = nd.RequestReceiveAndInvalidate, l.far.Token
				l.far = nd.WindowDescriptor{}
			}
			receives = append(receives, got)
		}
		if l.random.IntN(3) == 0 {
			o.Flags |= nd.SilentSuccess
		} else {
			want = append(want, success(kind, i, size))
		}
		if l.random.IntN(5) == 0 {
			o.Flags |= nd.ReadFence
		}
		posts = append(posts, o)
	}
	// The last one is a Read, so that all requests before it are done when its result is there.
	posts = append(posts, order{Do: doRead, Endpoint: l.endpoint, Context: 99, Flags: nd.ReadFence})
	return append(orders, posts...), append(want, success(nd.RequestRead, 99, 0)), receives
}

// split cuts a range of the first region into up to four entries.
func (l *lane) split(at, size int) (parts []part) {
	for size > 0 && len(parts) < 3 && l.random.IntN(3) == 0 {
		n := 1 + l.random.IntN(size)
		parts = append(parts, part{Off: at, Len: n})
		at, size = at+n, size-n
	}
	return append(parts, part{Off: at, Len: size})
}

// expect notes what must be in a side's memory after the round. Later writes of the round are
// not in it.
func (l *lane) expect(what string, p *side, at int, data []byte) {
	data = append([]byte(nil), data...)
	l.checks = append(l.checks, func() error { return l.same(what, p, at, data) })
}

func (l *lane) same(what string, p *side, at int, data []byte) error {
	if p.sum(0, at, len(data)) != xxhash.Sum64(data) {
		return fmt.Errorf("%s from %s to %s over connection %d: %d bytes differ", what, l.from.name, l.to.name, l.endpoint, len(data))
	}
	return nil
}

// TestInvalidateUnderLoad invalidates a window while a peer in another process uses it as fast as it can. The memory must
// not change afterwards.
func TestInvalidateUnderLoad(t *testing.T) {
	const n, rounds = 300_000, 6
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 2))
	for _, s := range everySetup(setup{Unwired: true, Both: sideOptions{Size: n}}) {
		if !s.Processes {
			continue
		}
		for _, do := range []verb{doWrite, doRead} {
			t.Run(fmt.Sprintf("%s/%s", s, do), func(t *testing.T) {
				p := newPair(t, s)
				addr := p.b.must(order{Do: doListen}).Addr
				p.connect(addr)
				w := p.a.newWindow()
				for i := range rounds {
					ep := 0
					if i > 0 {
						ep = p.addEndpoints(addr)
					}
					p.a.fill(0, 0, n, 1)
					p.b.fill(0, 0, n, 2)
					d := p.a.must(order{Do: doBind, Endpoint: ep, Window: w, Len: n, Flags: nd.AllowRead | nd.AllowWrite}).Far
					p.a.results(initiatorQueue, 1)
					o := repeat(do, n, d)
					o.Endpoint = ep
					fire := p.b.start(o)
					time.Sleep(time.Duration(random.IntN(2000)) * time.Microsecond)
					p.a.must(order{Do: doReceive, Endpoint: ep, Context: 3})
					p.a.must(order{Do: doInvalidate, Endpoint: ep, Window: w})
					// The result and the first check of the memory are one order.
					r := p.a.must(order{Do: doWait, N: 1, Len: n})
					if r.Results[0].Status != nd.Success {
						t.Fatalf("round %d: %v, seed %d", i, r.Results[0], seed)
					}
					if do == doRead {
						// A later copy would be seen.
						p.a.must(order{Do: doFillByte, Len: n, N: 0x77})
					} else if p.a.sum(0, 0, n) != r.Sum {
						t.Fatalf("round %d: memory has changed after the invalidation, seed %d", i, seed)
					}
					if end := <-fire; end.Status != nd.AccessViolation {
						t.Errorf("round %d: the peer's transfer ends with %v (%s) after %d, seed %d", i, end.Status, end.Text, end.N, seed)
					}
					if do == doWrite && p.a.sum(0, 0, n) != r.Sum {
						t.Fatalf("round %d: memory has changed after the invalidation, seed %d", i, seed)
					}
					if got := p.b.must(order{Do: doLongestRun, Len: n, N: 0x77}).N; got > 100 {
						t.Fatalf("round %d: %d bytes were read after the invalidation, seed %d", i, got, seed)
					}
					if r := p.a.results(receiveQueue, 1)[0]; r.Status != nd.Canceled {
						t.Errorf("round %d: %v", i, r)
					}
				}
			})
		}
	}
}

// TestRequestsCompleteWhileTargetSleeps runs one-sided requests while the program at the other end makes no call.
func TestRequestsCompleteWhileTargetSleeps(t *testing.T) {
	onEvery(t, setup{Both: sideOptions{Size: 1 << 20}}, func(t *testing.T, p *pair) {
		p.a.fill(0, 0, 400_000, 1)
		for i := range uint64(30) {
			n := []int{1, 8, 5000, 400_000}[i%4]
			if i%10 == 9 {
				time.Sleep(5 * time.Millisecond) // both programs are idle
			}
			p.a.must(order{Do: doWrite, Context: i, Parts: mine(0, n), Far: p.b.memory})
			p.a.must(order{Do: doRead, Context: i, Parts: mine(500_000, n), Far: p.b.memory})
			p.a.expect(initiatorQueue, success(nd.RequestWrite, i, n), success(nd.RequestRead, i, n))
			if p.a.sum(0, 500_000, n) != p.a.sum(0, 0, n) {
				t.Fatalf("%d bytes came back changed", n)
			}
		}
	})
}

// TestConcurrentPostsHaveOneResultEach posts and flushes concurrently.
func TestConcurrentPostsHaveOneResultEach(t *testing.T) {
	for _, s := range someSetups(setup{Both: sideOptions{InitiatorDepth: 2000, ReceiveDepth: 2000, QueueDepth: 8000}}) {
		t.Run(s.String(), func(t *testing.T) {
			p := newPair(t, s)
			const n = 400
			var posters sync.WaitGroup
			for _, x := range []*side{p.a, p.b} {
				for k := range 2 {
					posters.Go(func() {
						for i := range n {
							o := order{Do: []verb{doReceive, doSend}[k], Context: uint64(i), Parts: mine(100*k, 60)}
							if r := x.do(o); r.Status != nd.Success {
								t.Errorf("%s: %s: %s", x.name, o.Do, r.Text)
							}
						}
					})
				}
			}
			posters.Go(func() {
				time.Sleep(time.Millisecond)
				p.a.must(order{Do: doFlush})
			})
			posters.Wait()
			for _, x := range []*side{p.a, p.b} {
				for _, q := range []queue{initiatorQueue, receiveQueue} {
					canceled := false
					for i, r := range x.results(q, n) {
						if r.RequestContext != uint64(i) {
							t.Fatalf("%s: result %d of queue %d is %v", x.name, i, q, r)
						}
						if r.Status != nd.Success && r.Status != nd.Canceled || canceled && r.Status == nd.Success {
							t.Errorf("%s: result %d of queue %d is %v", x.name, i, q, r)
						}
						canceled = r.Status == nd.Canceled
					}
					x.nothing(q)
				}
			}
		})
	}
}
