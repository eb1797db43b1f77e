package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

// Limits of the adapter; see adapter.Query.
const (
	maxRegistration   = 64 << 30
	maxTransfer       = 1 << 30
	maxSGE            = 16
	minSGE            = 4 // granted if fewer are requested, see adapterLimits
	maxQueueDepth     = 4096
	maxSharedDepth    = 4096
	defaultQueueDepth = 64
	maxCQDepth        = 65536
	maxReads          = 128
	maxInterHost      = 2048 // connections that the relay of a host carries
)

// adapterLimits are the limits in which a small card differs from a large one.
type adapterLimits struct {
	sge         int
	leastSGE    int // granted even if fewer are requested
	inline      int
	queueDepth  int
	sharedDepth int
	cqDepth     int
	reads       int
	privateData int // of Connect, Accept and Reject
	flags       nd.AdapterFlags
}

// largeLimits has the limits of softnd, smallLimits those with a weak order: little hardware has less.
var (
	largeLimits = adapterLimits{
		sge: maxSGE, leastSGE: minSGE, inline: maxInline, queueDepth: maxQueueDepth,
		sharedDepth: maxSharedDepth, cqDepth: maxCQDepth, reads: maxReads, privateData: wire.MaxPrivateData,
		flags: adapterFlags,
	}
	smallLimits = adapterLimits{
		sge: 4, leastSGE: 1, inline: 96, queueDepth: 256,
		sharedDepth: 256, cqDepth: 4096, reads: 16, privateData: 56,
		flags: adapterFlags &^ nd.InOrderDMASupported,
	}
)

const adapterFlags = nd.InOrderDMASupported | nd.MultiEngineSupported | nd.LoopbackConnectionsSupported |
	nd.CQResizeSupported | nd.InterruptModerationSupported | nd.ReadLocalInvalidateSupported

// adapter is one handle of the member's adapter. Safe for concurrent use.
type adapter struct {
	provider *Provider
	domain   *window.Domain
	closed   atomic.Bool
	isHidden bool // see Hide

	privilegedMu sync.Mutex    // held while the privileged token is made
	privileged   atomic.Uint32 // the token; 0 until PrivilegedToken is called
}

// Query returns the limits of the adapter.
func (a *adapter) Query(version uint32) (nd.AdapterInfo, error) {
	if version != nd.InfoVersion1 && version != nd.InfoVersion2 {
		return nd.AdapterInfo{}, a.opError("query", nd.InvalidParameter, fmt.Sprintf("structure version %#x", version), "ask for nd.InfoVersion2")
	}
	c := a.provider.limits
	interHost := uint32(0)
	if _, err := a.provider.arena.Relay(); err == nil {
		interHost = maxInterHost
	}
	return nd.AdapterInfo{
		InfoVersion:             version,
		AdapterID:               a.provider.adapterID(),
		MaxRegistrationSize:     maxRegistration,
		MaxWindowSize:           maxRegistration,
		MaxInitiatorSGE:         uint32(c.sge),
		MaxReceiveSGE:           uint32(c.sge),
		MaxReadSGE:              uint32(c.sge),
		MaxTransferLength:       maxTransfer,
		MaxInlineDataSize:       uint32(c.inline),
		MaxInboundReadLimit:     uint32(c.reads),
		MaxOutboundReadLimit:    uint32(c.reads),
		MaxReceiveQueueDepth:    uint32(c.queueDepth),
		MaxInitiatorQueueDepth:  uint32(c.queueDepth),
		MaxCompletionQueueDepth: uint32(c.cqDepth),
		InlineRequestThreshold:  uint32(min(inlineThreshold, c.inline)),
		LargeRequestThreshold:   wire.MaxSendInEntry,
		MaxCallerData:           uint32(c.privateData),
		MaxCalleeData:           uint32(c.privateData),
		MaxInterHostConnections: interHost,
		AdapterFlags:            c.flags,

		MaxSharedReceiveQueueDepth: uint32(c.sharedDepth),
	}, nil
}

// QueryAddressList returns the address of the member.
func (a *adapter) QueryAddressList() ([]netip.Addr, error) { return a.provider.QueryAddressList() }

// Control fails with nd.NotSupported: softnd defines no vendor-specific control codes.
func (a *adapter) Control(context.Context, uint32, []byte, []byte) (int, error) {
	return 0, a.opError("control", nd.NotSupported, "softnd defines no control codes", "use the methods of nd.Adapter")
}

// CreateCompletionQueue makes a queue that holds at least depth results.
func (a *adapter) CreateCompletionQueue(ctx context.Context, depth int) (nd.CompletionQueue, error) {
	const op = "create completion queue"
	if err := a.checkUsable(ctx, op); err != nil {
		return nil, err
	}
	if most := a.provider.limits.cqDepth; depth < 1 || depth > most {
		return nil, a.opError(op, nd.InvalidParameter3, fmt.Sprintf("depth %d, allowed 1 to %d", depth, most), "choose a depth within the limits")
	}
	if err := a.beforeCall(ctx, op, 0, 0); err != nil {
		return nil, err
	}
	return newCompletionQueue(a, depth), nil
}

// CreateMemoryRegion makes a region without memory.
func (a *adapter) CreateMemoryRegion(ctx context.Context) (nd.MemoryRegion, error) {
	const op = "create memory region"
	if err := a.beginCall(ctx, op); err != nil {
		return nil, err
	}
	defer a.provider.waiters.EndCall()
	r, err := a.domain.NewRegion()
	if err != nil {
		return nil, a.allocError(op, err)
	}
	return &memoryRegion{adapter: a, region: r}, nil
}

// Register makes a region of any memory of the process.
func (a *adapter) Register(ctx context.Context, buf []byte, flags nd.RegionFlags) (nd.MemoryRegion, error) {
	r, err := a.CreateMemoryRegion(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.Register(ctx, buf, flags); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Allocate makes a region of arena memory. Peers reach it with one copy and without this
// process. Its pages are reserved now.
//
// Go's race detector watches only Go's heap and variables, so it reports no race in arena
// memory. A test that looks for races in a program can register memory from make instead. All
// requests except fast registrations work on it. The detector then sees the program's accesses
// and those that this process makes for requests.
func (a *adapter) Allocate(ctx context.Context, size int, flags nd.RegionFlags) (nd.MemoryRegion, error) {
	const op = "allocate memory region"
	switch {
	case size < 0:
		return nil, a.opError(op, nd.InvalidParameter, fmt.Sprintf("%d bytes", size), "ask for at least 1 byte")
	case size == 0:
		return nil, a.opError(op, nd.InvalidBufferSize, fmt.Sprintf("%d bytes", size), "ask for at least 1 byte")
	case size > maxRegistration:
		return nil, a.opError(op, nd.InvalidParameter, fmt.Sprintf("%d bytes, at most %d in one region", size, maxRegistration), "use several regions")
	case flags&^nd.AllRegionFlags != 0:
		return nil, a.opError(op, nd.InvalidParameter3, unknownFlags(flags), useRegionFlags)
	}
	if err := a.beforeCall(ctx, op, uint64(size), 0); err != nil {
		return nil, err
	}
	if err := a.beginCall(ctx, op); err != nil {
		return nil, err
	}
	defer a.provider.waiters.EndCall()
	r, err := a.CreateMemoryRegion(ctx)
	if err != nil {
		return nil, err
	}
	mr := r.(*memoryRegion)
	offset, err := a.provider.member.Alloc(uint64(size))
	if err != nil {
		mr.Close()
		return nil, a.allocError(op, err)
	}
	buf, err := a.provider.arena.Bytes(offset, uint64(size))
	if err == nil {
		mr.allocation = a.provider.addAllocation(offset, buf)
		err = mr.register(ctx, buf, flags)
	}
	if err != nil {
		mr.Close()
		return nil, err
	}
	return mr, nil
}

// CreateMemoryWindow makes a window that is not bound.
func (a *adapter) CreateMemoryWindow(ctx context.Context) (nd.MemoryWindow, error) {
	const op = "create memory window"
	if err := a.beforeCall(ctx, op, 0, 0); err != nil {
		return nil, err
	}
	if err := a.beginCall(ctx, op); err != nil {
		return nil, err
	}
	defer a.provider.waiters.EndCall()
	w, err := a.domain.NewWindow()
	if err != nil {
		return nil, a.allocError(op, err)
	}
	return &memoryWindow{adapter: a, window: w, closeDone: make(chan struct{})}, nil
}

// CreateConnector makes an unbound connector.
func (a *adapter) CreateConnector(ctx context.Context) (nd.Connector, error) {
	if err := a.checkUsable(ctx, "create connector"); err != nil {
		return nil, err
	}
	return &connector{adapter: a}, nil
}

// CreateListener makes an unbound listener.
func (a *adapter) CreateListener(ctx context.Context) (nd.Listener, error) {
	if err := a.checkUsable(ctx, "create listener"); err != nil {
		return nil, err
	}
	return &listener{adapter: a}, nil
}

// Close closes the handle. Objects created through it stay usable until they are closed.
func (a *adapter) Close() error {
	a.closed.Store(true)
	return nil
}

func (a *adapter) checkUsable(ctx context.Context, op string) error {
	if a.closed.Load() {
		return a.opError(op, nd.InvalidHandle, "the adapter is closed", "open it again")
	}
	if a.provider.waiters.IsClosed() {
		return a.closedProviderError(op)
	}
	if ctx.Err() != nil {
		return nd.CanceledError(ctx, op, "adapter")
	}
	return nil
}

// beginCall is checkUsable for a call that uses the arena. Provider.Close blocks until the call
// ends with waiters.EndCall: the arena may be unmapped afterwards, and its descriptor may be another
// file's.
func (a *adapter) beginCall(ctx context.Context, op string) error {
	if err := a.checkUsable(ctx, op); err != nil {
		return err
	}
	if !a.provider.waiters.BeginCall() {
		return a.closedProviderError(op)
	}
	return nil
}

func (a *adapter) closedProviderError(op string) error {
	return a.opError(op, nd.DeviceRemoved, "the provider is closed", "close the objects that are left")
}

func (a *adapter) opError(op string, s nd.Status, detail, next string) error {
	return &nd.OpError{Op: op, Object: "adapter", Status: s, Field: parameterName(op, s), Detail: detail, Next: next}
}

// allocError returns the error of a call for which the arena has no room, with a fitting status.
func (a *adapter) allocError(op string, err error) error {
	status, next := nd.InsufficientResources, ""
	_, isNoMemory := errors.AsType[*shm.NoMemoryError](err)
	switch {
	case isNoMemory: // its text says what to do
		status = nd.NoMemory
	case errors.Is(err, shm.ErrFull):
		next = "close unused regions and windows, here or in other processes"
	}
	return &nd.OpError{Op: op, Object: "adapter", Status: status, Err: err, Next: next}
}
