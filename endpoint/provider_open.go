package endpoint

// TWIN c/src/endpoint/provider.c.

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/softnd/softnd/endpoint/internal/eventlog"
	"github.com/softnd/softnd/endpoint/internal/memory"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

// New returns the provider of a member and starts its engine. A member can have only one
// provider. Close the provider before the member leaves.
func New(m *shm.Member, o Options) (*Provider, error) {
	table, err := window.NewTable(m)
	if err != nil {
		return nil, err
	}
	status, err := statuspage.NewReporter(m)
	if err != nil {
		return nil, err
	}
	if o.ReceiveTimeout == 0 {
		o.ReceiveTimeout = defaultReceiveTimeout
	}
	if o.disconnectTimeout == 0 {
		o.disconnectTimeout = defaultDisconnectTimeout
	}
	p := &Provider{
		member: m, arena: m.Arena(), table: table, status: status, options: o,
		conns:    make(map[*connection]struct{}),
		requests: make(map[requestKey]struct{}),
		watched:  make(map[shm.MemberID]chan struct{}),
	}
	p.initModes()
	p.endpoints.Store(new([]*queuePair))
	p.mappings.list.Store(new([]*logicalMapping))
	p.ports.Init()
	p.waiters.Init(m.WaitDoorbell(), p.engine.endRest)
	p.countProcesses()
	memory.AddArena(p.arena)
	if o.EventHandler != nil {
		p.events = eventlog.New(o.EventHandler)
	}
	p.housekeeper.start(p)
	p.engine.start(p)
	return p, nil
}

// ResolveAddress returns the identity of the adapter that has a local address.
func (p *Provider) ResolveAddress(local netip.Addr) (nd.AdapterID, error) {
	if local != p.address() {
		return 0, &nd.OpError{Op: "resolve address", Object: local.String(), Status: nd.InvalidAddress,
			Detail: "this member's address is " + p.address().String(), Next: "use an address from QueryAddressList"}
	}
	return p.adapterID(), nil
}

// OpenAdapter opens the adapter. Each call returns a handle with its own tokens; objects of two
// handles cannot be used together.
func (p *Provider) OpenAdapter(ctx context.Context, id nd.AdapterID) (nd.Adapter, error) {
	if id != p.adapterID() {
		return nil, &nd.OpError{Op: "open adapter", Object: fmt.Sprintf("adapter %#x", uint64(id)), Status: nd.InvalidParameter,
			Detail: "no such adapter", Next: "use an identity from ResolveAddress"}
	}
	if p.waiters.IsClosed() {
		return nil, &nd.OpError{Op: "open adapter", Status: nd.InvalidHandle, Detail: "the provider is closed"}
	}
	if err := ctx.Err(); err != nil {
		return nil, nd.CanceledError(ctx, "open adapter", "")
	}
	serial := p.adaptersOpened.Add(1)
	if serial >= 1<<ownerShift {
		return nil, &nd.OpError{Op: "open adapter", Status: nd.InsufficientResources, Detail: "this member has opened 65,535 handles, the maximum", Next: "keep adapters open and reuse them"}
	}
	owner := uint64(p.member.ID())<<ownerShift | uint64(serial)
	return &adapter{provider: p, domain: window.NewDomain(p.table, owner)}, nil
}

// Close ends all connections and waits, and stops the engine. Pending calls return
// [nd.Canceled]. Later calls fail and have no effect. Peers keep their references to this
// process's memory until the member leaves.
func (p *Provider) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	p.mu.Unlock()
	for _, l := range p.ports.Listeners() {
		l.close()
	}
	for _, ep := range *p.endpoints.Load() {
		ep.close()
	}
	p.waiters.Close()
	p.engine.stop()
	p.housekeeper.stop()
	p.inboxMu.Lock()
	p.readInbox() // which refuses the requests in it: no listener is left
	p.inboxMu.Unlock()
	p.closeDone.Store(true)
	err := memory.End(p.member)
	p.events.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.record.PeerDied()
	}
	for _, stop := range p.watched {
		close(stop)
	}
	clear(p.watched)
	return err
}
