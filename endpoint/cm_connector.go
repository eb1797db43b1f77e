package endpoint

// TWIN c/src/endpoint/cm_connector.c.

import (
	"fmt"
	"net/netip"
	"sync"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/nd"
)

// connector establishes and ends one connection. Safe for concurrent use.
type connector struct {
	nd.UnsupportedConnector
	adapter *adapter

	mu                          sync.Mutex
	phase                       cm.Phase
	closed                      bool
	local                       netip.AddrPort
	ownsPort                    bool
	isForeign                   bool           // local is an address of another host, for which this relay acts; it takes no port here
	shared                      *sharedAddress // replaces a port of its own
	remote                      netip.AddrPort
	conn                        *connection
	ep                          *queuePair
	privateData                 []byte
	inboundReads, outboundReads int  // read limits
	disconnectCalled            bool // Disconnect was called
}

// on changes the phase by an event. The caller holds c.mu.
func (c *connector) on(e cm.Event) { c.phase = c.phase.After(e) }

func (c *connector) opError(op string, s nd.Status, detail, next string) error {
	return &nd.OpError{Op: op, Object: "connector", Status: s, Detail: detail, Next: next}
}

// checkOpen returns an error if the connector is closed. The caller holds c.mu.
func (c *connector) checkOpen(op string) error {
	if c.closed {
		return c.opError(op, nd.InvalidHandle, "the connector is closed", "create another")
	}
	return nil
}

// checkNew fails if the connector cannot take a request of a listener.
func (c *connector) checkNew(op string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.checkOpen(op); err != nil {
		return err
	}
	if c.phase != cm.PhaseNew {
		return argument("c", c.opError(op, nd.InvalidParameter, "the connector is in use", "pass a new connector"))
	}
	return nil
}

// Bind gives the connector its local address. Port 0 selects a free port.
func (c *connector) Bind(addr netip.AddrPort) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.checkOpen("bind"); err != nil {
		return err
	}
	if c.phase != cm.PhaseNew {
		return c.opError("bind", nd.AddressAlreadyAssociated, "the connector is connecting or connected", "create another connector")
	}
	if c.ownsPort && addr.Port() == c.local.Port() && (addr.Addr() == c.local.Addr() || addr.Addr().IsUnspecified()) {
		return nil // Bind may be repeated after a failed Connect
	}
	if p := c.adapter.provider; p.options.Forward && p.isOfOtherHost(addr.Addr()) {
		c.releaseAddress()
		c.local, c.isForeign = addr, true
		return nil
	}
	local, err := c.adapter.bindLocal("bind", "connector", addr)
	if err != nil {
		return err
	}
	c.releaseAddress()
	c.local, c.ownsPort = local, true
	return nil
}

func (c *connector) releaseAddress() {
	if c.ownsPort {
		c.adapter.provider.ports.Release(c.local.Port())
		c.ownsPort = false
	}
	c.isForeign = false
	if c.shared != nil {
		c.shared.removeRemote(c.remote)
		c.shared = nil
	}
}

// checkParams checks the parameters that Connect and Accept have in common. It has no side
// effects.
func (c *connector) checkParams(op string, endpoint nd.Endpoint, params nd.ConnectParams) (*queuePair, error) {
	ep, ok := endpoint.(*queuePair)
	if !ok || ep == nil || ep.adapter != c.adapter {
		return nil, argument("ep", c.opError(op, nd.InvalidParameter, "the endpoint is not of this adapter", "create it with the connector's adapter"))
	}
	if most := c.adapter.provider.limits.privateData; len(params.PrivateData) > most {
		return nil, c.opError(op, nd.InvalidBufferSize, fmt.Sprintf("%d bytes of private data, at most %d", len(params.PrivateData), most), "send the rest with a Send")
	}
	return ep, nil
}

// ReadLimits returns how many Reads each side may have in flight.
func (c *connector) ReadLimits() (inbound, outbound int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.checkOpen("get read limits"); err != nil {
		return 0, 0, err
	}
	switch c.phase {
	case cm.PhaseRequested, cm.PhaseAccepted, cm.PhaseAccepting, cm.PhaseConnected:
		return c.inboundReads, c.outboundReads, nil
	}
	return 0, 0, c.opError("get read limits", nd.ConnectionInvalid, "not connecting or connected", "")
}

// GetPrivateData copies the other side's private data.
func (c *connector) GetPrivateData(buf []byte) (int, error) {
	const op = "get private data"
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.checkOpen(op); err != nil {
		return 0, err
	}
	switch c.phase {
	case cm.PhaseRequested:
		if c.conn.record.IsPeerGone() || c.conn.state() != cm.ConnRequested {
			return 0, c.opError(op, nd.ConnectionAborted, c.conn.whyEnded(), c.conn.nextStep())
		}
	case cm.PhaseAccepted, cm.PhaseAccepting, cm.PhaseConnected:
	default:
		if c.privateData == nil {
			return 0, c.opError(op, nd.ConnectionInvalid, "not connecting or connected", "")
		}
	}
	n := copy(buf, c.privateData)
	if n < len(c.privateData) {
		return len(c.privateData), c.opError(op, nd.BufferOverflow, fmt.Sprintf("a buffer of %d bytes for %d bytes of private data", len(buf), len(c.privateData)), "pass a buffer of the size returned")
	}
	return n, nil
}

// LocalAddress returns the address of this side.
func (c *connector) LocalAddress() (netip.AddrPort, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.checkOpen("get local address"); err != nil {
		return netip.AddrPort{}, err
	}
	if c.phase == cm.PhaseNew && !c.ownsPort && !c.isForeign || c.phase == cm.PhaseEnded {
		return netip.AddrPort{}, c.opError("get local address", nd.ConnectionInvalid, "not connecting or connected", "")
	}
	return c.local, nil
}

// PeerAddress returns the address of the other side.
func (c *connector) PeerAddress() (netip.AddrPort, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.checkOpen("get peer address"); err != nil {
		return netip.AddrPort{}, err
	}
	switch c.phase {
	case cm.PhaseRequested, cm.PhaseAccepted, cm.PhaseAccepting, cm.PhaseConnected:
		return c.remote, nil
	}
	return netip.AddrPort{}, c.opError("get peer address", nd.ConnectionInvalid, "not connected", "")
}

// Close releases the connector. It cancels what the connector is doing, and aborts an
// established connection. In a goroutine that panics it is postponed, see [nd.Endpoint.Close].
func (c *connector) Close() error {
	p := c.adapter.provider
	if err := p.postponed("connector", c.Close); err != nil {
		return err
	}
	if !p.waiters.BeginCall() {
		return nil // the member's departure frees all that it owned
	}
	defer p.waiters.EndCall()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	c.adapter.disown(kindConnector, c)
	switch c.phase {
	case cm.PhaseConnecting:
		c.conn.record.Move(cm.Withdraws) // Connect returns and cleans up
		p.waiters.Wake()
		return nil
	case cm.PhaseAccepted:
		c.withdraw(nil)
	case cm.PhaseRequested:
		c.conn.refuse()
	case cm.PhaseAccepting:
		c.conn.record.Move(cm.Abandons)
		p.waiters.Wake()
	case cm.PhaseConnected:
		c.ep.mu.Lock()
		c.ep.terminate(c.ep.closeCause(nd.ConnectionAborted, "the connector was closed"))
		c.ep.mu.Unlock()
	}
	c.releaseAddress()
	if c.phase != cm.PhaseAccepting {
		c.on(cm.Ends)
	}
	return nil
}

// endpointClosed releases the port of a connection whose endpoint is closed.
func (c *connector) endpointClosed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == cm.PhaseConnected || c.phase == cm.PhaseEnded {
		c.adapter.disown(kindConnector, c) // a program that has the endpoint only does not close it
		c.releaseAddress()
	}
}
