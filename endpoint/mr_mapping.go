package endpoint

// TWIN c/src/endpoint/mr_mapping.c.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// logicalMapping lists the pages of a part of the member's arena memory. The address of a page
// is its offset in the arena. Safe for concurrent use.
type logicalMapping struct {
	nd.UnsupportedLogicalMapping
	adapter       *adapter
	start, end    shm.Offset
	pages         []nd.LogicalPage
	region        *memoryRegion // region for requests that use the privileged token
	registrations atomic.Int32  // fast registrations, also posted ones; incremented under mappings.mu
	closing       atomic.Bool   // no further registrations; set under mappings.mu
}

// mappings holds the open mappings of a provider's adapters.
type mappings struct {
	mu   sync.Mutex                        // held to change the list
	list atomic.Pointer[[]*logicalMapping] // replaced as a whole
}

// BuildLogicalAddressMapping lists the pages of buf. buf must be memory from Adapter.Allocate of
// this provider: the adapter knows no address of other memory.
func (a *adapter) BuildLogicalAddressMapping(ctx context.Context, buf []byte) (nd.LogicalMapping, error) {
	const op = "build logical address mapping"
	p := a.provider
	if err := a.beginCall(ctx, op); err != nil {
		return nil, err
	}
	defer p.waiters.EndCall()
	start, ok := p.arena.Locate(buf)
	switch {
	case len(buf) == 0:
		return nil, argument("buf", a.opError(op, nd.InvalidParameter, "an empty buffer", "map at least 1 byte"))
	case !ok || !p.member.Owns(start, uint64(len(buf))):
		return nil, argument("buf", a.opError(op, nd.InvalidParameter, fmt.Sprintf("%d bytes outside the adapter's memory", len(buf)), "map memory from Adapter.Allocate"))
	}
	region, err := a.newRegion(ctx, op)
	if err != nil {
		return nil, err
	}
	err = region.register(ctx, buf, nd.AllowLocalWrite) // not Register: the program does not register memory
	if errors.Is(err, nd.AccessViolation) {
		err = argument("buf", a.opError(op, nd.InvalidParameter, fmt.Sprintf("%d bytes of which a part is freed", len(buf)), "map memory of open regions"))
	}
	if err != nil {
		return nil, errors.Join(err, region.Close(ctx))
	}
	m := &logicalMapping{adapter: a, start: start, end: start + shm.Offset(len(buf)), region: region}
	for page := start - start%shm.PageSize; page < m.end; page += shm.PageSize {
		m.pages = append(m.pages, nd.LogicalPage(page))
	}
	p.mappings.mu.Lock()
	p.mappings.list.Store(with(p.mappings.list.Load(), m))
	p.mappings.mu.Unlock()
	return adopt[nd.LogicalMapping](a, op, kindMapping, m)
}

// Pages returns the pages in the order of the buffer.
func (m *logicalMapping) Pages() []nd.LogicalPage { return m.pages }

// PageSize returns the number of bytes per page.
func (m *logicalMapping) PageSize() int { return shm.PageSize }

// Offset returns the offset of the buffer in the first page.
func (m *logicalMapping) Offset() int { return int(m.start % shm.PageSize) }

// Close closes the mapping. It fails with nd.DeviceBusy while a fast registration uses its pages. After
// Close of the adapter, which ends the registration, it waits for that instead. When it returns nil, no
// transfer uses the memory under the privileged token. If ctx ends first, the mapping is closing, and
// another call waits for the rest.
func (m *logicalMapping) Close(ctx context.Context) error {
	const op, object = "close", "logical mapping"
	p := m.adapter.provider
	if !p.waiters.BeginCall() {
		return nil // the member's departure frees all that it owned
	}
	defer p.waiters.EndCall()
	p.settleDeliveries(m.adapter)
	p.deferred.Run() // it may end a registration
	p.mappings.mu.Lock()
	if n := m.registrations.Load(); n > 0 && !m.adapter.closed.Load() {
		p.mappings.mu.Unlock()
		return &nd.OpError{Op: op, Object: object, Status: nd.DeviceBusy,
			Detail: fmt.Sprintf("%d fast registrations use its pages", n), Next: "invalidate them with Endpoint.InvalidateRegion first"}
	}
	m.closing.Store(true)
	p.mappings.mu.Unlock()
	if err := p.wait(ctx, statuspage.Call{Op: op, Object: object}, p.deferred.Run, func() bool { return m.registrations.Load() == 0 }); err != nil {
		return drainError(ctx, err, op, object)
	}
	if err := m.region.Close(ctx); err != nil {
		return err
	}
	p.mappings.mu.Lock()
	p.mappings.list.Store(without(p.mappings.list.Load(), m))
	p.mappings.mu.Unlock()
	m.adapter.disown(kindMapping, m)
	return nil
}

// acquire finds the mapping of an adapter that contains the bytes from lo to hi of a page, hi
// excluded. It keeps the mapping open. known reports whether any mapping of the adapter contains
// a part of the page. The caller holds l.mu.
func (l *mappings) acquire(a *adapter, page, lo, hi shm.Offset) (m *logicalMapping, known bool) {
	for _, m := range *l.list.Load() {
		if m.adapter != a || m.closing.Load() || page%shm.PageSize != 0 || page >= m.end || page+shm.PageSize <= m.start {
			continue
		}
		if known = true; lo == hi || page+lo >= m.start && page+hi <= m.end {
			m.registrations.Add(1)
			return m, true
		}
	}
	return nil, known
}

// contains reports whether byte lo of a page is mapped by the adapter. The caller holds l.mu.
func (l *mappings) contains(a *adapter, page, lo shm.Offset) bool {
	m, _ := l.acquire(a, page, lo, lo+1)
	if m == nil {
		return false
	}
	m.registrations.Add(-1)
	return true
}

// PrivilegedToken returns the local token for the memory of all open mappings of the adapter.
func (a *adapter) PrivilegedToken() (nd.Token, error) {
	const op = "get privileged token"
	if err := a.beginCall(context.Background(), op); err != nil {
		return 0, err
	}
	defer a.provider.waiters.EndCall()
	a.privilegedMu.Lock()
	defer a.privilegedMu.Unlock()
	if a.privileged.Load() == 0 {
		name, err := a.domain.ReserveToken()
		if err != nil {
			return 0, a.allocError(op, err)
		}
		a.privileged.Store(uint32(name))
	}
	return nd.Token(a.privileged.Load()), nil
}

// resolvePrivileged replaces the privileged token in entries by the token of the mapping that
// contains the entry. So no transfer uses the privileged token itself, and each mapping can be
// drained on its own. An entry outside all mappings keeps the token and fails when it is used.
func (a *adapter) resolvePrivileged(entries []wire.SGE) {
	privileged := nd.Token(a.privileged.Load())
	if privileged == 0 {
		return
	}
	for i := range entries {
		e := &entries[i]
		if e.Token != privileged {
			continue
		}
		for _, m := range *a.provider.mappings.list.Load() {
			at := m.region.Address() // 0 if the mapping was just closed
			if size := uint64(m.end - m.start); m.adapter == a && at != 0 && e.Address >= at && uint64(e.Length) <= size && e.Address-at <= size-uint64(e.Length) {
				e.Token = m.region.LocalToken()
				break
			}
		}
	}
}
