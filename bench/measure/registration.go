package measure

import (
	"context"
	"time"

	"github.com/softnd/softnd/nd"
)

const registrationRights = nd.AllowLocalWrite | nd.AllowRemoteRead | nd.AllowRemoteWrite

// registrar registers the same memory in several regions, all at a time, and
// deregisters it from them.
type registrar struct {
	ctx     context.Context
	regions []nd.MemoryRegion
	buf     []byte
}

func newRegistrar(ctx context.Context, ad nd.Adapter, regions, size int) (*registrar, error) {
	r := &registrar{ctx: ctx, buf: make([]byte, size)}
	for i := 0; i < size; i += pageBytes {
		r.buf[i] = 1 // so that the memory is there
	}
	for range regions {
		mr, err := ad.CreateMemoryRegion(ctx)
		if err != nil {
			r.close()
			return nil, err
		}
		r.regions = append(r.regions, mr)
	}
	return r, nil
}

const pageBytes = 4096

func (r *registrar) register(mr nd.MemoryRegion) error {
	return mr.Register(r.ctx, r.buf, registrationRights)
}

func (r *registrar) deregister(mr nd.MemoryRegion) error { return mr.Deregister(r.ctx) }

func (r *registrar) close() error { return each(r.regions, nd.MemoryRegion.Close) }

// apart times n registrations and n deregistrations, each kind for itself.
func (r *registrar) apart(n int) (register, deregister time.Duration, err error) {
	return batches(n, r.regions, r.register, r.deregister)
}

// allocator allocates regions of the arena, several at a time, and gives them back.
type allocator struct {
	ctx     context.Context
	adapter nd.Adapter
	size    int
	regions []nd.MemoryRegion
}

func (a *allocator) allocate(int) (err error) {
	mr, err := a.adapter.Allocate(a.ctx, a.size, registrationRights)
	if err == nil {
		a.regions = append(a.regions, mr)
	}
	return err
}

func (a *allocator) free(int) error {
	last := len(a.regions) - 1
	mr := a.regions[last]
	a.regions = a.regions[:last]
	return mr.Close()
}

func (a *allocator) apart(n int) (allocate, free time.Duration, err error) {
	return batches(n, make([]int, allocatedAtOnce(a.size)), a.allocate, a.free)
}

// allocatedAtOnce is how many regions exist at the same time: as many as make
// looking at the clock cheap, of small ones, and not many of large ones.
func allocatedAtOnce(size int) int { return min(max(mostAllocated/size, 1), 64) }

const mostAllocated = 32 << 20

// batches does two things alternately to n objects, to all of a batch the one
// and then to all the other, and times each kind for itself. The clock is
// looked at once a batch.
func batches[T any](n int, batch []T, do, undo func(T) error) (doing, undoing time.Duration, err error) {
	for n > 0 {
		now := batch[:min(n, len(batch))]
		n -= len(now)
		start := time.Now()
		if err := each(now, do); err != nil {
			return 0, 0, err
		}
		middle := time.Now()
		if err := each(now, undo); err != nil {
			return 0, 0, err
		}
		doing += middle.Sub(start)
		undoing += time.Since(middle)
	}
	return doing, undoing, nil
}

// each calls f with every element until one fails.
func each[T any](list []T, f func(T) error) error {
	for _, v := range list {
		if err := f(v); err != nil {
			return err
		}
	}
	return nil
}
