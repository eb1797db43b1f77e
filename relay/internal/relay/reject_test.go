package relay

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// A process that rejects the connection in place of CompleteConnect sends private data to the one that has accepted. If it
// does so without data, or dies, the other process does not get the data of the request a second time.
func TestRejectInPlaceOfCompleteConnect(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(a *host, active nd.Connector) error
		want string
	}{
		"with data":    {func(_ *host, active nd.Connector) error { return active.Reject([]byte("not like this")) }, "not like this"},
		"without data": {func(_ *host, active nd.Connector) error { return active.Reject(nil) }, ""},
		"dies":         {func(a *host, _ nd.Connector) error { return a.rank.leave() }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newHosts(t, settings{})
			l, err := b.rank.adapter.CreateListener(b.rank.ctx)
			must(t, err)
			defer l.Close()
			must(t, errors.Join(l.Bind(netip.AddrPortFrom(b.rank.address, port)), l.Listen(0)))
			side := func(n *rank) (nd.Endpoint, nd.Connector) {
				ep, err := n.adapter.CreateEndpoint(n.ctx, nd.EndpointConfig{ReceiveCQ: n.queue, InitiatorCQ: n.queue})
				must(t, err)
				c, err := n.adapter.CreateConnector(n.ctx)
				must(t, err)
				t.Cleanup(func() { ep.Close(); c.Close() })
				return ep, c
			}
			y, passive := side(b.rank)
			accepted := make(chan error, 1)
			go func() {
				err := l.GetConnectionRequest(b.rank.ctx, passive)
				if err == nil {
					err = passive.Accept(b.rank.ctx, y, nd.ConnectParams{})
				}
				accepted <- err
			}()
			x, active := side(a.rank)
			must(t, active.Connect(context.Background(), x, netip.AddrPortFrom(b.rank.address, port), nd.ConnectParams{PrivateData: []byte("hello")}))
			must(t, c.end(a, active))
			if err := proctest.Receive(t, "the end of Accept", accepted); nd.StatusOf(err) != nd.ConnectionRefused {
				t.Errorf("Accept: %v", err)
			}
			private := make([]byte, 100)
			if n, err := passive.GetPrivateData(private); err != nil || string(private[:n]) != c.want {
				t.Errorf("private data %q, %v", private[:n], err)
			}
			noTunnels(t, a, b)
		})
	}
}
