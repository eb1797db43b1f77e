package endpoint

// TWIN c/src/endpoint/mr_fastreg.c, c/src/endpoint/req_bind.c.

import (
	"context"
	"fmt"
	"math"

	"github.com/softnd/softnd/endpoint/internal/mode"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// fastRegisterPages is the largest number of pages of one fast registration: 16 MiB. A post
// checks the whole list while its endpoint is locked. Scattered pages may need a kernel mapping
// each, and the kernel allows a process about 65,000. Register suits more memory better.
const fastRegisterPages = 4096

// InitializeFastRegister prepares the region for queuePair.FastRegister.
func (r *memoryRegion) InitializeFastRegister(ctx context.Context, pages int, remote bool) error {
	const op = "initialize fast register"
	switch {
	case pages < 1:
		return argument("pages", r.opError(op, nd.InvalidParameter, fmt.Sprintf("%d pages", pages), "ask for at least 1 page"))
	case pages > fastRegisterPages:
		return r.opError(op, nd.ImplementationLimit, fmt.Sprintf("%d pages, at most %d", pages, fastRegisterPages), "use several regions, or Register")
	case ctx.Err() != nil:
		return nd.CanceledError(ctx, op, "memory region")
	}
	if !r.adapter.provider.waiters.BeginCall() {
		return r.opError(op, nd.InvalidHandle, "the provider is closed", "")
	}
	defer r.adapter.provider.waiters.EndCall()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed.Load() {
		return r.opError(op, nd.InvalidHandle, "the region is closed", "create another")
	}
	if err := r.region.InitializeFastRegister(); err != nil {
		return r.opError(op, nd.StatusOf(err), "the region is registered", "end the registration first")
	}
	r.maxPages, r.remoteAllowed = pages, remote
	return nil
}

// FastRegister posts the registration of pages in a region. The tokens are known when it returns, and
// valid when the request has been executed.
func (ep *queuePair) FastRegister(reqCtx uint64, f nd.FastRegistration, flags nd.OpFlags) error {
	return ep.submitOnError(ep.postFastRegister(reqCtx, f, flags))
}

func (ep *queuePair) postFastRegister(reqCtx uint64, f nd.FastRegistration, flags nd.OpFlags) error {
	const op = "fast register"
	region, ok := f.Region.(*memoryRegion)
	if !ok || region == nil || region.adapter != ep.adapter {
		return argument("Region", ep.opError(op, nd.InvalidParameter, "the region is not of this adapter", "create it with the endpoint's adapter"))
	}
	if !region.isOpen() {
		return ep.opError(op, nd.InvalidHandle, "the region is closed", "create another")
	}
	limit, remote := region.fastLimits()
	total := len(f.Pages) * shm.PageSize
	switch {
	case limit == 0:
		return argument("Region", ep.opError(op, nd.InvalidParameter, "the region is not set up for fast registration", "call InitializeFastRegister"))
	case len(f.Pages) == 0 || len(f.Pages) > limit:
		return argument("len(Pages)", ep.opError(op, nd.InvalidParameter, fmt.Sprintf("%d pages, from 1 to %d", len(f.Pages), limit), "call InitializeFastRegister with more pages"))
	case f.Offset < 0 || f.Offset >= total:
		return argument("Offset", ep.opError(op, nd.InvalidParameter, fmt.Sprintf("offset %d in pages of %d bytes", f.Offset, total), "see LogicalMapping.Offset"))
	case f.Length < 1 || f.Length > total-f.Offset:
		return argument("Length", ep.opError(op, nd.InvalidParameter, fmt.Sprintf("%d bytes at offset %d of %d", f.Length, f.Offset, total), "pass all pages of the range"))
	case f.BaseAddress == 0 || f.BaseAddress > math.MaxUint64-uint64(f.Length):
		return argument("BaseAddress", ep.opError(op, nd.InvalidParameter, fmt.Sprintf("base address %#x for %d bytes", f.BaseAddress, f.Length), "choose an address above 0 that leaves room for the length"))
	case f.Rights&^regionFlags != 0 || flags&^nd.RequestFastRegister.AllowedFlags() != 0:
		return argument("Rights, flags", ep.opError(op, nd.InvalidParameter, fmt.Sprintf("rights %v, flags %v", f.Rights, flags), "use the nd.RegionFlags constants, and only flags that FastRegister takes"))
	case (f.Rights.RemoteRead() || f.Rights.RemoteWrite() || f.Rights.RemoteAtomic()) && !remote:
		return ep.opError(op, nd.AccessViolation, fmt.Sprintf("rights %v for a region without remote access", f.Rights), "call InitializeFastRegister with remote true")
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	r, err := ep.newRequest(op, nd.RequestFastRegister, flags, reqCtx)
	if err != nil {
		return err
	}
	held, err := ep.pinPages(f.Pages, f.Offset, f.Length)
	if err != nil {
		return err
	}
	r.Object = &region.region.Invalidatable
	r.binding = region.region.PrepareFastRegister(held.bytes, f.BaseAddress, f.Rights, ep.number, held.release)
	return ep.post(r)
}

// pinnedPages is the memory of a fast registration, and the mappings that keep it in place.
type pinnedPages struct {
	bytes    []byte
	mappings []*logicalMapping // one entry for each time that a mapping is used
	unmap    func() error      // removes the adjacent mapping of pages that are not adjacent in the arena; nil = they are adjacent
}

// pinPages checks that the pages are the adapter's, and keeps their mappings open.
func (ep *queuePair) pinPages(pages []nd.LogicalPage, offset, length int) (h *pinnedPages, err error) {
	const op = "fast register"
	h = &pinnedPages{}
	defer func() {
		if err != nil {
			h.release()
		}
	}()
	list := &ep.provider.mappings
	list.mu.Lock()
	defer list.mu.Unlock()
	var last *logicalMapping
	for i, page := range pages {
		// The requested part of the page; empty if the range has not begun or has ended.
		lo := min(max(offset-i*shm.PageSize, 0), shm.PageSize)
		hi := max(min(offset+length-i*shm.PageSize, shm.PageSize), lo)
		at := shm.Offset(page)
		if last != nil && at%shm.PageSize == 0 && at+shm.Offset(lo) >= last.start && at+shm.Offset(hi) <= last.end && at < last.end {
			continue // usually all pages are of one mapping
		}
		m, known := list.acquire(ep.adapter, at, shm.Offset(lo), shm.Offset(hi))
		switch {
		case !known:
			return h, argument("Pages", ep.opError(op, nd.InvalidParameter, fmt.Sprintf("page %d of %d is in no open mapping of the adapter", i, len(pages)), "pass pages from LogicalMapping.Pages"))
		case m == nil && i == offset/shm.PageSize && !list.contains(ep.adapter, at, shm.Offset(lo)):
			return h, argument("Offset", ep.opError(op, nd.InvalidParameter, fmt.Sprintf("byte %d of page %d is not mapped", lo, i), "see LogicalMapping.Offset"))
		case m == nil:
			return h, argument("Length", ep.opError(op, nd.InvalidParameter, fmt.Sprintf("%d bytes extend beyond the mapped part of page %d", length, i), "map all bytes to register"))
		}
		h.mappings = append(h.mappings, m)
		last = m
	}
	return h, h.mapPages(ep, pages[offset/shm.PageSize:(offset+length-1)/shm.PageSize+1], offset%shm.PageSize, length)
}

// mapPages finds the memory of the pages. If they are not adjacent in the arena, it maps them
// adjacently.
func (h *pinnedPages) mapPages(ep *queuePair, pages []nd.LogicalPage, offset, length int) error {
	offsets := make([]shm.Offset, len(pages))
	neighbours := true
	for i, page := range pages {
		offsets[i] = shm.Offset(page)
		neighbours = neighbours && offsets[i] == offsets[0]+shm.Offset(i*shm.PageSize)
	}
	var err error
	if neighbours {
		h.bytes, err = ep.provider.arena.Bytes(offsets[0]+shm.Offset(offset), uint64(length))
		return err
	}
	if h.bytes, h.unmap, err = ep.provider.arena.MapPages(offsets); err != nil {
		return &nd.OpError{Op: "fast register", Object: ep.String(), Status: nd.InsufficientResources, Err: err}
	}
	h.bytes = h.bytes[offset:][:length]
	return nil
}

func (h *pinnedPages) release() {
	if h.unmap != nil {
		_ = h.unmap() // it cannot fail for a mapping of this process
	}
	for _, m := range h.mappings {
		if m.registrations.Add(-1) == 0 && m.closing.Load() {
			m.adapter.provider.waiters.Wake() // Close waits for this
		}
	}
}

// InvalidateRegion posts the end of a fast registration.
func (ep *queuePair) InvalidateRegion(reqCtx uint64, mr nd.MemoryRegion, flags nd.OpFlags) error {
	return ep.submitOnError(ep.postInvalidateRegion(reqCtx, mr, flags))
}

func (ep *queuePair) postInvalidateRegion(reqCtx uint64, mr nd.MemoryRegion, flags nd.OpFlags) error {
	const op = "invalidate region"
	region, ok := mr.(*memoryRegion)
	if !ok || region == nil || region.adapter != ep.adapter {
		return argument("mr", ep.opError(op, nd.InvalidParameter, "the region is not of this adapter", ""))
	}
	if !region.isOpen() {
		return ep.opError(op, nd.InvalidHandle, "the region is closed", "")
	}
	if pages, _ := region.fastLimits(); pages == 0 {
		return ep.opError(op, nd.InvalidDeviceRequest, "the region is not set up for fast registration", "use MemoryRegion.Deregister")
	}
	return ep.postInvalidation(op, &region.region.Invalidatable, reqCtx, flags)
}

// invalidateSink follows a Read with ReadLocalInvalidate whose data has arrived or is on its way
// through the ring. It invalidates the first entry's region before the Read succeeds.
func (ep *queuePair) invalidateSink(r *request) outcome {
	switch {
	case r.Object == nil, r.State == mode.Finished && r.Status != nd.Success:
		return executed // nothing to invalidate, failed, or done
	case r.needsAck && !ep.conn.out.IsReleased(r.EndEntry):
		return blocked
	}
	if ep.hook != nil {
		ep.hook.Arrived(&r.Request)
	}
	if r.Status != nd.Success {
		return executed
	}
	r.State = mode.Waiting
	return ep.executeInvalidate(r)
}
