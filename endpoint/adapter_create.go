package endpoint

import (
	"context"
	"fmt"

	"github.com/softnd/softnd/endpoint/internal/memory"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// CreateCompletionQueue makes a queue that holds at least depth results.
func (a *adapter) CreateCompletionQueue(ctx context.Context, depth int) (nd.CompletionQueue, error) {
	const op = "create completion queue"
	if err := a.checkUsable(ctx, op); err != nil {
		return nil, err
	}
	if most := a.provider.limits.cqDepth; depth < 1 || depth > most {
		return nil, argument("depth", a.opError(op, nd.InvalidParameter, fmt.Sprintf("depth %d, allowed 1 to %d", depth, most), "choose a depth within the limits"))
	}
	if err := a.beforeCall(ctx, op, 0, 0); err != nil {
		return nil, err
	}
	return adopt[nd.CompletionQueue](a, op, kindQueue, newCompletionQueue(a, depth))
}

// CreateMemoryRegion makes a region without memory.
func (a *adapter) CreateMemoryRegion(ctx context.Context) (nd.MemoryRegion, error) {
	const op = "create memory region"
	r, err := a.newRegion(ctx, op)
	if err != nil {
		return nil, err
	}
	return adopt[nd.MemoryRegion](a, op, kindRegion, r)
}

// newRegion is CreateMemoryRegion for a region that another object owns.
func (a *adapter) newRegion(ctx context.Context, op string) (*memoryRegion, error) {
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
	const op = "create memory region"
	r, err := a.newRegion(ctx, op)
	if err != nil {
		return nil, err
	}
	if err := r.Register(ctx, buf, flags); err != nil {
		r.Close(ctx)
		return nil, err
	}
	return adopt[nd.MemoryRegion](a, op, kindRegion, r)
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
		return nil, argument("size", a.opError(op, nd.InvalidParameter, fmt.Sprintf("%d bytes", size), "ask for at least 1 byte"))
	case size == 0:
		return nil, a.opError(op, nd.InvalidBufferSize, fmt.Sprintf("%d bytes", size), "ask for at least 1 byte")
	case size > maxRegistration:
		return nil, argument("size", a.opError(op, nd.InvalidParameter, fmt.Sprintf("%d bytes, at most %d in one region", size, maxRegistration), "use several regions"))
	}
	node, hasNode := flags.Node()
	rights := flags
	if hasNode {
		rights &^= nd.OnNode(node)
	}
	if unknown := rights &^ allocateFlags; unknown != 0 {
		return nil, argument("flags", a.opError(op, nd.InvalidParameter, unknownFlags(unknown), useRegionFlags))
	}
	if err := a.beforeCall(ctx, op, uint64(size), 0); err != nil {
		return nil, err
	}
	if err := a.beginCall(ctx, op); err != nil {
		return nil, err
	}
	defer a.provider.waiters.EndCall()
	mr, err := a.newRegion(ctx, op)
	if err != nil {
		return nil, err
	}
	offset, got, lacks, err := a.provider.member.AllocPlaced(uint64(size), shm.Placement{HugePages: flags.Has(nd.HugePages), Node: node + 1})
	if err != nil {
		mr.Close(ctx)
		return nil, a.allocError(op, err)
	}
	buf, err := a.provider.arena.Bytes(offset, uint64(size))
	if err == nil {
		mr.allocation = memory.Add(a.provider.member, offset, buf)
		err = mr.placed(op, flags, lacks)
	}
	if err == nil {
		err = mr.register(ctx, buf, rights&^nd.HugePages)
	}
	if err != nil {
		mr.Close(ctx)
		return nil, err
	}
	if got.HugePages {
		mr.placement |= nd.HugePages
	}
	if got.Node != 0 {
		mr.placement |= nd.OnNode(node)
	}
	return adopt[nd.MemoryRegion](a, op, kindRegion, mr) // the last step: Close of the adapter would miss the memory of a region without it
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
	return adopt[nd.MemoryWindow](a, op, kindWindow, &memoryWindow{adapter: a, window: w, closeDone: make(chan struct{})})
}

// CreateConnector makes an unbound connector.
func (a *adapter) CreateConnector(ctx context.Context) (nd.Connector, error) {
	const op = "create connector"
	if err := a.checkUsable(ctx, op); err != nil {
		return nil, err
	}
	return adopt[nd.Connector](a, op, kindConnector, &connector{adapter: a})
}

// CreateListener makes an unbound listener.
func (a *adapter) CreateListener(ctx context.Context) (nd.Listener, error) {
	const op = "create listener"
	if err := a.checkUsable(ctx, op); err != nil {
		return nil, err
	}
	return adopt[nd.Listener](a, op, kindListener, &listener{adapter: a})
}
