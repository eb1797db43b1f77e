package ndc

/*
#include "softnd/softnd.h"
*/
import "C"

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"
	"time"

	goside "github.com/softnd/softnd/endpoint"
	"github.com/softnd/softnd/nd"
)

// Provider is a member of an arena, in C.
type Provider struct {
	nd.UnsupportedProvider
	fabric *C.snd_fabric
	addr   netip.Addr
}

// Options are those of the fabric.
type Options struct {
	Target        bool
	CheckPayloads bool
	WeakOrder     *uint64       // the seed; nil = none
	Timeout       time.Duration // of Sends and disconnects; 0 = the defaults
}

// Open joins the arena behind a descriptor.
func Open(fd int, o Options) (*Provider, error) {
	c := C.snd_fabric_options{threading: C.SND_THREAD_SAFE, progress: C.SND_PROGRESS_AUTO}
	if o.Target {
		c.executor = C.SND_EXECUTOR_TARGET
	}
	if o.CheckPayloads {
		c.check_payloads = 1
	}
	p := new(Provider)
	if o.WeakOrder != nil {
		c.weak_order, c.weak_order_seed = 1, C.uint64_t(*o.WeakOrder)
	}
	if err := status("attach fabric", func() C.snd_status {
		return C.snd_fabric_attach(C.sizeof_snd_fabric_options, C.int(fd), -1, &c, &p.fabric)
	}); err != nil {
		return nil, err
	}
	if o.Timeout != 0 {
		if err := status("set time-outs", func() C.snd_status {
			return C.snd_fabric_set_timeouts(p.fabric, C.int64_t(o.Timeout), C.int64_t(o.Timeout))
		}); err != nil {
			return nil, errors.Join(err, p.Close())
		}
	}
	p.addr = addressOf(C.snd_fabric_address(p.fabric)).Addr()
	return p, nil
}

func addressOf(a C.snd_address) netip.AddrPort {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(a.host))
	return netip.AddrPortFrom(netip.AddrFrom4(b), uint16(a.port))
}

func cAddress(a netip.AddrPort) C.snd_address {
	c := C.snd_address{port: C.uint16_t(a.Port())}
	if a.Addr().Is4() {
		b := a.Addr().As4()
		c.host = C.uint32_t(binary.BigEndian.Uint32(b[:]))
	}
	return c
}

func (p *Provider) QueryAddressList() ([]netip.Addr, error) { return []netip.Addr{p.addr}, nil }

func (p *Provider) ResolveAddress(local netip.Addr) (nd.AdapterID, error) {
	if local != p.addr {
		return 0, refuse("resolve address", nd.InvalidAddress, local.String())
	}
	return p.id(), nil
}

// ResolveRoute finds every process of the job.
func (p *Provider) ResolveRoute(remote netip.Addr) (netip.Addr, error) {
	if _, ok := goside.HostOf(remote); !ok {
		return netip.Addr{}, refuse("resolve route", nd.NetworkUnreachable, remote.String())
	}
	return p.addr, nil
}

func (p *Provider) id() nd.AdapterID {
	b := p.addr.As4()
	return nd.AdapterID(binary.BigEndian.Uint32(b[:])) | 0x73<<32
}

func (p *Provider) OpenAdapter(ctx context.Context, id nd.AdapterID) (nd.Adapter, error) {
	const op = "open adapter"
	if id != p.id() {
		return nil, refuse(op, nd.InvalidParameter, "no such adapter")
	}
	if ctx.Err() != nil {
		return nil, nd.CanceledError(ctx, op, "")
	}
	a := &adapter{provider: p}
	if err := status(op, func() C.snd_status { return C.snd_adapter_open(p.fabric, &a.c) }); err != nil {
		return nil, err
	}
	return a, status(op, func() C.snd_status { return C.snd_adapter_query(C.sizeof_snd_adapter_info, a.c, &a.info) })
}

func (p *Provider) Close() error {
	if p.fabric == nil {
		return nil
	}
	err := status("close", func() C.snd_status { return C.snd_fabric_close(p.fabric) })
	p.fabric = nil
	return err
}

type adapter struct {
	nd.UnsupportedAdapter
	provider *Provider
	c        *C.snd_adapter
	info     C.snd_adapter_info
	closed   bool

	allocated sync.Map // regions of Allocate
}

func (a *adapter) Query() (nd.AdapterInfo, error) {
	i := a.info
	return nd.AdapterInfo{
		VendorID: uint16(i.vendor_id), DeviceID: uint16(i.device_id), AdapterID: a.provider.id(),
		MaxRegistrationSize: uint64(i.max_registration), MaxWindowSize: uint64(i.max_window),
		MaxInitiatorSGE: uint32(i.max_initiator_sge), MaxReceiveSGE: uint32(i.max_receive_sge), MaxReadSGE: uint32(i.max_read_sge),
		MaxTransferLength: uint32(i.max_transfer), MaxInlineDataSize: uint32(i.max_inline),
		MaxInboundReadLimit: uint32(i.max_inbound_reads), MaxOutboundReadLimit: uint32(i.max_outbound_reads),
		MaxReceiveQueueDepth: uint32(i.max_receive_depth), MaxInitiatorQueueDepth: uint32(i.max_initiator_depth),
		MaxSharedReceiveQueueDepth: uint32(i.max_srq_depth), MaxCompletionQueueDepth: uint32(i.max_cq_depth),
		InlineRequestThreshold: uint32(i.inline_threshold), LargeRequestThreshold: uint32(i.large_threshold),
		MaxCallerData: uint32(i.max_caller_data), MaxCalleeData: uint32(i.max_callee_data),
		MaxInterHostConnections: uint32(i.max_inter_host_connections),
		AdapterFlags:            nd.AdapterFlags(i.flags),
	}, nil
}

func (a *adapter) QueryAddressList() ([]netip.Addr, error) { return a.provider.QueryAddressList() }

// usable returns an error of op if the adapter is closed or ctx has ended.
func (a *adapter) usable(ctx context.Context, op string) error {
	if a.closed {
		return refuse(op, nd.InvalidHandle, "the adapter is closed")
	}
	if ctx.Err() != nil {
		return nd.CanceledError(ctx, op, "")
	}
	return nil
}

func (a *adapter) CreateCompletionQueue(ctx context.Context, depth int) (nd.CompletionQueue, error) {
	const op = "create completion queue"
	if err := a.usable(ctx, op); err != nil {
		return nil, err
	}
	q := &queue{adapter: a}
	return q, status(op, func() C.snd_status { return C.snd_cq_create(a.c, C.uint32_t(max(depth, 0)), &q.c) })
}

func (a *adapter) CreateConnector(ctx context.Context) (nd.Connector, error) {
	const op = "create connector"
	if err := a.usable(ctx, op); err != nil {
		return nil, err
	}
	c := &connector{adapter: a}
	return c, status(op, func() C.snd_status { return C.snd_connector_create(a.c, &c.c) })
}

func (a *adapter) CreateListener(ctx context.Context) (nd.Listener, error) {
	const op = "create listener"
	if err := a.usable(ctx, op); err != nil {
		return nil, err
	}
	l := &listener{adapter: a, turn: make(chan struct{}, 1)}
	return l, status(op, func() C.snd_status { return C.snd_listener_create(a.c, &l.c) })
}

// Close leaves the handle and its objects in C open.
func (a *adapter) Close(context.Context) error {
	a.closed = true
	return nil
}

func (a *adapter) CreateEndpoint(ctx context.Context, cfg nd.EndpointConfig) (nd.Endpoint, error) {
	const op = "create endpoint"
	if err := a.usable(ctx, op); err != nil {
		return nil, err
	}
	receive, rok := cfg.ReceiveCQ.(*queue)
	initiator, iok := cfg.InitiatorCQ.(*queue)
	shared, sok := cfg.SharedReceive.(*sharedQueue)
	if cfg.SharedReceive != nil {
		if !sok || shared == nil || shared.adapter != a || shared.isClosed() {
			return nil, refuse(op, nd.InvalidParameter, "")
		}
		cfg.ReceiveDepth, cfg.MaxReceiveSGE = 0, 0
	}
	// A closed queue has no handle that the library could refuse: its memory is another object's.
	if !rok || receive == nil || receive.adapter != a || receive.isClosed() || !iok || initiator == nil || initiator.adapter != a || initiator.isClosed() {
		return nil, refuse(op, nd.InvalidParameter, "no open completion queue of this adapter")
	}
	for _, v := range []int{cfg.ReceiveDepth, cfg.InitiatorDepth, cfg.MaxReceiveSGE, cfg.MaxInitiatorSGE, cfg.InlineSize} {
		if v < 0 { // no number of C
			return nil, refuse(op, nd.InvalidParameter, "a negative limit")
		}
	}
	c := C.snd_endpoint_config{receive_cq: receive.c, initiator_cq: initiator.c, context: C.uint64_t(cfg.Context),
		receive_depth: C.uint32_t(cfg.ReceiveDepth), initiator_depth: C.uint32_t(cfg.InitiatorDepth),
		max_receive_sge: C.uint32_t(cfg.MaxReceiveSGE), max_initiator_sge: C.uint32_t(cfg.MaxInitiatorSGE), inline_size: C.uint32_t(cfg.InlineSize)}
	if sok {
		c.srq = shared.c
	}
	if cfg.CheckPayloads {
		c.check_payloads = 1
	}
	e := &endpoint{adapter: a, inline: cfg.InlineSize}
	return e, status(op, func() C.snd_status { return C.snd_endpoint_create(C.sizeof_snd_endpoint_config, a.c, &c, &e.c) })
}
