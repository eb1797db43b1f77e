package relay

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/relay/internal/frame"
)

// Each tunnel has its turn, although one tunnel takes all room of a step, and every other step finds none.
func TestTunnelsTakeTurns(t *testing.T) {
	const count, room = 8, 2
	a, _ := newHosts(t, settings{})
	var left []int // frames of each tunnel
	proctest.Eventually(t, "a link that carries frames", func() bool {
		done := make(chan bool)
		a.relay.do(func() {
			for _, l := range a.relay.links {
				if !l.linked || !l.hasRoom() {
					continue
				}
				credits := l.credits.available
				for range count { // a Ping without a number has no answer
					l.tunnels = append(l.tunnels, &tunnel{link: l, outbox: slices.Repeat([]note{{kind: frame.Ping}}, count*room)})
				}
				for range count {
					l.credits.available = 1 + room // the last one is for a frame that returns credits
					l.stepTunnels()
					l.stepTunnels()
				}
				l.credits.available = credits - count*room
				for _, t := range l.tunnels {
					left = append(left, len(t.outbox))
				}
				l.tunnels = nil
			}
			done <- left != nil
		})
		return <-done
	})
	if want := slices.Repeat([]int{count*room - room}, count); !slices.Equal(left, want) {
		t.Errorf("frames left: %v, want %v", left, want)
	}
}

// A relay carries hundreds of connections, and needs little memory for each. SOFTND_TUNNELS is their number; 2 × 32 ranks
// that are all connected with each other have 1024.
func TestManyTunnels(t *testing.T) {
	count, err := strconv.Atoi(os.Getenv("SOFTND_TUNNELS"))
	switch {
	case err == nil:
	case testing.Short():
		count = 60
	default:
		count = 300
	}
	a, b := newHosts(t, settings{})
	l, err := b.rank.adapter.CreateListener(b.rank.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := errors.Join(l.Bind(netip.AddrPortFrom(b.rank.address, port)), l.Listen(0)); err != nil {
		t.Fatal(err)
	}
	shared, err := b.rank.adapter.CreateSharedReceiveQueue(b.rank.ctx, nd.SharedReceiveQueueConfig{Depth: 16})
	if err != nil {
		t.Fatal(err)
	}
	passive := make(chan error, 1)
	go func() {
		passive <- func() error {
			for range count {
				c, err := b.rank.adapter.CreateConnector(b.rank.ctx)
				if err == nil {
					err = l.GetConnectionRequest(b.rank.ctx, c)
				}
				var ep nd.Endpoint
				if err == nil {
					ep, err = b.rank.adapter.CreateEndpoint(b.rank.ctx, nd.EndpointConfig{ReceiveCQ: b.rank.queue, InitiatorCQ: b.rank.queue, SharedReceive: shared})
				}
				if err == nil {
					err = c.Accept(b.rank.ctx, ep, nd.ConnectParams{PrivateData: []byte("from b")})
				}
				if err != nil {
					return err
				}
			}
			return nil
		}()
	}()
	before := a.relay.member.InUse()
	var w wire
	all := make([]nd.Endpoint, count)
	for i := range all {
		w.a = a.rank
		if err := w.dial(b.rank.address, nd.EndpointConfig{}); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		all[i] = w.x
	}
	if err := proctest.Receive(t, "the end of the passive side", passive); err != nil {
		t.Fatal(err)
	}
	t.Logf("a tunnel takes %d bytes of the arena", (a.relay.member.InUse()-before)/uint64(count))
	far := nd.DescriptorOf(b.rank.memory)
	for i, ep := range all {
		pattern(a.rank.memory.Bytes()[:8], i)
		if err := ep.Write(uint64(i), a.rank.sge(0, 8), far.Address+uint64(i)*8, far.Token, 0); err != nil {
			t.Fatal(err)
		}
		if r := a.rank.result(t); r.Status != nd.Success {
			t.Fatalf("connection %d: %+v: %v", i, r, ep.Err())
		}
		if have := b.rank.memory.Bytes()[i*8]; have != byte(i) {
			t.Fatalf("connection %d has written %d", i, have)
		}
	}
	for _, ep := range all {
		ep.Close()
	}
	noTunnels(t, a, b)
}
