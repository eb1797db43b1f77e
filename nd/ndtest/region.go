package ndtest

import "github.com/softnd/softnd/nd"

// region is registered memory.
type region struct {
	mr  nd.MemoryRegion
	mem []byte // stays known when it is deregistered
}

// sge names n bytes of the region from off on.
func (r *region) sge(off, n int) []nd.SGE {
	return []nd.SGE{{Buffer: r.mem[off : off+n], Token: r.mr.LocalToken()}}
}

// descriptor is what a peer needs for the region's own remote token.
func (r *region) descriptor() nd.WindowDescriptor {
	return nd.WindowDescriptor{Address: r.mr.Address(), Length: uint64(len(r.mem)), Token: r.mr.RemoteToken()}
}

const allRights = nd.AllowLocalWrite | nd.AllowRemoteRead | nd.AllowRemoteWrite

// region creates and registers memory of the kind that this run is about.
func (s *side) region(size int, flags nd.RegionFlags) *region {
	if s.PrivateMemory {
		return s.register(make([]byte, size), flags)
	}
	mr, err := s.ad.Allocate(s.ctx, size, flags)
	s.must(err)
	s.cleanup(func() { mr.Close() })
	return &region{mr, mr.Bytes()}
}

// register registers memory that another region may hold as well.
func (s *side) register(mem []byte, flags nd.RegionFlags) *region {
	mr, err := s.ad.Register(s.ctx, mem, flags)
	s.must(err)
	s.cleanup(func() { mr.Close() })
	return &region{mr, mem}
}

// emptyRegion creates a region without memory.
func (s *side) emptyRegion() nd.MemoryRegion {
	mr, err := s.ad.CreateMemoryRegion(s.ctx)
	s.must(err)
	s.cleanup(func() { mr.Close() })
	return mr
}

// newWindow creates a memory window.
func (s *side) newWindow() nd.MemoryWindow {
	w, err := s.ad.CreateMemoryWindow(s.ctx)
	s.must(err)
	s.cleanup(func() { w.Close() })
	return w
}
