package tiny

import (
	"context"
	"net/netip"
	"slices"

	"github.com/softnd/softnd/nd"
)

// Provider has one adapter, at an address of its own.
type Provider struct {
	nd.UnsupportedProvider
	fabric *Fabric
	addr   netip.Addr
	id     nd.AdapterID
}

// Open adds a provider.
func (f *Fabric) Open() (nd.Provider, error) {
	defer f.lock()()
	f.adapters++
	n := f.adapters
	return &Provider{fabric: f, addr: netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)}), id: nd.AdapterID(0x71000000 + n)}, nil
}

func (p *Provider) QueryAddressList() ([]netip.Addr, error) { return []netip.Addr{p.addr}, nil }

func (p *Provider) ResolveAddress(local netip.Addr) (nd.AdapterID, error) {
	if local.Unmap() != p.addr {
		return 0, refuse("resolve address", nd.InvalidAddress, local.String())
	}
	return p.id, nil
}

// ResolveRoute finds every adapter of the fabric.
func (p *Provider) ResolveRoute(remote netip.Addr) (netip.Addr, error) {
	defer p.fabric.lock()()
	b := remote.As16()
	if n := int(b[14])<<8 | int(b[15]); !remote.Is4() || b[12] != 10 || b[13] != 1 || n == 0 || n > p.fabric.adapters {
		return netip.Addr{}, refuse("resolve route", nd.NetworkUnreachable, remote.String())
	}
	return p.addr, nil
}

func (p *Provider) OpenAdapter(ctx context.Context, id nd.AdapterID) (nd.Adapter, error) {
	if id != p.id {
		return nil, refuse("open adapter", nd.InvalidParameter, id.String())
	}
	return &adapter{
		Fabric: p.fabric, addr: p.addr, id: id,
		local: make(map[nd.Token]*region), remote: make(map[nd.Token]*access),
	}, nil
}

func (p *Provider) Close() error { return nil }

const (
	maxBytes  = 64 << 20
	maxSGE    = 8
	maxReads  = 16
	maxDepth  = 4096
	maxEvents = 65536
	maxInline = 1024
	maxData   = 256
)

// adapter is a handle. Objects of different handles cannot be used together.
type adapter struct {
	nd.UnsupportedAdapter
	*Fabric
	addr   netip.Addr
	id     nd.AdapterID
	closed bool
	local  map[nd.Token]*region // by local token
	remote map[nd.Token]*access // by remote token
}

func (a *adapter) Query() (nd.AdapterInfo, error) {
	return nd.AdapterInfo{
		AdapterID:           a.id,
		MaxRegistrationSize: maxBytes, MaxWindowSize: maxBytes,
		MaxInitiatorSGE: maxSGE, MaxReceiveSGE: maxSGE, MaxReadSGE: maxSGE,
		MaxTransferLength: maxBytes, MaxInlineDataSize: maxInline,
		MaxInboundReadLimit: maxReads, MaxOutboundReadLimit: maxReads,
		MaxReceiveQueueDepth: maxDepth, MaxInitiatorQueueDepth: maxDepth, MaxCompletionQueueDepth: maxEvents,
		InlineRequestThreshold: 128, LargeRequestThreshold: 4096,
		MaxCallerData: maxData, MaxCalleeData: maxData,
		AdapterFlags: nd.InOrderDMASupported | nd.ReadSinkNotRequired | nd.CQResizeSupported | nd.LoopbackConnectionsSupported,
	}, a.usable("query")
}

func (a *adapter) QueryAddressList() ([]netip.Addr, error) { return []netip.Addr{a.addr}, nil }

func (a *adapter) usable(op string) error {
	defer a.lock()()
	if a.closed {
		return refuse(op, nd.InvalidHandle, "the adapter is closed")
	}
	return nil
}

func (a *adapter) CreateCompletionQueue(ctx context.Context, depth int) (nd.CompletionQueue, error) {
	const op = "create completion queue"
	if err := a.usable(op); err != nil {
		return nil, err
	}
	if depth < 1 || depth > maxEvents {
		return nil, refuse(op, nd.InvalidParameter, "depth")
	}
	return &queue{adapter: a, depth: depth}, nil
}

func (a *adapter) CreateEndpoint(ctx context.Context, cfg nd.EndpointConfig) (nd.Endpoint, error) {
	const op = "create endpoint"
	if err := a.usable(op); err != nil {
		return nil, err
	}
	rq, rok := cfg.ReceiveCQ.(*queue)
	iq, iok := cfg.InitiatorCQ.(*queue)
	for _, c := range []struct {
		bad    bool
		status nd.Status
	}{
		{cfg.SharedReceive != nil || cfg.CheckPayloads, nd.NotSupported},
		{!rok || rq.adapter != a, nd.InvalidParameter},
		{!iok || iq.adapter != a, nd.InvalidParameter},
		{!choose(&cfg.ReceiveDepth, maxDepth, 64), nd.InvalidParameter},
		{!choose(&cfg.InitiatorDepth, maxDepth, 64), nd.InvalidParameter},
		{!choose(&cfg.MaxReceiveSGE, maxSGE, 4), nd.InvalidParameter},
		{!choose(&cfg.MaxInitiatorSGE, maxSGE, 4), nd.InvalidParameter},
		{cfg.InlineSize < 0 || cfg.InlineSize > maxInline, nd.InvalidParameter},
	} {
		if c.bad {
			return nil, refuse(op, c.status, "")
		}
	}
	cfg.MaxReceiveSGE, cfg.MaxInitiatorSGE = max(cfg.MaxReceiveSGE, 4), max(cfg.MaxInitiatorSGE, 4)
	defer a.lock()()
	e := &endpoint{adapter: a, cfg: cfg, receiving: rq, initiating: iq, windows: make(map[nd.Token]*window), ended: make(chan struct{})}
	for _, q := range []*queue{rq, iq} {
		if q.closed {
			return nil, refuse(op, nd.InvalidHandle, "a completion queue is closed")
		}
		if !slices.Contains(q.users, e) {
			q.users = append(q.users, e)
		}
	}
	return e, nil
}

// choose replaces 0 by the default. It returns false if v is out of range.
func choose(v *int, most, usual int) bool {
	if *v == 0 {
		*v = usual
	}
	return *v > 0 && *v <= most
}

func (a *adapter) CreateConnector(ctx context.Context) (nd.Connector, error) {
	return &connector{adapter: a}, a.usable("create connector")
}

func (a *adapter) CreateListener(ctx context.Context) (nd.Listener, error) {
	return &listener{adapter: a}, a.usable("create listener")
}

func (a *adapter) Close(context.Context) error {
	defer a.lock()()
	a.closed = true
	return nil
}
