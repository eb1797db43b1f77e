package endpoint

import (
	"errors"
	"testing"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// TestAcceptOfEndedConnection: the active side completes the connection, writes, ends it and leaves before Accept has
// returned at the passive side. Accept succeeds, and the end of the connection is reported as an end.
func TestAcceptOfEndedConnection(t *testing.T) {
	ends := map[string]func(p *pair){
		"close": func(p *pair) { p.b.must(order{Do: doCloseEndpoint}); p.b.process.leave() },
		"leave": func(p *pair) { p.b.process.leave() },
		"death": func(p *pair) { p.b.process.kill() },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, setup{Processes: true, Unwired: true})
			a := p.a
			addr := a.listen(0)
			ep := a.newEndpoint()
			accepted := make(chan error, 1)
			requested := make(chan *connector, 1)
			go func() {
				c := a.request()
				requested <- c.(*connector)
				accepted <- c.Accept(a.ctx, ep, nd.ConnectParams{})
			}()
			p.b.must(order{Do: doConnect, Addr: addr})
			c, qp := <-requested, ep.(*queuePair)
			func() {
				c.mu.Lock() // so that Accept does not return
				defer c.mu.Unlock()
				func() {
					qp.mu.Lock() // so that nothing drives the endpoint
					defer qp.mu.Unlock()
					p.b.must(order{Do: doComplete})
					p.b.must(order{Do: doWrite, Far: p.a.memory, Parts: []part{{Len: 8}}})
					p.b.results(initiatorQueue, 1)
					end(p)
					proctest.Eventually(t, "the end of the peer is known", c.conn.record.IsPeerDead)
				}()
				proctest.Eventually(t, "the end of the peer is handled", func() bool { return qp.state() != cm.QPConnecting })
			}()
			wantStatus(t, <-accepted, nd.Success)
			proctest.Eventually(t, "the endpoint has ended", func() bool { return errors.Is(ep.Err(), nd.ConnectionAborted) })
		})
	}
}
