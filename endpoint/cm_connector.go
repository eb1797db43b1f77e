package endpoint

import (
	"fmt"
	"net/netip"
	"sync"

	"github.com/softnd/softnd/nd"
)

// phase of a connector.
type phase int

const (
	fresh        phase = iota // also after a Connect that may be tried again
	dialing                   // Connect under way
	awaitingUser              // active: Connect is done, CompleteConnect is due
	requested                 // passive: holds a request that nobody answered
	accepting                 // passive: Accept under way
	up                        // connected, or was
	dead
)

// Connector makes and ends one connection. Safe for concurrent use.
type Connector struct {
	adapter *Adapter

	mu      sync.Mutex
	phase   phase
	closed  bool
	local   netip.AddrPort
	ownPort bool
	shared  *SharedAddress // instead of a port of its own
	remote  netip.AddrPort
	conn    *connection
	ep      *Endpoint
	private []byte
	in, out int  // read limits
	hung    bool // Disconnect was called
}

func (c *Connector) fail(op string, s nd.Status, detail, next string) error {
	return &nd.OpError{Op: op, Object: "connector", Status: s, Detail: detail, Next: next}
}

// usable refuses calls on a closed connector. The caller holds c.mu.
func (c *Connector) usable(op string) error {
	if c.closed {
		return c.fail(op, nd.InvalidHandle, "the connector is closed", "create another")
	}
	return nil
}

func (c *Connector) isFresh() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.phase == fresh && !c.closed
}

// Bind gives the connector its local address. Port 0 chooses a free one.
func (c *Connector) Bind(addr netip.AddrPort) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.usable("bind"); err != nil {
		return err
	}
	if c.phase != fresh {
		return c.fail("bind", nd.AddressAlreadyAssociated, "the connector is connecting or connected", "create another connector")
	}
	if c.ownPort && addr.Port() == c.local.Port() && (addr.Addr() == c.local.Addr() || addr.Addr().IsUnspecified()) {
		return nil // after a Connect that failed, Bind may be called again
	}
	local, err := c.adapter.bindLocal("bind", "connector", addr)
	if err != nil {
		return err
	}
	c.unbind()
	c.local, c.ownPort = local, true
	return nil
}

func (c *Connector) unbind() {
	if c.ownPort {
		c.adapter.provider.ports.giveBack(c.local.Port())
		c.ownPort = false
	}
	if c.shared != nil {
		c.shared.release(c.remote)
		c.shared = nil
	}
}

// checkParams checks what Connect and Accept have in common. It has no side
// effects.
func (c *Connector) checkParams(op string, endpoint nd.Endpoint, params nd.ConnectParams) (*Endpoint, error) {
	ep, ok := endpoint.(*Endpoint)
	if !ok || ep == nil || ep.adapter != c.adapter {
		return nil, c.fail(op, nd.InvalidParameter1, "the endpoint is not of this adapter", "create it with the connector's adapter")
	}
	if len(params.PrivateData) > maxPrivateData {
		return nil, c.fail(op, nd.InvalidBufferSize, fmt.Sprintf("%d bytes of private data, at most %d", len(params.PrivateData), maxPrivateData), "send the rest with a Send")
	}
	return ep, nil
}

// ReadLimits returns how many Reads each side may have under way.
func (c *Connector) ReadLimits() (inbound, outbound int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.usable("get read limits"); err != nil {
		return 0, 0, err
	}
	switch c.phase {
	case requested, awaitingUser, accepting, up:
		return c.in, c.out, nil
	}
	return 0, 0, c.fail("get read limits", nd.ConnectionInvalid, "not connecting or connected", "")
}

// GetPrivateData copies the private data of the other side.
func (c *Connector) GetPrivateData(buf []byte) (int, error) {
	const op = "get private data"
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.usable(op); err != nil {
		return 0, err
	}
	switch c.phase {
	case requested:
		if c.conn.gone() || c.conn.state() != connRequested {
			return 0, c.fail(op, nd.ConnectionAborted, "the active side has given up", "")
		}
	case awaitingUser, accepting, up:
	default:
		if c.private == nil {
			return 0, c.fail(op, nd.ConnectionInvalid, "not connecting or connected", "")
		}
	}
	n := copy(buf, c.private)
	if n < len(c.private) {
		return len(c.private), c.fail(op, nd.BufferOverflow, fmt.Sprintf("%d bytes for %d", len(buf), len(c.private)), "pass a buffer of the size returned")
	}
	return n, nil
}

// LocalAddress returns the address of this side.
func (c *Connector) LocalAddress() (netip.AddrPort, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.usable("get local address"); err != nil {
		return netip.AddrPort{}, err
	}
	if c.phase == fresh && !c.ownPort || c.phase == dead {
		return netip.AddrPort{}, c.fail("get local address", nd.ConnectionInvalid, "not connecting or connected", "")
	}
	return c.local, nil
}

// PeerAddress returns the address of the other side.
func (c *Connector) PeerAddress() (netip.AddrPort, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.usable("get peer address"); err != nil {
		return netip.AddrPort{}, err
	}
	switch c.phase {
	case requested, awaitingUser, accepting, up:
		return c.remote, nil
	}
	return netip.AddrPort{}, c.fail("get peer address", nd.ConnectionInvalid, "not connected", "")
}
