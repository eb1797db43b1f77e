package ndtest

import "github.com/softnd/softnd/nd"

// region is a memory region and its memory.
type region struct {
	mr  nd.MemoryRegion
	mem []byte // also after Deregister
}

// sge returns a list of one entry: n bytes of the region at offset off.
func (r *region) sge(off, n int) nd.SGL {
	return nd.One(nd.SGE{Buffer: r.mem[off : off+n], Token: r.mr.LocalToken()})
}

// descriptor describes the whole region with its own remote token.
func (r *region) descriptor() nd.WindowDescriptor {
	return nd.WindowDescriptor{Address: r.mr.Address(), Length: uint64(len(r.mem)), Token: r.mr.RemoteToken()}
}

const allRights = nd.AllowLocalWrite | nd.AllowRemoteRead | nd.AllowRemoteWrite

// region returns a registered region of the kind of memory that the run tests.
func (s *side) region(size int, flags nd.RegionFlags) *region {
	if s.PrivateMemory {
		return s.register(make([]byte, size), flags)
	}
	mr, err := s.ad.Allocate(s.ctx, size, flags)
	s.must(err)
	s.cleanup(func() { mr.Close(s.ctx) })
	return &region{mr, mr.Bytes()}
}

// register registers mem, which may also be registered with another region.
func (s *side) register(mem []byte, flags nd.RegionFlags) *region {
	mr, err := s.ad.Register(s.ctx, mem, flags)
	s.must(err)
	s.cleanup(func() { mr.Close(s.ctx) })
	return &region{mr, mem}
}

// emptyRegion creates a region that is not registered.
func (s *side) emptyRegion() nd.MemoryRegion {
	mr, err := s.ad.CreateMemoryRegion(s.ctx)
	s.must(err)
	s.cleanup(func() { mr.Close(s.ctx) })
	return mr
}

// newWindow creates a memory window.
func (s *side) newWindow() nd.MemoryWindow {
	w, err := s.ad.CreateMemoryWindow(s.ctx)
	s.must(err)
	s.cleanup(func() { w.Close(s.ctx) })
	return w
}
