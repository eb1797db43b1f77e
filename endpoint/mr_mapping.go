package endpoint

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// A LogicalMapping lists the pages behind a part of the member's own arena
// memory. The address of a page, as the adapter counts, is its offset in the
// arena. Safe for concurrent use.
type LogicalMapping struct {
	adapter    *Adapter
	start, end shm.Offset
	pages      []nd.LogicalPage
	region     *MemoryRegion // through which the privileged token reaches the memory
	uses       atomic.Int32  // fast registrations, those to come included; goes up under mappings.mu
	closing    atomic.Bool   // no more of them; set under mappings.mu
}

// mappings are those of a provider's adapters that are open.
type mappings struct {
	mu      sync.Mutex                        // held to change the rest
	live    atomic.Pointer[[]*LogicalMapping] // replaced as a whole
	blocked []chore                           // of closed regions whose memory is mapped; retried when a mapping goes
}

// BuildLogicalAddressMapping lists the pages of buf, which must lie in memory
// from Adapter.Allocate of this provider: nothing else has an address that the
// adapter knows.
func (a *Adapter) BuildLogicalAddressMapping(ctx context.Context, buf []byte) (nd.LogicalMapping, error) {
	const op = "build logical address mapping"
	p := a.provider
	if err := a.begin(ctx, op); err != nil {
		return nil, err
	}
	defer p.sleep.end()
	start, ok := p.arena.Locate(buf)
	switch {
	case len(buf) == 0:
		return nil, a.fail(op, nd.InvalidParameter, "an empty buffer", "map at least 1 byte")
	case !ok || !p.member.Owns(start, uint64(len(buf))):
		return nil, a.fail(op, nd.InvalidParameter, fmt.Sprintf("%d bytes that are no memory of the adapter", len(buf)), "map memory from Adapter.Allocate")
	}
	region, err := a.Register(ctx, buf, nd.AllowLocalWrite)
	if err != nil {
		return nil, err
	}
	m := &LogicalMapping{adapter: a, start: start, end: start + shm.Offset(len(buf)), region: region.(*MemoryRegion)}
	for page := start - start%shm.PageSize; page < m.end; page += shm.PageSize {
		m.pages = append(m.pages, nd.LogicalPage(page))
	}
	p.mappings.mu.Lock()
	known := p.member.Owns(start, uint64(len(buf))) // it may have been freed meanwhile, but cannot be from here on
	if known {
		p.mappings.live.Store(with(p.mappings.live.Load(), m))
	}
	p.mappings.mu.Unlock()
	if !known {
		return nil, errors.Join(a.fail(op, nd.InvalidParameter, "memory that has just been freed", "map memory of a region that is open"), region.Close())
	}
	return m, nil
}

// Pages returns the pages in the order of the buffer.
func (m *LogicalMapping) Pages() []nd.LogicalPage { return m.pages }

// PageSize returns the bytes per page.
func (m *LogicalMapping) PageSize() int { return shm.PageSize }

// Offset returns where in the first page the buffer starts.
func (m *LogicalMapping) Offset() int { return int(m.start % shm.PageSize) }

// Close is CloseContext without a limit.
func (m *LogicalMapping) Close() error { return m.CloseContext(context.Background()) }

// CloseContext gives the mapping up, unless a fast registration still uses its pages.
// When it returns nil, no transfer uses the memory under the privileged token. If ctx
// ends first, the mapping is closing, and another call waits for the rest.
func (m *LogicalMapping) CloseContext(ctx context.Context) error {
	p := m.adapter.provider
	if !p.sleep.begin() {
		return nil // the member's departure returns all that it owned
	}
	defer p.sleep.end()
	p.settleDeliveries(m.adapter)
	p.doChores() // one may end a registration
	p.mappings.mu.Lock()
	if n := m.uses.Load(); n > 0 {
		p.mappings.mu.Unlock()
		return &nd.OpError{Op: "close", Object: "logical mapping", Status: nd.DeviceBusy,
			Detail: fmt.Sprintf("%d fast registrations use its pages", n), Next: "invalidate them with Endpoint.InvalidateRegion first"}
	}
	m.closing.Store(true)
	p.mappings.mu.Unlock()
	if err := m.region.CloseContext(ctx); err != nil {
		return err
	}
	// Only now: as long as anybody may use it, the memory must stay allocated.
	p.mappings.mu.Lock()
	p.mappings.live.Store(without(p.mappings.live.Load(), m))
	blocked := p.mappings.blocked
	p.mappings.blocked = nil
	p.mappings.mu.Unlock()
	for _, c := range blocked {
		p.later(c)
	}
	return nil
}

// hold finds the mapping of an adapter that has the bytes [lo, hi) of a page,
// and keeps it. The caller holds l.mu. known tells whether the page belongs to
// any mapping of the adapter at all.
func (l *mappings) hold(a *Adapter, page, lo, hi shm.Offset) (m *LogicalMapping, known bool) {
	for _, m := range *l.live.Load() {
		if m.adapter != a || m.closing.Load() || page%shm.PageSize != 0 || page >= m.end || page+shm.PageSize <= m.start {
			continue
		}
		if known = true; lo == hi || page+lo >= m.start && page+hi <= m.end {
			m.uses.Add(1)
			return m, true
		}
	}
	return nil, known
}

// has tells whether byte lo of a page is mapped by the adapter. The caller
// holds l.mu.
func (l *mappings) has(a *Adapter, page, lo shm.Offset) bool {
	m, _ := l.hold(a, page, lo, lo+1)
	if m == nil {
		return false
	}
	m.uses.Add(-1)
	return true
}

// use tells whether some mapping lies in n bytes at off. The caller holds l.mu.
func (l *mappings) use(off shm.Offset, n uint64) bool {
	for _, m := range *l.live.Load() {
		if m.start >= off && m.start < off+shm.Offset(n) {
			return true
		}
	}
	return false
}

// PrivilegedToken returns the local token that stands for the memory of all
// live mappings of the adapter.
func (a *Adapter) PrivilegedToken() (nd.Token, error) {
	const op = "get privileged token"
	if err := a.begin(context.Background(), op); err != nil {
		return 0, err
	}
	defer a.provider.sleep.end()
	a.naming.Lock()
	defer a.naming.Unlock()
	if a.privileged.Load() == 0 {
		name, err := a.space.Name()
		if err != nil {
			return 0, a.shortage(op, err)
		}
		a.privileged.Store(uint32(name))
	}
	return nd.Token(a.privileged.Load()), nil
}

// resolve puts, in place of the privileged token, the token of the mapping that
// an entry lies in. So nothing ever moves under the privileged token itself,
// and each mapping ends on its own. An entry that no
// mapping covers keeps the token, and is refused when it is used.
func (a *Adapter) resolve(entries []entry) {
	privileged := nd.Token(a.privileged.Load())
	if privileged == 0 {
		return
	}
	for i := range entries {
		e := &entries[i]
		if e.token != privileged {
			continue
		}
		for _, m := range *a.provider.mappings.live.Load() {
			at := m.region.Address() // 0 if the mapping has just been closed
			if size := uint64(m.end - m.start); m.adapter == a && at != 0 && e.address >= at && uint64(e.length) <= size && e.address-at <= size-uint64(e.length) {
				e.token = m.region.LocalToken()
				break
			}
		}
	}
}
