package ndcheck

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/softnd/softnd/nd"
)

// adapter watches an adapter. Calls that it does not override have nothing to watch.
type adapter struct {
	nd.Adapter
	*checker
	id   uint32
	info nd.AdapterInfo

	// Guarded by checker.mu.
	open       map[child]string // the objects that are not closed yet, with the lines that created them
	closedAt   string           // the line that closed the adapter
	trouble    int64            // when the program has last seen a failure, 0 = never, or it has gone on since
	privileged nd.Token         // 0 = the program has not asked for it
}

// object is an adapter, or anything that an adapter creates.
type object interface {
	name() string
	home() *adapter
}

// child is an object that an adapter creates, and that its Close closes.
type child interface {
	object
	closing(site string) // notes that a call at site is about to close it, and reports what that call gives up
	gone(site string)    // notes that a call at site has closed it
}

func (a *adapter) name() string   { return fmt.Sprintf("adapter %d", a.id) }
func (a *adapter) home() *adapter { return a }

// ndkAdapter is an adapter that is an nd.NDKAdapter too.
type ndkAdapter struct {
	*adapter
	ndk nd.NDKAdapter
}

// OpenAdapter implements [nd.Provider].
func (p *Provider) OpenAdapter(ctx context.Context, id nd.AdapterID) (nd.Adapter, error) {
	inner, err := p.inner.OpenAdapter(ctx, id)
	if err != nil {
		return nil, err
	}
	a := &adapter{Adapter: inner, checker: p.checker, id: p.number(adapters), open: make(map[child]string)}
	a.info, _ = inner.Query() // without the limits, the rules about limits find nothing
	p.mu.Lock()
	p.adapters = append(p.adapters, a)
	p.mu.Unlock()
	if ndk, ok := inner.(nd.NDKAdapter); ok {
		return &ndkAdapter{a, ndk}, nil
	}
	return a, nil
}

func (a *ndkAdapter) QueryNDK() (nd.NDKInfo, error) { return a.ndk.QueryNDK() }

func (a *ndkAdapter) CreateSharedAddress(ctx context.Context, addr netip.AddrPort) (nd.SharedAddress, error) {
	return a.ndk.CreateSharedAddress(ctx, addr)
}

// CreateConnector returns a connector that is an nd.SharedAddressConnector too, as the interface promises.
func (a *ndkAdapter) CreateConnector(ctx context.Context) (nd.Connector, error) {
	inner, err := a.Adapter.CreateConnector(ctx)
	if err != nil {
		return nil, err
	}
	c := a.newConnector(inner, here())
	if shared, ok := inner.(nd.SharedAddressConnector); ok {
		c.outer = &sharedConnector{c, shared}
	}
	return c.outer, nil
}
func (a *adapter) CreateConnector(ctx context.Context) (nd.Connector, error) {
	inner, err := a.Adapter.CreateConnector(ctx)
	if err != nil {
		return nil, err
	}
	return a.newConnector(inner, here()).outer, nil
}

func (a *adapter) newConnector(inner nd.Connector, site string) *connector {
	c := &connector{Connector: inner, checker: a.checker, adapter: a, id: a.number(connectors)}
	c.outer = c
	a.opened(c, site)
	return c
}

func (a *adapter) CreateListener(ctx context.Context) (nd.Listener, error) {
	inner, err := a.Adapter.CreateListener(ctx)
	if err != nil {
		return nil, err
	}
	l := &listener{Listener: inner, checker: a.checker, adapter: a, id: a.number(listeners)}
	a.opened(l, here())
	return l, nil
}

func (a *adapter) CreateCompletionQueue(ctx context.Context, depth int) (nd.CompletionQueue, error) {
	inner, err := a.Adapter.CreateCompletionQueue(ctx, depth)
	if err != nil {
		return nil, err
	}
	q := &queue{CompletionQueue: inner, checker: a.checker, adapter: a, id: a.number(queues), site: here(), depth: depth}
	a.opened(q, q.site)
	return q.withOptions(), nil
}

func (a *adapter) CreateSharedReceiveQueue(ctx context.Context, cfg nd.SharedReceiveQueueConfig) (nd.SharedReceiveQueue, error) {
	inner, err := a.Adapter.CreateSharedReceiveQueue(ctx, cfg)
	if err != nil {
		return nil, err
	}
	q := &sharedQueue{SharedReceiveQueue: inner, checker: a.checker, adapter: a, id: a.number(sharedQueues)}
	a.opened(q, here())
	return q, nil
}

func (a *adapter) CreateMemoryRegion(ctx context.Context) (nd.MemoryRegion, error) {
	inner, err := a.Adapter.CreateMemoryRegion(ctx)
	if err != nil {
		return nil, err
	}
	return a.newRegion(inner, here()), nil
}

func (a *adapter) Register(ctx context.Context, buf []byte, flags nd.RegionFlags) (nd.MemoryRegion, error) {
	inner, err := a.Adapter.Register(ctx, buf, flags)
	if err != nil {
		return nil, err
	}
	r := a.newRegion(inner, here())
	r.registered(flags, r.site)
	return r, nil
}

func (a *adapter) Allocate(ctx context.Context, size int, flags nd.RegionFlags) (nd.MemoryRegion, error) {
	inner, err := a.Adapter.Allocate(ctx, size, flags)
	if err != nil {
		return nil, err
	}
	r := a.newRegion(inner, here())
	r.registered(flags, r.site)
	return r, nil
}

func (a *adapter) newRegion(inner nd.MemoryRegion, site string) *region {
	r := &region{MemoryRegion: inner, checker: a.checker, adapter: a, id: a.number(regions), site: site}
	a.opened(r, site)
	return r
}

func (a *adapter) CreateMemoryWindow(ctx context.Context) (nd.MemoryWindow, error) {
	inner, err := a.Adapter.CreateMemoryWindow(ctx)
	if err != nil {
		return nil, err
	}
	w := &window{MemoryWindow: inner, checker: a.checker, adapter: a, id: a.number(windows)}
	a.opened(w, here())
	return w, nil
}

// PrivilegedToken notes the token as a local one without a region. Only the provider knows the open mappings that it covers.
func (a *adapter) PrivilegedToken() (nd.Token, error) {
	token, err := a.Adapter.PrivilegedToken()
	if err != nil {
		return 0, err
	}
	a.mu.Lock()
	a.privileged = token
	a.mu.Unlock()
	a.journal.issue(tokenRecord{token: token, kind: localToken, rank: a.rank, adapter: a.id, read: true, write: true, site: here()})
	return token, nil
}

// Limits that cards of the last years have in common. The Intel E810 takes 13 entries per request. Broadcom's
// NetXtreme-E takes 96 bytes inline.
const (
	commonSGE    = 13
	commonInline = 96
)

// defaultDepth is the initiator queue's depth of an endpoint that asks for none.
const defaultDepth = 64

func (a *adapter) CreateEndpoint(ctx context.Context, cfg nd.EndpointConfig) (nd.Endpoint, error) {
	ep := &endpoint{checker: a.checker, adapter: a, id: a.number(endpoints), context: cfg.Context, depth: cfg.InitiatorDepth, connectors: make(map[nd.Connector]nd.Connector)}
	inner := cfg
	inner.Context = uint64(ep.id) // a program may give several endpoints one number
	if ep.depth == 0 {
		ep.depth = defaultDepth
	}
	if q, ok := cfg.ReceiveCQ.(checkedQueue); ok {
		ep.receiveQueue = q.self()
		inner.ReceiveCQ = ep.receiveQueue.CompletionQueue
	}
	if q, ok := cfg.InitiatorCQ.(checkedQueue); ok {
		ep.initiatorQueue = q.self()
		inner.InitiatorCQ = ep.initiatorQueue.CompletionQueue
	}
	if q, ok := cfg.SharedReceive.(*sharedQueue); ok {
		ep.shared = q
		inner.SharedReceive = q.SharedReceiveQueue
	}
	// The provider may complete a request of the endpoint before this function returns its number.
	var err error
	if ep.Endpoint, err = a.Adapter.CreateEndpoint(ctx, inner); err != nil {
		return nil, err
	}
	site := here()
	a.mu.Lock()
	a.endpoints[uint64(ep.id)] = ep
	if ep.shared != nil && ep.receiveQueue != nil {
		ep.receiveQueue.shared = true
	}
	a.mu.Unlock()
	a.opened(ep, site)
	if cfg.MaxInitiatorSGE > commonSGE || cfg.MaxReceiveSGE > commonSGE || cfg.InlineSize > commonInline {
		a.found(Finding{Rule: beyondHardware, Site: site, What: fmt.Sprintf("%s takes %d and %d scatter/gather entries and %d bytes inline; common are %d entries and %d bytes",
			ep.name(), cfg.MaxInitiatorSGE, cfg.MaxReceiveSGE, cfg.InlineSize, commonSGE, commonInline)}, ep)
	}
	return ep.withOptions(), nil
}

func (a *adapter) opened(o child, site string) {
	a.mu.Lock()
	a.open[o] = site
	a.mu.Unlock()
}

// close is the Close of a child, made by inner.
func (a *adapter) close(o child, inner func() error) error {
	site := here()
	o.closing(site)
	err := inner()
	o.gone(site)
	a.closed(o)
	return err
}

func (a *adapter) closed(o child) {
	a.mu.Lock()
	delete(a.open, o)
	if _, ok := o.(*endpoint); !ok { // results of a closed endpoint may follow
		delete(a.expected, o.name())
	}
	a.mu.Unlock()
}

// Close notes that the program closes the adapter, and with it the open objects.
func (a *adapter) Close(ctx context.Context) error {
	site := here()
	a.mu.Lock()
	a.closedAt = site
	var open []child
	for o := range a.open {
		if _, ok := o.(*endpoint); ok {
			open = slices.Insert(open, 0, o) // first, so that the requests of an endpoint count for it
		} else {
			open = append(open, o)
		}
	}
	a.mu.Unlock()
	for _, o := range open {
		o.closing(site)
	}
	err := a.Adapter.Close(ctx)
	for _, o := range open {
		o.gone(site)
	}
	return err
}

// leaks reports the objects of a closed adapter that are still open at the end.
func (a *adapter) leaks() {
	a.mu.Lock()
	site := a.closedAt
	if a.trouble != 0 {
		site = ""
	}
	var left []string
	for o, site := range a.open {
		left = append(left, o.name()+" of "+baseOf(site))
	}
	a.mu.Unlock()
	if n := len(left); n > 0 && site != "" {
		slices.Sort(left)
		a.found(Finding{Rule: leaked, Site: site, What: fmt.Sprintf("closed adapter %d, but never %d of its objects, such as %s", a.id, n, left[0])}, a)
	}
}
