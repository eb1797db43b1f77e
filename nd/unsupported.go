package nd

import "context"

// A provider embeds the type of this file in its implementation of each interface. The interfaces can then gain methods
// without breaking the provider: the embedded type answers the new calls with [NotSupported]. So it answers the optional
// calls of today, if the provider does not have them. A call that every provider must have is not answered here, and the
// compiler reports that it is missing.
//
// A type that embeds a value of the interface, such as the wrapper of another provider, needs no further type.

// extensible makes each implementation embed one of the types, or a value of the interface.
type extensible interface{ embedUnsupported() }

var _ = []extensible{UnsupportedProvider{}, UnsupportedAdapter{}, UnsupportedCompletionQueue{}, UnsupportedSharedReceiveQueue{}, UnsupportedEndpoint{},
	UnsupportedConnector{}, UnsupportedListener{}, UnsupportedMemoryRegion{}, UnsupportedMemoryWindow{}, UnsupportedLogicalMapping{}}

// UnsupportedProvider is for implementations of [Provider].
type UnsupportedProvider struct{}

func (UnsupportedProvider) embedUnsupported() {}

// UnsupportedAdapter is for implementations of [Adapter]. It answers BuildLogicalAddressMapping,
// CreateSharedReceiveQueue and PrivilegedToken.
type UnsupportedAdapter struct{}

func (UnsupportedAdapter) embedUnsupported() {}

// CreateSharedReceiveQueue fails with [NotSupported].
func (UnsupportedAdapter) CreateSharedReceiveQueue(context.Context, SharedReceiveQueueConfig) (SharedReceiveQueue, error) {
	return nil, unsupported("create shared receive queue", "adapter")
}

// BuildLogicalAddressMapping fails with [NotSupported].
func (UnsupportedAdapter) BuildLogicalAddressMapping(context.Context, []byte) (LogicalMapping, error) {
	return nil, unsupported("build logical address mapping", "adapter")
}

// PrivilegedToken fails with [NotSupported].
func (UnsupportedAdapter) PrivilegedToken() (Token, error) {
	return 0, unsupported("privileged token", "adapter")
}

// UnsupportedCompletionQueue is for implementations of [CompletionQueue]. It answers EventFD, NotifyAffinity and Resize.
type UnsupportedCompletionQueue struct{}

func (UnsupportedCompletionQueue) embedUnsupported() {}

// EventFD fails with [NotSupported].
func (UnsupportedCompletionQueue) EventFD() (int, error) {
	return -1, unsupported("event descriptor", "completion queue")
}

// NotifyAffinity fails with [NotSupported].
func (UnsupportedCompletionQueue) NotifyAffinity() (group uint16, mask uint64, err error) {
	return 0, 0, unsupported("notify affinity", "completion queue")
}

// Resize fails with [NotSupported].
func (UnsupportedCompletionQueue) Resize(int) error { return unsupported("resize", "completion queue") }

// UnsupportedSharedReceiveQueue is for implementations of [SharedReceiveQueue]. It answers NotifyAffinity.
type UnsupportedSharedReceiveQueue struct{}

func (UnsupportedSharedReceiveQueue) embedUnsupported() {}

// NotifyAffinity fails with [NotSupported].
func (UnsupportedSharedReceiveQueue) NotifyAffinity() (group uint16, mask uint64, err error) {
	return 0, 0, unsupported("notify affinity", "shared receive queue")
}

// UnsupportedEndpoint is for implementations of [Endpoint]. It answers FastRegister, InvalidateRegion,
// WaitSlot, atomics, and requests with immediate data.
type UnsupportedEndpoint struct{}

func (UnsupportedEndpoint) embedUnsupported() {}

// FastRegister fails with [NotSupported].
func (UnsupportedEndpoint) FastRegister(uint64, FastRegistration, OpFlags) error {
	return unsupported("fast register", "endpoint")
}

// InvalidateRegion fails with [NotSupported].
func (UnsupportedEndpoint) InvalidateRegion(uint64, MemoryRegion, OpFlags) error {
	return unsupported("invalidate region", "endpoint")
}

// SendImmediate fails with [NotSupported].
func (UnsupportedEndpoint) SendImmediate(uint64, SGL, uint32, OpFlags) error {
	return unsupported("send immediate", "endpoint")
}

// WriteImmediate fails with [NotSupported].
func (UnsupportedEndpoint) WriteImmediate(uint64, SGL, uint64, Token, uint32, OpFlags) error {
	return unsupported("write immediate", "endpoint")
}

// FetchAndAdd fails with [NotSupported].
func (UnsupportedEndpoint) FetchAndAdd(uint64, SGE, uint64, Token, uint64, OpFlags) error {
	return unsupported("fetch and add", "endpoint")
}

// CompareAndSwap fails with [NotSupported].
func (UnsupportedEndpoint) CompareAndSwap(uint64, SGE, uint64, Token, uint64, uint64, OpFlags) error {
	return unsupported("compare and swap", "endpoint")
}

// Swap fails with [NotSupported].
func (UnsupportedEndpoint) Swap(uint64, SGE, uint64, Token, uint64, OpFlags) error {
	return unsupported("swap", "endpoint")
}

// WaitSlot fails with [NotSupported].
func (UnsupportedEndpoint) WaitSlot(context.Context) error {
	return unsupported("wait slot", "endpoint")
}

// UnsupportedConnector is for implementations of [Connector].
type UnsupportedConnector struct{}

func (UnsupportedConnector) embedUnsupported() {}

// UnsupportedListener is for implementations of [Listener]. It answers PauseEvents.
type UnsupportedListener struct{}

func (UnsupportedListener) embedUnsupported() {}

// PauseEvents fails with [NotSupported].
func (UnsupportedListener) PauseEvents(bool) error { return unsupported("pause events", "listener") }

// UnsupportedMemoryRegion is for implementations of [MemoryRegion]. It answers InitializeFastRegister and Placement.
type UnsupportedMemoryRegion struct{}

func (UnsupportedMemoryRegion) embedUnsupported() {}

// InitializeFastRegister fails with [NotSupported].
func (UnsupportedMemoryRegion) InitializeFastRegister(context.Context, int, bool) error {
	return unsupported("initialize fast register", "region")
}

// Placement returns 0.
func (UnsupportedMemoryRegion) Placement() RegionFlags { return 0 }

// UnsupportedMemoryWindow is for implementations of [MemoryWindow].
type UnsupportedMemoryWindow struct{}

func (UnsupportedMemoryWindow) embedUnsupported() {}

// UnsupportedLogicalMapping is for implementations of [LogicalMapping].
type UnsupportedLogicalMapping struct{}

func (UnsupportedLogicalMapping) embedUnsupported() {}

func unsupported(op, object string) error {
	return &OpError{Op: op, Object: object, Status: NotSupported, Detail: "the provider has no such call", Next: "see AdapterInfo.AdapterFlags, or use another provider"}
}
