package main

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"os"
	"strconv"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/nd"
)

// faulty is c/tests/faulty.c in Go: rank 1 makes every operation that a fault plan can be about, and prints how each ended.

const (
	longest  = 600_000 // bytes of the longest transfer; see faulty.c
	slot     = 8192    // distance of the places of requests
	slots    = 4
	room     = (slots-1)*slot + longest
	attempts = 6
)

var (
	transfers = [slots]int{8, 100, 5000, longest}
	kinds     = []string{"send", "send-and-invalidate", "receive", "read", "write", "bind", "fast-register", "atomic"}

	round                 int
	kind                  = "prepare"
	memory, private, fast nd.MemoryRegion
	pages                 nd.LogicalMapping
	mws                   [slots]nd.MemoryWindow
)

func isSubject() bool { return job.Rank() == 1 }

func faulty() {
	rounds := 2
	if len(os.Args) > 2 {
		rounds = must(strconv.Atoi(os.Args[2]))
	}
	job = must(softnd.Init(ctx, softnd.WithExit()))
	prepare()
	for round = range rounds {
		for _, kind = range kinds {
			runKind(round%2 != 0)
		}
		kind = "connect"
		connectActively()
		kind = "accept"
		connectPassively()
	}
	barrier()
	ok(job.Close())
}

func say(format string, args ...any) {
	fmt.Printf("%d %d %s: %s\n", job.Rank(), round, kind, fmt.Sprintf(format, args...))
}

// tell prints the status of a call of rank 1, which makes the calls that plans are about.
func tell(name string, err error) {
	if isSubject() {
		say("%s %08x", name, uint32(nd.StatusOf(err)))
	}
}

// persist repeats a call until it succeeds.
func persist(name string, call func() error) bool {
	for range attempts {
		err := call()
		if tell(name, err); err == nil {
			return true
		}
	}
	return false
}

// create is persist for a call that creates something.
func create[T any](name string, call func() (T, error)) (made T) {
	check(persist(name, func() (err error) {
		made, err = call()
		return err
	}), name)
	return made
}

func prepare() {
	const rights = nd.AllowLocalWrite | nd.AllowRemoteRead | nd.AllowRemoteWrite | nd.AllowRemoteAtomic
	a := job.Adapter()
	memory = create("allocate", func() (nd.MemoryRegion, error) { return a.Allocate(ctx, room, rights) })
	private = create("register", func() (nd.MemoryRegion, error) { return a.Register(ctx, make([]byte, room), rights) })
	for i := range mws {
		mws[i] = create("create-window", func() (nd.MemoryWindow, error) { return a.CreateMemoryWindow(ctx) })
	}
	fast = must(a.CreateMemoryRegion(ctx))
	ok(fast.InitializeFastRegister(ctx, 4, true))
	pages = must(a.BuildLogicalAddressMapping(ctx, memory.Bytes()[:4096]))
}

func newLink() (l link) {
	l.cq = create("create-completion-queue", func() (nd.CompletionQueue, error) { return job.Adapter().CreateCompletionQueue(ctx, 32) })
	return l
}

func (l *link) config() nd.EndpointConfig {
	return nd.EndpointConfig{ReceiveCQ: l.cq, InitiatorCQ: l.cq, ReceiveDepth: 16, InitiatorDepth: 16}
}

// take takes n results, and prints those that are worth it. It reports whether all are successes.
func (l *link) take(n int, print bool) bool {
	all := true
	for range n {
		var r [1]nd.Result
		if _, err := l.cq.Wait(ctx, r[:]); err != nil {
			if print {
				say("wait %08x", uint32(nd.StatusOf(err)))
			}
			return false
		}
		all = all && r[0].Status == nd.Success
		if print {
			say("result %d of 0x%x: %08x, %d bytes", r[0].RequestContext, uint32(r[0].RequestType), uint32(r[0].Status), r[0].BytesTransferred)
		}
	}
	return all
}

// sees prints a hash of the memory. If several requests are posted at once and one fails, chance decides which bytes
// of the others have been copied.
func sees() {
	h := fnv.New64a()
	h.Write(memory.Bytes())
	h.Write(private.Bytes())
	say("memory %016x", h.Sum64())
}

// part returns the memory of request i of a round: that of odd rounds is private.
func part(i, n int) nd.SGL {
	if round%2 != 0 {
		return nd.One(nd.SGEOf(private, i*slot, n))
	}
	return nd.One(nd.SGEOf(memory, i*slot, n))
}

// runKind makes the requests of a kind: all at once, or each after the result of the one before.
func runKind(atOnce bool) {
	l := newLink()
	l.ep = create("connect", func() (nd.Endpoint, error) { return job.Connect(ctx, 1-job.Rank(), l.config()) })
	copy(memory.Bytes(), pattern(room, len(kind)+job.Rank()))
	copy(private.Bytes(), pattern(room, len(kind)+job.Rank()+2))
	receives, posts := 0, slots
	switch kind {
	case "send":
		receives = slots
	case "send-and-invalidate":
		receives, posts = 2, 2
	case "bind":
		posts = 2 * slots
	}
	var far [slots]nd.WindowDescriptor
	if !isSubject() {
		for i := range receives {
			ok(l.ep.Receive(uint64(i), nd.One(nd.SGEOf(memory, i*slot, longest))))
		}
		if kind == "send-and-invalidate" {
			for i := range receives {
				ok(l.ep.Bind(uint64(10+i), memory, mws[i], memory.Bytes()[:64], nd.AllowRead))
				l.want(nd.RequestBind, uint64(10+i), 0)
			}
		}
	}
	for i := range far {
		far[i] = theirs(mws[i].Descriptor())
	}
	all := theirs(nd.DescriptorOf(memory))
	if isSubject() {
		posted, certain := 0, !atOnce
		for i := range posts {
			err := l.post(i, far[i%slots], all)
			if tell(fmt.Sprintf("post %d", i), err); err == nil {
				posted++
				if !atOnce && kind != "receive" {
					l.take(1, true)
				}
			}
		}
		if kind == "receive" {
			theirs(nd.WindowDescriptor{Length: uint64(posted)})
		}
		if atOnce || kind == "receive" {
			certain = l.take(posted, true) && certain
		}
		l.cq.Poll(make([]nd.Result, 1)) // an endpoint whose queue has overrun fails when it is driven next
		ok(l.ep.Flush(ctx))
		say("error %08x", uint32(nd.StatusOf(l.ep.Err())))
		if certain {
			sees()
		}
	} else if kind == "receive" {
		n := int(theirs(nd.WindowDescriptor{}).Length)
		for i := range n {
			ok(l.ep.Send(uint64(i), nd.One(nd.SGEOf(memory, i*slot, transfers[i])), 0))
		}
		l.take(n, false)
	}
	barrier()
	if !isSubject() {
		ok(l.ep.Flush(ctx))
		l.take(receives, !atOnce) // if one of several requests fails, chance decides which of the others arrive
		if !atOnce {
			sees()
		}
	}
	l.close()
	barrier()
}

// post posts request i of a kind.
func (l *link) post(i int, window, all nd.WindowDescriptor) error {
	number := uint64(i)
	switch kind {
	case "send":
		return l.ep.Send(number, part(i, transfers[i]), 0)
	case "send-and-invalidate":
		return l.ep.SendAndInvalidate(number, part(i, transfers[3*i]), window.Token, 0)
	case "receive":
		return l.ep.Receive(number, part(i, longest))
	case "read":
		return l.ep.Read(number, part(i, transfers[i]), all.Address+uint64(i*slot), all.Token, 0)
	case "write":
		return l.ep.Write(number, part(i, transfers[i]), all.Address+uint64(i*slot), all.Token, 0)
	case "atomic":
		switch far := all.Address + uint64(i*slot); i % 3 {
		case 0:
			return l.ep.FetchAndAdd(number, part(i, 8).First, far, all.Token, 5, 0)
		case 1:
			return l.ep.CompareAndSwap(number, part(i, 8).First, far, all.Token, 5, 7, 0)
		default:
			return l.ep.Swap(number, part(i, 8).First, far, all.Token, 9, 0)
		}
	case "bind":
		if i%2 == 0 {
			return l.ep.Bind(number, memory, mws[i/2], memory.Bytes()[:100], nd.AllowRead)
		}
		return l.ep.Invalidate(number, mws[i/2], 0)
	}
	if i%2 == 0 {
		return l.ep.FastRegister(number, nd.FastRegistration{Region: fast, Pages: pages.Pages(), Offset: pages.Offset(), Length: 4096, BaseAddress: 1 << 30, Rights: nd.AllowLocalWrite | nd.AllowRemoteRead}, 0)
	}
	return l.ep.InvalidateRegion(number, fast, 0)
}

var noLimits = nd.ConnectParams{InboundReadLimit: 4, OutboundReadLimit: 4}

func newEndpoint(l *link) {
	l.ep = create("create-endpoint", func() (nd.Endpoint, error) { return job.Adapter().CreateEndpoint(ctx, l.config()) })
}

// dial connects until it succeeds. A refused Connect can be repeated; an accepted one that is not completed cannot.
func dial(l *link, to netip.AddrPort) nd.Connector {
	for {
		newEndpoint(l)
		c := must(job.Adapter().CreateConnector(ctx))
		if persist("connect", func() error { return c.Connect(ctx, l.ep, to, noLimits) }) {
			err := c.CompleteConnect(ctx)
			if tell("complete-connect", err); err == nil {
				return c
			}
		}
		ok(c.Close())
		ok(l.ep.Close())
	}
}

// answer accepts requests until one is connected.
func answer(l *link, listener nd.Listener) nd.Connector {
	for {
		newEndpoint(l)
		c := must(job.Adapter().CreateConnector(ctx))
		ok(listener.GetConnectionRequest(ctx, c))
		err := c.Accept(ctx, l.ep, noLimits)
		if tell("accept", err); err == nil {
			return c
		}
		ok(c.Close())
		ok(l.ep.Close())
	}
}

// listen makes a listener, and passes its address to the other rank.
func listen() nd.Listener {
	listener := must(job.Adapter().CreateListener(ctx))
	ok(listener.Bind(netip.AddrPortFrom(netip.IPv4Unspecified(), 0)))
	check(persist("listen", func() error { return listener.Listen(0) }), kind)
	at := must(listener.LocalAddress())
	host := at.Addr().As4()
	theirs(nd.WindowDescriptor{Address: uint64(host[0])<<24 | uint64(host[1])<<16 | uint64(host[2])<<8 | uint64(host[3]), Length: uint64(at.Port())})
	return listener
}

func listenerOfPeer() netip.AddrPort {
	d := theirs(nd.WindowDescriptor{})
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{byte(d.Address >> 24), byte(d.Address >> 16), byte(d.Address >> 8), byte(d.Address)}), uint16(d.Length))
}

func connectActively() {
	l := newLink()
	if isSubject() {
		end(l, dial(&l, listenerOfPeer()))
		return
	}
	listener := listen()
	end(l, answer(&l, listener))
	ok(listener.Close())
}

func connectPassively() {
	l := newLink()
	if !isSubject() {
		end(l, dial(&l, listenerOfPeer()))
		return
	}
	listener := listen()
	end(l, answer(&l, listener))
	ok(listener.Close())
}

// end waits for a notification, and ends the connection gracefully.
func end(l link, c nd.Connector) {
	if isSubject() {
		check(persist("post", func() error { return l.ep.Write(7, nd.SGL{}, 0, 0, 0) }), kind)
		persist("notify", func() error { return l.cq.Notify(ctx, nd.NotifyAny) })
		l.take(1, true)
	}
	barrier()
	persist("disconnect", func() error { return c.Disconnect(ctx) })
	ok(c.Close())
	l.close()
	barrier()
}
