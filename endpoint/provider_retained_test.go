package endpoint

import (
	"net/netip"
	"runtime"
	"testing"
	"weak"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// TestEndedConnectionsAreCollected: the providers keep nothing of connections that both sides have closed, although other
// connections stay.
func TestEndedConnectionsAreCollected(t *testing.T) {
	const connections = 8
	a, b, _ := unconnectedPair(t)
	listener := must(b.adapter.CreateListener(b.ctx))
	must(0, listener.Bind(netip.AddrPortFrom(netip.IPv4Unspecified(), 0)))
	must(0, listener.Listen(0))
	addr := must(listener.LocalAddress())
	defer listener.Close()
	create := func(s *side) (nd.Endpoint, nd.Connector, func()) {
		cq := must(s.adapter.CreateCompletionQueue(s.ctx, 16))
		ep := must(s.adapter.CreateEndpoint(s.ctx, nd.EndpointConfig{ReceiveCQ: cq, InitiatorCQ: cq}))
		c := must(s.adapter.CreateConnector(s.ctx))
		return ep, c, func() { must(0, ep.Close()); must(0, c.Close()); must(0, cq.Close()) }
	}
	type ended struct {
		endpoint   weak.Pointer[queuePair]
		connection weak.Pointer[connection]
		queue      weak.Pointer[completionQueue]
	}
	var all []ended
	var closes []func()
	note := func(e nd.Endpoint) {
		ep := e.(*queuePair)
		all = append(all, ended{weak.Make(ep), weak.Make(ep.conn), weak.Make(ep.sq.cq)})
	}
	for i := range connections {
		here, connector, closeHere := create(a)
		there, accepting, closeThere := create(b)
		accepted := soon(func() error {
			if err := listener.GetConnectionRequest(b.ctx, accepting); err != nil {
				return err
			}
			return accepting.Accept(b.ctx, there, nd.ConnectParams{})
		})
		must(0, connector.Connect(a.ctx, here, addr, nd.ConnectParams{}))
		must(0, connector.CompleteConnect(a.ctx))
		must(0, <-accepted)
		if i == connections/2 {
			defer closeHere()
			defer closeThere()
			continue
		}
		note(here)
		note(there)
		closes = append(closes, closeHere, closeThere)
	}
	for _, end := range closes {
		end()
	}
	closes = nil
	proctest.Eventually(t, "the closed connections are collected", func() bool {
		runtime.GC()
		for _, e := range all {
			if e.endpoint.Value() != nil || e.connection.Value() != nil || e.queue.Value() != nil {
				return false
			}
		}
		return true
	})
}
