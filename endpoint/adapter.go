package endpoint

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

// adapter is one handle of the member's adapter. Safe for concurrent use.
type adapter struct {
	nd.UnsupportedAdapter
	provider *Provider
	domain   *window.Domain
	closed   atomic.Bool
	isHidden bool // see Hide

	owned ownedObjects

	privilegedMu sync.Mutex    // held while the privileged token is made
	privileged   atomic.Uint32 // the token; 0 until PrivilegedToken is called
}

// Query returns the limits of the adapter.
func (a *adapter) Query() (nd.AdapterInfo, error) {
	c := a.provider.limits
	interHost := uint32(0)
	if _, err := a.provider.arena.Relay(); err == nil {
		interHost = maxInterHost
	}
	return nd.AdapterInfo{
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
	return &nd.OpError{Op: op, Object: "adapter", Status: s, Detail: detail, Next: next}
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

// bindLocal checks a local address and reserves its port.
func (a *adapter) bindLocal(op, object string, addr netip.AddrPort) (netip.AddrPort, error) {
	own := a.provider.address()
	fail := func(s nd.Status, detail, next string) error {
		return &nd.OpError{Op: op, Object: object, Status: s, Detail: detail, Next: next}
	}
	if !addr.Addr().IsUnspecified() && addr.Addr() != own {
		return addr, fail(nd.InvalidAddress, addr.String()+" is not local; this adapter has "+own.String(), "bind to an address from QueryAddressList")
	}
	port, status := a.provider.ports.Reserve(addr.Port())
	switch status {
	case nd.SharingViolation:
		return addr, fail(status, addr.String()+" is in use", "choose another port, or 0")
	case nd.TooManyAddresses:
		return addr, fail(status, "all ephemeral ports are in use", "close unused connectors")
	}
	return netip.AddrPortFrom(own, port), nil
}
