package endpoint

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndcompat"
)

// TestErrorNamesTheParameter makes each call fail because of each parameter that has a number.
func TestErrorNamesTheParameter(t *testing.T) {
	i := newPair(t, setup{}).a
	ctx := t.Context()
	mr := must(i.adapter.Allocate(ctx, 8192, nd.AllowLocalWrite))
	mw := must(i.adapter.CreateMemoryWindow(ctx))
	fast := must(i.adapter.CreateMemoryRegion(ctx))
	i.good(fast.InitializeFastRegister(ctx, 2, false))
	pages := must(i.adapter.BuildLogicalAddressMapping(ctx, mr.Bytes()))
	defer pages.Close(ctx)
	fastRegister := func(change func(*nd.FastRegistration)) error {
		r := nd.FastRegistration{Region: fast, Pages: pages.Pages(), Offset: pages.Offset(), Length: 4096, BaseAddress: 1 << 20}
		change(&r)
		return i.endpoints[0].FastRegister(0, r, 0)
	}
	listener := i.newListener()
	i.good(listener.Bind(netip.AddrPortFrom(i.address(), 0)))
	other := i.newListener()
	i.good(other.Bind(netip.AddrPortFrom(i.address(), 0)))
	i.good(other.Listen(0))
	const bad nd.OpFlags = 1 << 30
	second := func(_ any, err error) error { return err }
	numbered := make(map[[2]string]nd.Status) // parameters that have a number in version 2
	for name, errs := range map[string][]error{
		"ReceiveCQ":       {i.create(func(c *nd.EndpointConfig) { c.ReceiveCQ = nil })},
		"InitiatorCQ":     {i.create(func(c *nd.EndpointConfig) { c.InitiatorCQ = nil })},
		"SharedReceive":   {i.create(func(c *nd.EndpointConfig) { c.SharedReceive = (*sharedReceiveQueue)(nil) })},
		"ReceiveDepth":    {i.create(func(c *nd.EndpointConfig) { c.ReceiveDepth = -1 })},
		"InlineSize":      {i.create(func(c *nd.EndpointConfig) { c.InlineSize = -1 })},
		"InitiatorDepth":  {i.create(func(c *nd.EndpointConfig) { c.InitiatorDepth = -1 })},
		"MaxReceiveSGE":   {i.create(func(c *nd.EndpointConfig) { c.MaxReceiveSGE = -1 })},
		"MaxInitiatorSGE": {i.create(func(c *nd.EndpointConfig) { c.MaxInitiatorSGE = -1 })},
		"Depth":           {second(i.adapter.CreateSharedReceiveQueue(ctx, nd.SharedReceiveQueueConfig{Depth: -1}))},
		"MaxSGE":          {second(i.adapter.CreateSharedReceiveQueue(ctx, nd.SharedReceiveQueueConfig{MaxSGE: -1}))},
		"Threshold":       {second(i.adapter.CreateSharedReceiveQueue(ctx, nd.SharedReceiveQueueConfig{Threshold: -1}))},
		"depth":           {second(i.adapter.CreateCompletionQueue(ctx, 0)), i.queues[0].Resize(0)},
		"size":            {second(i.adapter.Allocate(ctx, -1, 0))},
		"buf":             {second(i.adapter.Register(ctx, nil, 0)), second(i.adapter.BuildLogicalAddressMapping(ctx, nil))},
		"results":         {second(i.queues[0].Wait(ctx, nil))},
		"t":               {i.queues[0].Notify(ctx, 9)},
		"c":               {other.GetConnectionRequest(ctx, nil)},
		"backlog":         {listener.Listen(-1)},
		"ep": {
			i.newConnector().Connect(ctx, nil, netip.AddrPort{}, nd.ConnectParams{}),
			i.newConnector().Accept(ctx, nil, nd.ConnectParams{}),
		},
		"mr":            {i.endpoints[0].Bind(0, nil, mw, mr.Bytes(), 0), i.endpoints[0].InvalidateRegion(0, nil, 0)},
		"Region":        {fastRegister(func(r *nd.FastRegistration) { r.Region = nil })},
		"mw":            {i.endpoints[0].Bind(0, mr, nil, mr.Bytes(), 0), i.endpoints[0].Invalidate(0, nil, 0)},
		"Offset":        {fastRegister(func(r *nd.FastRegistration) { r.Offset = -1 })},
		"Length":        {fastRegister(func(r *nd.FastRegistration) { r.Length = 0 })},
		"BaseAddress":   {fastRegister(func(r *nd.FastRegistration) { r.BaseAddress = 0 })},
		"Rights, flags": {fastRegister(func(r *nd.FastRegistration) { r.Rights = 1 << 20 })},
		"pages":         {fast.InitializeFastRegister(ctx, 0, false)},
		"len(Pages)":    {fastRegister(func(r *nd.FastRegistration) { r.Pages = nil })},
		"Pages":         {fastRegister(func(r *nd.FastRegistration) { r.Pages = []nd.LogicalPage{1 << 50, 1 << 51} })},
		"flags": {
			second(i.adapter.Register(ctx, make([]byte, 1), 1<<20)), second(i.adapter.Allocate(ctx, 1, 1<<30)),
			i.endpoints[0].Send(0, nd.SGL{}, bad), i.endpoints[0].SendAndInvalidate(0, nd.SGL{}, 0, bad), i.endpoints[0].Write(0, nd.SGL{}, 0, 0, bad), i.endpoints[0].Read(0, nd.SGL{}, 0, 0, bad),
			i.endpoints[0].Bind(0, mr, mw, mr.Bytes(), bad), i.endpoints[0].Invalidate(0, mw, bad), i.endpoints[0].InvalidateRegion(0, fast, bad),
		},
	} {
		for n, err := range errs {
			var op *nd.OpError
			if !errors.As(err, &op) || op.Field != name {
				t.Errorf("error %d because of %s: %v", n, name, err)
				continue
			}
			if op.Status != nd.InvalidParameter {
				t.Errorf("error %d because of %s: %v", n, name, err)
			}
			if s := ndcompat.StatusOf(err); s >= ndcompat.InvalidParameter1 && s <= ndcompat.InvalidParameter10 {
				numbered[[2]string{op.Op, name}] = s
			}
		}
	}
	for parameter, want := range parameterNumbers {
		if got := numbered[parameter]; got != want {
			t.Errorf("%q: %v, want %v", parameter, got, want)
		}
	}
	if len(numbered) != len(parameterNumbers) {
		t.Errorf("%d parameters have a number, want %d: %v", len(numbered), len(parameterNumbers), numbered)
	}
}

// parameterNumbers has the positions of the parameters in the C functions of version 2 and NDK, as statuses.
var parameterNumbers = map[[2]string]nd.Status{
	{"accept", "ep"}:                             ndcompat.InvalidParameter1,
	{"allocate memory region", "flags"}:          ndcompat.InvalidParameter3,
	{"bind", "flags"}:                            ndcompat.InvalidParameter6,
	{"bind", "mr"}:                               ndcompat.InvalidParameter2,
	{"bind", "mw"}:                               ndcompat.InvalidParameter3,
	{"connect", "ep"}:                            ndcompat.InvalidParameter1,
	{"create completion queue", "depth"}:         ndcompat.InvalidParameter3,
	{"create endpoint", "InitiatorCQ"}:           ndcompat.InvalidParameter3,
	{"create endpoint", "InitiatorDepth"}:        ndcompat.InvalidParameter6,
	{"create endpoint", "InlineSize"}:            ndcompat.InvalidParameter9,
	{"create endpoint", "MaxInitiatorSGE"}:       ndcompat.InvalidParameter8,
	{"create endpoint", "MaxReceiveSGE"}:         ndcompat.InvalidParameter7,
	{"create endpoint", "ReceiveCQ"}:             ndcompat.InvalidParameter2,
	{"create endpoint", "ReceiveDepth"}:          ndcompat.InvalidParameter5,
	{"create endpoint", "SharedReceive"}:         ndcompat.InvalidParameter4,
	{"create shared receive queue", "Depth"}:     ndcompat.InvalidParameter3,
	{"create shared receive queue", "MaxSGE"}:    ndcompat.InvalidParameter4,
	{"create shared receive queue", "Threshold"}: ndcompat.InvalidParameter5,
	{"fast register", "BaseAddress"}:             ndcompat.InvalidParameter7,
	{"fast register", "Length"}:                  ndcompat.InvalidParameter6,
	{"fast register", "Offset"}:                  ndcompat.InvalidParameter5,
	{"fast register", "Pages"}:                   ndcompat.InvalidParameter4,
	{"fast register", "Region"}:                  ndcompat.InvalidParameter2,
	{"fast register", "Rights, flags"}:           ndcompat.InvalidParameter8,
	{"fast register", "len(Pages)"}:              ndcompat.InvalidParameter3,
	{"get connection request", "c"}:              ndcompat.InvalidParameter1,
	{"initialize fast register", "pages"}:        ndcompat.InvalidParameter1,
	{"invalidate", "flags"}:                      ndcompat.InvalidParameter3,
	{"invalidate", "mw"}:                         ndcompat.InvalidParameter2,
	{"invalidate region", "flags"}:               ndcompat.InvalidParameter3,
	{"invalidate region", "mr"}:                  ndcompat.InvalidParameter2,
	{"listen", "backlog"}:                        ndcompat.InvalidParameter1,
	{"notify", "t"}:                              ndcompat.InvalidParameter1,
	{"read", "flags"}:                            ndcompat.InvalidParameter6,
	{"register", "flags"}:                        ndcompat.InvalidParameter3,
	{"send", "flags"}:                            ndcompat.InvalidParameter4,
	{"send and invalidate", "flags"}:             ndcompat.InvalidParameter4,
	{"write", "flags"}:                           ndcompat.InvalidParameter6,
}

// A refusal names only the bits that are not flags, and the call that the program made.
func TestUnknownRegionFlagsAreNamed(t *testing.T) {
	a := newUnconnected(t).adapter
	const hint = ": invalid parameter (flags): use the nd.RegionFlags constants"
	for want, call := range map[string]func() (nd.MemoryRegion, error){
		"nd: allocate memory region on adapter: unknown flags 0x4000fff0" + hint: func() (nd.MemoryRegion, error) { return a.Allocate(t.Context(), 1, 0xffffffff) },
		"nd: register on memory region: unknown flags HugePages|OnNode(2)" + hint + "; HugePages and OnNode are for Allocate": func() (nd.MemoryRegion, error) {
			return a.Register(t.Context(), make([]byte, 8), nd.HugePages|nd.OnNode(2)|nd.Prefault)
		},
	} {
		if _, err := call(); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
