package ndc

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	goside "github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/faults"
	"github.com/softnd/softnd/internal/faultplan"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// member is one end of a connection between the languages.
type member struct {
	adapter nd.Adapter
	cq      nd.CompletionQueue
	ep      nd.Endpoint
	mr      nd.MemoryRegion
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func check(err error) { must(0, err) }

func newMember(ctx context.Context, t *testing.T, p nd.Provider, private bool) (m member, addr netip.Addr) {
	t.Cleanup(func() { check(p.Close()) })
	addr = must(p.QueryAddressList())[0]
	m.adapter = must(nd.OpenAddress(ctx, p, addr))
	m.cq = must(m.adapter.CreateCompletionQueue(ctx, 16))
	m.ep = must(m.adapter.CreateEndpoint(ctx, nd.EndpointConfig{ReceiveCQ: m.cq, InitiatorCQ: m.cq}))
	const rights = nd.AllowLocalWrite | nd.AllowRemoteRead | nd.AllowRemoteWrite | nd.AllowRemoteAtomic
	if private {
		m.mr = must(m.adapter.CreateMemoryRegion(ctx))
		check(m.mr.Register(ctx, make([]byte, 1<<16), rights))
		t.Cleanup(func() { check(m.mr.Deregister(context.Background())) })
	} else {
		m.mr = must(m.adapter.Allocate(ctx, 1<<16, rights))
	}
	return m, addr
}

func newArena(t *testing.T) *shm.Arena {
	arena := must(shm.Create(shm.Config{Size: 1 << 30}))
	t.Cleanup(func() { check(arena.Close()) })
	return arena
}

// connect connects two members.
func connect(ctx context.Context, from, to member, addr netip.Addr) {
	p := nd.ConnectParams{InboundReadLimit: 4, OutboundReadLimit: 4}
	l := must(to.adapter.CreateListener(ctx))
	defer l.Close()
	check(l.Bind(netip.AddrPortFrom(addr, 0)))
	check(l.Listen(0))
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		c := must(to.adapter.CreateConnector(ctx))
		check(l.GetConnectionRequest(ctx, c))
		check(c.Accept(ctx, to.ep, p))
	}()
	c := must(from.adapter.CreateConnector(ctx))
	check(c.Connect(ctx, from.ep, must(l.LocalAddress()), p))
	check(c.CompleteConnect(ctx))
	<-accepted
}

// TestChecksFindChangesOfTheOtherLanguage: a fault rule of the Go side changes a byte. The first request of an operation is
// right, the second wrong. "receive" is a Send of the C side.
func TestChecksFindChangesOfTheOtherLanguage(t *testing.T) {
	for _, operation := range []string{"send", "write", "read", "receive"} {
		for _, executor := range executors {
			for _, n := range []int{8, 40, 5000, 40_000} {
				t.Run(fmt.Sprintf("%s of %d/%s", operation, n, executor), func(t *testing.T) { testChange(t, operation, executor, n) })
			}
		}
	}
}

func testChange(t *testing.T, operation, executor string, n int) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	arena := newArena(t)
	plan := must(faults.New(1, faults.Rule{Operations: []string{operation}, Nth: 2, Action: "corrupt", Offset: uint64(n - 1)}))
	m := must(arena.Join(shm.NoRank))
	e := must(goside.ParseExecutor(executor))
	p := must(goside.New(m, goside.Options{Executor: e, CheckPayloads: true, Faults: (*faultplan.Plan)(plan).For}))
	inGo, _ := newMember(ctx, t, hosted{p, m}, false)
	inC, addr := newMember(ctx, t, must(open(arena, "C", executor+checked, longTimeout)), false)
	connect(ctx, inGo, inC, addr)
	from, to := inGo, inC
	if operation == "receive" {
		from, to = inC, inGo
	}
	message := operation == "send" || operation == "receive"
	data, far := nd.One(nd.SGEOf(from.mr, 0, n)), nd.DescriptorOf(to.mr)
	for i, want := range []nd.Status{nd.Success, nd.DataChecksumError} {
		if message {
			check(to.ep.Receive(uint64(i), nd.One(nd.SGEOf(to.mr, 0, n))))
		}
		switch operation {
		case "write":
			check(from.ep.Write(uint64(i), data, far.Address, far.Token, 0))
		case "read":
			check(from.ep.Read(uint64(i), data, far.Address, far.Token, 0))
		default:
			check(from.ep.Send(uint64(i), data, 0))
		}
		if got := next(ctx, from.cq); got.Status != want {
			t.Errorf("request %d: %v, want %v", i, got.Status, want)
		}
		if message {
			if got := next(ctx, to.cq); got.Status != want {
				t.Errorf("receive %d: %v, want %v", i, got.Status, want)
			}
		}
	}
}

func next(ctx context.Context, cq nd.CompletionQueue) nd.Result {
	var r [1]nd.Result
	must(cq.Wait(ctx, r[:]))
	return r[0]
}
