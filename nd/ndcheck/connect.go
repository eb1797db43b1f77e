package ndcheck

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/softnd/softnd/nd"
)

// connector watches a connector.
type connector struct {
	nd.Connector
	*checker
	adapter *adapter
	id      uint32
	ep      *endpoint    // that it connects; guarded by checker.mu
	outer   nd.Connector // that the program has
}

func (c *connector) name() string     { return fmt.Sprintf("connector %d", c.id) }
func (c *connector) home() *adapter   { return c.adapter }
func (c *connector) self() *connector { return c }

// sharedConnector is a connector that is an nd.SharedAddressConnector too.
type sharedConnector struct {
	*connector
	shared nd.SharedAddressConnector
}

func (c *sharedConnector) ConnectFrom(ctx context.Context, ep nd.Endpoint, from nd.SharedAddress, addr netip.AddrPort, p nd.ConnectParams) error {
	defer c.waitFor(addr.Addr(), here(), false)()
	c.connects(ep, addr)
	err := c.shared.ConnectFrom(ctx, unwrap(ep), from, addr, p)
	if err == nil {
		c.accepted(addr)
	}
	c.synchronised()
	return err
}

// connects notes the endpoint that the connector is about to connect.
func (c *connector) connects(ep nd.Endpoint, peer netip.AddrPort) {
	if e, ok := ep.(checkedEndpoint); ok {
		rank := c.journal.rankOf(peer.Addr().Unmap())
		c.mu.Lock()
		c.hasUnwatched = c.hasUnwatched || peer.IsValid() && rank < 0
		c.ep = e.self()
		c.ep.peer = peer.Addr().Unmap()
		c.ep.connectors[c.Connector] = c.outer
		c.mu.Unlock()
		e.self().peerRank.Store(int32(rank + 1))
	}
}

// connected notes the addresses of the connection, which identify it.
func (c *connector) connected(peer netip.AddrPort) {
	local, err := c.Connector.LocalAddress()
	ep := c.endpoint()
	if err != nil || ep == nil {
		return // it stays unknown
	}
	if local.Compare(peer) > 0 {
		local, peer = peer, local
	}
	ep.mu.Lock()
	ep.link = xxhash.Sum64String(local.String() + peer.String())
	ep.mu.Unlock()
}

// accepted notes that the peer has accepted the connection. This process has not called CompleteConnect yet, so the Accept
// of the peer has not returned.
func (c *connector) accepted(peer netip.AddrPort) {
	c.connected(peer)
	c.journal.endMutualWaits(c.rank, peer.Addr().Unmap())
}

func (c *connector) Connect(ctx context.Context, ep nd.Endpoint, addr netip.AddrPort, p nd.ConnectParams) error {
	defer c.waitFor(addr.Addr(), here(), false)()
	c.connects(ep, addr)
	err := c.Connector.Connect(ctx, unwrap(ep), addr, p)
	if err == nil {
		c.accepted(addr)
	}
	c.synchronised() // the peer has answered, perhaps with data
	return err
}

func (c *connector) Accept(ctx context.Context, ep nd.Endpoint, p nd.ConnectParams) error {
	peer, _ := c.Connector.PeerAddress() // Accept reports the error
	c.connects(ep, peer)
	c.connected(peer)
	err := c.Connector.Accept(ctx, unwrap(ep), p)
	c.synchronised() // the peer has completed the connection
	return err
}

// endpoint returns the endpoint that the connector connects, nil if there is none.
func (c *connector) endpoint() *endpoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ep
}

func (c *connector) NotifyDisconnect(ctx context.Context) error {
	err := c.Connector.NotifyDisconnect(ctx)
	if ep := c.endpoint(); ep != nil && err == nil { // the peer has ended the connection
		ep.mu.Lock()
		ep.ending = true
		ep.mu.Unlock()
		ep.leftByPeer(here())
	}
	c.synchronised()
	return err
}

func (c *connector) Disconnect(ctx context.Context) error {
	site := here()
	ep := c.endpoint()
	if ep != nil {
		ep.end("Disconnect", site)
	}
	err := c.Connector.Disconnect(ctx)
	if ep != nil {
		ep.ended(site)
	}
	c.synchronised()
	return err
}

func (c *connector) closing(site string) {
	if ep := c.endpoint(); ep != nil {
		ep.end("Close", site)
	}
}

func (c *connector) gone(site string) {
	if ep := c.endpoint(); ep != nil {
		ep.ended(site)
	}
}

func (c *connector) Close() error { return c.adapter.close(c, c.Connector.Close) }

// listener watches a listener.
type listener struct {
	nd.Listener
	*checker
	adapter *adapter
	id      uint32
}

func (l *listener) name() string   { return fmt.Sprintf("listener %d", l.id) }
func (l *listener) home() *adapter { return l.adapter }

func (l *listener) GetConnectionRequest(ctx context.Context, c nd.Connector) error {
	if w, ok := c.(interface{ self() *connector }); ok {
		c = w.self().Connector
	}
	if ctx.Err() == nil { // else it only polls, as a Job does with the listener of Job.Connect, which says nothing about the program
		l.mu.Lock()
		first := !l.accepts
		l.accepts = true
		l.mu.Unlock()
		if first {
			l.journal.noteAccepts(l.rank)
		}
	}
	err := l.Listener.GetConnectionRequest(ctx, c)
	if err == nil {
		l.synchronised() // a peer requests a connection, perhaps with data
	}
	return err
}

func (l *listener) closing(string) {}

func (l *listener) gone(string) {}

func (l *listener) Close() error { return l.adapter.close(l, l.Listener.Close) }

// waits are the calls of a process that wait for another one to connect.
type waits struct {
	n     int
	peer  netip.Addr
	mixed bool // they are for several peers, so other goroutines run
}

// WaitFor tells the checker that the process waits until the process with address peer calls WaitFor for this one, too. The
// result ends the wait: call it once. Connect notes by itself that it waits for an Accept.
func (p *Provider) WaitFor(peer netip.Addr) (done func()) { return p.waitFor(peer, here(), true) }

// waitFor watches a wait for a peer. If it is not mutual, it ends when the peer accepts.
func (c *checker) waitFor(peer netip.Addr, site string, mutual bool) (done func()) {
	w := wait{to: peer.Unmap(), mutual: mutual, since: now(), site: site}
	c.waiting.Lock()
	c.waits.n++
	first := c.waits.n == 1 // the outermost of nested waits counts
	if first {
		c.waits = waits{n: 1, peer: w.to}
	}
	mixed := c.waits.peer != w.to
	c.waits.mixed = c.waits.mixed || mixed
	switch {
	case mixed:
		c.journal.setWait(c.rank, wait{})
	case first:
		c.journal.setWait(c.rank, w)
	}
	c.waiting.Unlock()
	ended := make(chan struct{})
	go c.watchCycle(site, ended)
	return func() {
		close(ended)
		c.waiting.Lock()
		defer c.waiting.Unlock()
		if c.waits.n--; c.waits.n == 0 {
			c.journal.setWait(c.rank, wait{})
		}
	}
}

// watchCycle reports that the ranks wait for each other, if this process is one of them. It checks every waitLimit until the
// wait has ended. It reports waits that two checks have found, because one of them may still end after the first.
func (c *checker) watchCycle(site string, ended <-chan struct{}) {
	timer := time.NewTimer(waitLimit)
	defer timer.Stop()
	var before []link
	for {
		select {
		case <-ended:
			return
		case <-timer.C:
		}
		chain := c.journal.cycle(c.rank)
		if isStuck(chain) && slices.Equal(chain, before) {
			c.foundCycle(site, chain)
			return
		}
		before = chain
		timer.Reset(waitLimit)
	}
}

// isStuck reports whether no wait of a cycle can end.
func isStuck(chain []link) bool {
	for i, l := range chain {
		next := chain[(i+1)%len(chain)]
		switch {
		case !l.wait.mutual && next.accepts: // another goroutine may accept
			return false
		case l.wait.mutual && next.wait.mutual && len(chain) == 2: // they wait for the same connection
			return false
		}
	}
	return len(chain) > 0
}

func (c *checker) foundCycle(site string, chain []link) {
	text := "waits"
	for _, l := range chain[1:] {
		text += fmt.Sprintf(" for rank %d, which waits", l.rank)
	}
	f := Finding{Rule: connectCycle, Site: site, What: text + fmt.Sprintf(" for rank %d", c.rank)}
	if len(chain) > 1 {
		f.OtherRank, f.Other, f.OtherSite = chain[1].rank, "waits too", chain[1].wait.site
	}
	c.found(f)
}
