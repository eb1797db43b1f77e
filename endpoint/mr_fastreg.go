package endpoint

import (
	"context"
	"fmt"
	"math"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

// fastRegisterPages is the largest number of pages of one fast registration,
// 16 MiB. A post checks the whole list while nothing else moves on its
// endpoint, and scattered pages may need a mapping each, of which the kernel
// allows a process some 65,000; more memory is better served by Register.
const fastRegisterPages = 4096

// InitializeFastRegister sets the region up for Endpoint.FastRegister.
func (r *MemoryRegion) InitializeFastRegister(ctx context.Context, pages int, remote bool) error {
	const op = "initialize fast register"
	switch {
	case pages < 1:
		return r.fail(op, nd.InvalidParameter1, fmt.Sprintf("%d pages", pages), "ask for at least 1 page")
	case pages > fastRegisterPages:
		return r.fail(op, nd.ImplementationLimit, fmt.Sprintf("%d pages, at most %d", pages, fastRegisterPages), "use several regions, or Register")
	case ctx.Err() != nil:
		return nd.CanceledError(ctx, op, "memory region")
	}
	if !r.adapter.provider.sleep.begin() {
		return r.fail(op, nd.InvalidHandle, "the provider is closed", "")
	}
	defer r.adapter.provider.sleep.end()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed.Load() {
		return r.fail(op, nd.InvalidHandle, "the region is closed", "create another")
	}
	if err := r.region.InitializeFast(); err != nil {
		return r.fail(op, nd.StatusOf(err), "the region is registered", "end the registration first")
	}
	r.pages, r.remote = pages, remote
	return nil
}

// fastLimits returns what InitializeFastRegister has set; 0 pages = nothing.
func (r *MemoryRegion) fastLimits() (pages int, remote bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pages, r.remote
}

// FastRegister posts the registration of pages in mr. The tokens are new when
// it returns, and valid when the request has run.
func (ep *Endpoint) FastRegister(reqCtx uint64, mr nd.MemoryRegion, pages []nd.LogicalPage, offset, length int, baseAddress uint64, rights nd.RegionFlags, flags nd.OpFlags) error {
	return ep.answer(ep.postFastRegister(reqCtx, mr, pages, offset, length, baseAddress, rights, flags))
}

func (ep *Endpoint) postFastRegister(reqCtx uint64, mr nd.MemoryRegion, pages []nd.LogicalPage, offset, length int, baseAddress uint64, rights nd.RegionFlags, flags nd.OpFlags) error {
	const op = "fast register"
	region, ok := mr.(*MemoryRegion)
	if !ok || region == nil || region.adapter != ep.adapter {
		return ep.fail(op, nd.InvalidParameter2, "the region is not of this adapter", "create it with the endpoint's adapter")
	}
	if !region.usable() {
		return ep.fail(op, nd.InvalidHandle, "the region is closed", "create another")
	}
	limit, remote := region.fastLimits()
	total := len(pages) * shm.PageSize
	switch {
	case limit == 0:
		return ep.fail(op, nd.InvalidParameter2, "the region is not set up for fast registration", "call InitializeFastRegister")
	case len(pages) == 0 || len(pages) > limit:
		return ep.fail(op, nd.InvalidParameter3, fmt.Sprintf("%d pages, from 1 to %d", len(pages), limit), "call InitializeFastRegister with more pages")
	case offset < 0 || offset >= total:
		return ep.fail(op, nd.InvalidParameter5, fmt.Sprintf("offset %d in pages of %d bytes", offset, total), "see LogicalMapping.Offset")
	case length < 1 || length > total-offset:
		return ep.fail(op, nd.InvalidParameter6, fmt.Sprintf("%d bytes from byte %d of %d on", length, offset, total), "pass the pages of all bytes")
	case baseAddress == 0 || baseAddress > math.MaxUint64-uint64(length):
		return ep.fail(op, nd.InvalidParameter7, fmt.Sprintf("base address %#x for %d bytes", baseAddress, length), "choose an address above 0 that leaves room for the length")
	case rights&^nd.AllRegionFlags != 0 || flags&^nd.RequestFastRegister.AllowedFlags() != 0:
		return ep.fail(op, nd.InvalidParameter8, fmt.Sprintf("rights %v, flags %v", rights, flags), "use the nd.RegionFlags constants, and only flags that FastRegister takes")
	case (rights.RemoteRead() || rights.RemoteWrite()) && !remote:
		return ep.fail(op, nd.AccessViolation, fmt.Sprintf("rights %v for a region without remote access", rights), "call InitializeFastRegister with remote true")
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	r, err := ep.newRequest(op, nd.RequestFastRegister, flags, reqCtx)
	if err != nil {
		return err
	}
	held, err := ep.hold(pages, offset, length)
	if err != nil {
		return err
	}
	r.loan = region.region
	r.binding = region.region.Prepare(held.mem, baseAddress, rights, ep.number, held.release)
	ep.enqueue(r)
	return nil
}

// holding is the memory of a fast registration, and what it needs to stay there.
type holding struct {
	mem      []byte
	mappings []*LogicalMapping // each as often as it is used
	alias    *shm.Alias        // where pages that lie apart are side by side; nil = they are neighbours
}

// hold checks that the pages are the adapter's, and keeps their mappings open.
func (ep *Endpoint) hold(pages []nd.LogicalPage, offset, length int) (h *holding, err error) {
	const op = "fast register"
	h = &holding{}
	defer func() {
		if err != nil {
			h.release()
		}
	}()
	list := &ep.provider.mappings
	list.mu.Lock()
	defer list.mu.Unlock()
	var last *LogicalMapping
	for i, page := range pages {
		// The part of the page that is wanted; none if the range has not begun, or has ended.
		lo := min(max(offset-i*shm.PageSize, 0), shm.PageSize)
		hi := max(min(offset+length-i*shm.PageSize, shm.PageSize), lo)
		at := shm.Offset(page)
		if last != nil && at%shm.PageSize == 0 && at+shm.Offset(lo) >= last.start && at+shm.Offset(hi) <= last.end && at < last.end {
			continue // mostly all pages are of one mapping
		}
		m, known := list.hold(ep.adapter, at, shm.Offset(lo), shm.Offset(hi))
		switch {
		case !known:
			return h, ep.fail(op, nd.InvalidParameter4, fmt.Sprintf("page %d of %d is in no open mapping of the adapter", i, len(pages)), "pass pages from LogicalMapping.Pages")
		case m == nil && i == offset/shm.PageSize && !list.has(ep.adapter, at, shm.Offset(lo)):
			return h, ep.fail(op, nd.InvalidParameter5, fmt.Sprintf("byte %d of page %d was not mapped", lo, i), "see LogicalMapping.Offset")
		case m == nil:
			return h, ep.fail(op, nd.InvalidParameter6, fmt.Sprintf("%d bytes leave the mapped part of page %d", length, i), "map all bytes that are to be registered")
		}
		h.mappings = append(h.mappings, m)
		last = m
	}
	return h, h.gather(ep, pages[offset/shm.PageSize:(offset+length-1)/shm.PageSize+1], offset%shm.PageSize, length)
}

// gather finds the memory of the pages: where it is, if they are neighbours,
// else where it is mapped side by side.
func (h *holding) gather(ep *Endpoint, pages []nd.LogicalPage, offset, length int) error {
	offsets := make([]shm.Offset, len(pages))
	neighbours := true
	for i, page := range pages {
		offsets[i] = shm.Offset(page)
		neighbours = neighbours && offsets[i] == offsets[0]+shm.Offset(i*shm.PageSize)
	}
	var err error
	if neighbours {
		h.mem, err = ep.provider.arena.Bytes(offsets[0]+shm.Offset(offset), uint64(length))
		return err
	}
	if h.alias, err = ep.provider.arena.NewAlias(offsets); err != nil {
		return &nd.OpError{Op: "fast register", Object: ep.String(), Status: nd.InsufficientResources, Err: err}
	}
	h.mem = h.alias.Bytes()[offset:][:length]
	return nil
}

func (h *holding) release() {
	if h.alias != nil {
		_ = h.alias.Close() // of addresses that are ours it cannot fail
	}
	for _, m := range h.mappings {
		m.uses.Add(-1)
	}
}

// InvalidateRegion posts the end of a fast registration.
func (ep *Endpoint) InvalidateRegion(reqCtx uint64, mr nd.MemoryRegion, flags nd.OpFlags) error {
	return ep.answer(ep.postInvalidateRegion(reqCtx, mr, flags))
}

func (ep *Endpoint) postInvalidateRegion(reqCtx uint64, mr nd.MemoryRegion, flags nd.OpFlags) error {
	const op = "invalidate region"
	region, ok := mr.(*MemoryRegion)
	if !ok || region == nil || region.adapter != ep.adapter {
		return ep.fail(op, nd.InvalidParameter2, "the region is not of this adapter", "")
	}
	if !region.usable() {
		return ep.fail(op, nd.InvalidHandle, "the region is closed", "")
	}
	if !region.region.Fast() {
		return ep.fail(op, nd.InvalidDeviceRequest, "the region is not set up for fast registration", "use MemoryRegion.Deregister")
	}
	return ep.takeBack(op, region.region, reqCtx, flags)
}

// lendsSink finds what a Read with ReadLocalInvalidate is to take back. false
// means that there is nothing, and that r has been rejected: no request ends
// the registration of a plain region.
func (ep *Endpoint) lendsSink(r *request) bool {
	e := r.entries[0]
	if r.loan = ep.adapter.space.FindLocal(e.token, ep.number); r.loan != nil {
		return true
	}
	own(&ep.sink, e, window.Write)
	if f := ep.guard.Check(&ep.sink, uint64(e.length)); f != window.NoFault {
		ep.ownFault(r, e, f)
	} else {
		ep.reject(r, nd.InvalidDeviceRequest, "local %v is not that of a region fast-registered on this endpoint", e.token)
	}
	return false
}

// takeBackSink follows a Read with ReadLocalInvalidate whose data is there, or
// is on its way through the ring: it invalidates the first entry's region before
// the Read succeeds.
func (ep *Endpoint) takeBackSink(r *request) outcome {
	switch {
	case r.loan == nil, r.finished && r.status != nd.Success, r.finished && r.drain != 0:
		return ready // nothing to take back, failed, or done
	case r.awaited && int64(ep.conn.out.Consumed()-r.end) < 0:
		return waits
	}
	r.finished = false
	return ep.executeInvalidate(r)
}

// described words what a loan is that cannot be given or taken back.
func described(l window.Loan) string {
	if _, ok := l.(*window.Region); ok {
		return "region is registered"
	}
	return "window is bound"
}
