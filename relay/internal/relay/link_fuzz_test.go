package relay

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/scale"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/relay/internal/frame"
	"github.com/softnd/softnd/relay/internal/handshake"
	"github.com/softnd/softnd/relay/internal/ofi"
)

// FuzzLink plays a relay that knows the secret, and sends any frames. The input selects them, and the calls of a local
// process at the same time. Nothing may crash or hang. When the link has ended, everything of it is freed, memory that
// no window grants is unchanged, and another link works.
func FuzzLink(f *testing.F) {
	for _, phrase := range phrases {
		f.Add(slices.Concat(phrases[0], phrases[4], phrase))
	}
	var rig *linkRig
	f.Fuzz(func(t *testing.T, input []byte) {
		if rig == nil { // for all inputs of the process
			rig = newLinkRig(t)
		}
		rig.run(t, input)
	})
}

// TestHostileRelay runs random conversations: parts of correct ones, with mistakes. SOFTND_RUNS sets how many, and
// SOFTND_SEED the first seed.
func TestHostileRelay(t *testing.T) {
	rig := newLinkRig(t)
	seed := scale.Seed(t)
	for range scale.Number(t, "SOFTND_RUNS", 200) {
		random := rand.New(rand.NewPCG(seed, 1))
		var input []byte
		for range 1 + random.IntN(24) {
			phrase := slices.Clone(phrases[random.IntN(len(phrases))])
			if random.IntN(6) == 0 {
				phrase[random.IntN(len(phrase))] = byte(random.Uint32())
			}
			input = append(input, phrase...)
		}
		if rig.run(t, input); t.Failed() {
			t.Fatalf("SOFTND_SEED=%d repeats input %x", seed, input)
		}
		seed++
	}
}

// frameOp is the operation that sends a frame of a kind to the latest tunnel.
func frameOp(kind frame.Kind, size byte) []byte { return []byte{opFrame, byte(kind), 0, 0, 0, size} }

// phrases are parts of conversations.
var phrases = [][]byte{
	slices.Concat(frameOp(frame.Open, 0), []byte{opAccept}, frameOp(frame.Established, 0)),
	slices.Concat(frameOp(frame.Open, 0), []byte{opAccept}, frameOp(frame.Established, 0)),
	slices.Concat(frameOp(frame.Open, 0), []byte{opReject, 1, 2, 3, 4}),
	frameOp(frame.Open, 0),
	slices.Concat([]byte{opConnect}, frameOp(frame.Accept, 0)),
	slices.Concat([]byte{opConnect}, frameOp(frame.Accept, 0)),
	slices.Concat([]byte{opConnect}, frameOp(frame.Refuse, 0)),
	{opAccept}, {opConnect}, {opReceive, 2}, {opReceive, 7}, {opInvalidate}, {opDisconnect}, {opClose}, {opWait},
	{opLocal, 24}, {opLocal, 17}, {opLocal, 18}, {opLocal, 27}, {opLocal, 58}, {opLocal, 65}, {opLocal, 28}, {opLocal, 53}, {opLocal, 6}, {opLocal, 7},
	frameOp(frame.Send, 2), frameOp(frame.Send, 7), frameOp(frame.Write, 3), frameOp(frame.Write, 7), frameOp(frame.Write, 8),
	frameOp(frame.Read, 4), frameOp(frame.Read, 8), frameOp(frame.Data, 0), frameOp(frame.Done, 0), frameOp(frame.Fail, 3),
	frameOp(frame.Accept, 0), frameOp(frame.Established, 0), frameOp(frame.Disconnect, 0), frameOp(frame.Abort, 1), frameOp(frame.Withdraw, 0),
	frameOp(frame.Call, 0), {opFrame, byte(frame.Call), 0, 0, 1, 3}, {opFrame, byte(frame.Call), 0, 0, 2, 2}, frameOp(frame.Called, 0), frameOp(frame.Leave, 0),
	frameOp(frame.Atomic, 0), {opFrame, byte(frame.Atomic), 0, 0, 1, 0}, {opFrame, byte(frame.Send), 0, 0, 48, 3}, {opFrame, byte(frame.Write), 0, 0, 48, 7},
	frameOp(frame.Ping, 0), frameOp(frame.Credit, 0), {opFrame, byte(frame.Write), 0, 0, 1, 3}, {opFrame, byte(frame.Send), 0, 0, 1, 3},
}

// Operations that an input selects. Each takes the bytes that follow it.
const (
	opFrame      = iota // sends a frame: kind, tunnel, request, where, size
	opRaw               // sends bytes of the input as a frame: length, bytes
	opAccept            // the local process accepts a connection
	opReject            // the local process rejects a connection
	opConnect           // the local process asks for a connection
	opLocal             // the local process posts a request: kind and size
	opReceive           // the local process posts a Receive
	opInvalidate        // the local process invalidates the window of the far side
	opDisconnect        // the local process disconnects gracefully
	opClose             // the local process closes an endpoint
	opWait              // lets everyone work
	ops
)

// linkRig is a host with a relay and a process, and two links: one to an honest relay, and one that FuzzLink plays.
type linkRig struct {
	good      *wire // over the honest link
	near      *host // the host with the relay under test
	sink      *ofi.Endpoint
	address   []byte // of sink
	listener  nd.Listener
	requests  chan nd.Connector
	forbidden nd.MemoryRegion // that no one may write
	inUse     [2]uint64       // memory of the process and of the relay without a connection of the link under test
	sessions  uint64
}

const fuzzedHost = 2

var farRank = netip.MustParseAddr("127.79.0.9")

func newLinkRig(t testing.TB) *linkRig {
	quiet := func(string, ...any) {}
	open := func(number int) *host {
		h, err := openHost(context.Background(), number, "127.0.0.1", settings{timeout: 50 * time.Millisecond}, quiet)
		must(t, err)
		return h
	}
	near, honest := open(1), open(0)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	handshake.Listen(l, near.relay.HandshakeConfig(), near.relay.Link, quiet)
	must(t, honest.join(l.Addr().String()))
	g := &linkRig{good: connect(t, honest, near, nd.EndpointConfig{}), near: near, requests: make(chan nd.Connector, 1000)}
	n := near.rank
	n.ctx = context.Background() // that of connect ends with one input
	honest.rank.ctx = context.Background()
	g.sink, err = ofi.Open(ofi.Config{Provider: "tcp", Node: "127.0.0.1", Size: bufferSize, Receives: 2 * linkWindow, Sends: 1})
	must(t, err)
	must(t, g.sink.PostReceives(2*linkWindow))
	g.address, err = g.sink.Address()
	must(t, err)
	g.forbidden, err = n.adapter.Allocate(n.ctx, 1<<20, nd.AllowLocalWrite)
	must(t, err)
	g.listener, err = n.adapter.CreateListener(n.ctx)
	must(t, err)
	must(t, g.listener.Bind(netip.AddrPortFrom(n.address, port)))
	must(t, g.listener.Listen(0))
	go func() {
		for {
			c, err := n.adapter.CreateConnector(n.ctx)
			if err == nil {
				err = g.listener.GetConnectionRequest(n.ctx, c)
			}
			if err != nil {
				panic(err)
			}
			g.requests <- c
		}
	}()
	g.inUse = g.memory()
	return g
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (g *linkRig) memory() [2]uint64 {
	return [2]uint64{g.near.rank.member.InUse(), g.near.relay.member.InUse()}
}

// run runs an input on a link of its own.
func (g *linkRig) run(t *testing.T, input []byte) {
	hangs := time.AfterFunc(proctest.Timeout, func() {
		fmt.Fprintf(os.Stderr, "input %x hangs\n%s\n", input, proctest.Stacks())
		os.Exit(1)
	})
	defer hangs.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	p := &talk{linkRig: g, t: t, ctx: ctx, input: input}
	g.sessions++
	p.session = &handshake.Session{Host: fuzzedHost, Address: g.address, Inbound: g.sessions<<8 | 1, Outbound: g.sessions<<8 | 2}
	mine, theirs := net.Pipe()
	go io.Copy(io.Discard, mine)
	g.near.relay.Link(theirs, p.session)
	_, err := mine.Write([]byte{knowsSession})
	must(t, err)
	n := g.near.rank
	p.queue, err = n.adapter.CreateCompletionQueue(n.ctx, 4096)
	must(t, err)
	p.memory, err = n.adapter.Allocate(n.ctx, 1<<20, nd.AllowLocalWrite|nd.AllowRemoteRead|nd.AllowRemoteWrite|nd.AllowRemoteAtomic)
	must(t, err)
	for n := 0; n < 500 && len(p.input) > 0; n++ { // a longer input takes so long that the fuzzer believes it hangs
		p.op()
		p.listen()
	}
	mine.Close()
	cancel()
	p.end()
}
