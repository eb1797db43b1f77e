package endpoint

import (
	"fmt"

	"github.com/softnd/softnd/nd"
)

// regionMemory is a region with edges around it.
type regionMemory struct {
	mr     nd.MemoryRegion
	all    []byte
	edge   int
	holder nd.MemoryRegion // of all of it, if it is in the arena
	mapped nd.LogicalMapping
}

func (m *regionMemory) bytes() []byte { return m.all[m.edge : len(m.all)-m.edge] }

// cut returns a range of the region, which may include a part of the edges.
func (m *regionMemory) cut(off, n int) []byte { return m.all[m.edge+off:][:n] }

// addRegion makes a region of o.Len bytes between two edges.
func (s *side) addRegion(o order, r *reply) (err error) {
	m := &regionMemory{edge: edge}
	if o.Private {
		m.all = make([]byte, o.Len+2*edge)
	} else {
		if m.holder, err = s.adapter.Allocate(s.ctx, o.Len+2*edge, nd.AllowLocalWrite); err != nil {
			return err
		}
		m.all = m.holder.Bytes()
	}
	for i := range edge {
		m.all[i], m.all[len(m.all)-1-i] = edgeByte, edgeByte
	}
	if m.mr, err = s.adapter.Register(s.ctx, m.bytes(), o.Rights); err != nil {
		return err
	}
	s.keep(m, r)
	return nil
}

func (s *side) keep(m *regionMemory, r *reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.N = len(s.regions)
	s.regions = append(s.regions, m)
	r.Far, r.Sum = farOf(m.mr), uint64(m.mr.LocalToken())
}

func (s *side) checkEdges() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, m := range s.regions {
		for i := range m.edge {
			if m.all[i] != edgeByte {
				return fmt.Errorf("region %d: byte %d before it was written", n, edge-i)
			}
			if m.all[len(m.all)-1-i] != edgeByte {
				return fmt.Errorf("region %d: byte %d after it was written", n, edge-1-i)
			}
		}
	}
	return nil
}

func (s *side) rangeOf(o order) []byte { return s.regionAt(o.Region).cut(o.Off, o.Len) }

func farOf(mr nd.MemoryRegion) nd.WindowDescriptor {
	return nd.WindowDescriptor{Address: mr.Address(), Length: uint64(len(mr.Bytes())), Token: mr.RemoteToken()}
}

// fill writes a pattern that differs at every offset and for every seed.
func fill(b []byte, seed uint64) {
	x := seed*0x9e3779b97f4a7c15 + 1
	for i := range b {
		if i%8 == 0 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
		b[i] = byte(x >> (i % 8 * 8))
	}
}

func longestRun(b []byte, x byte) (longest int) {
	run := 0
	for _, y := range b {
		if run++; y != x {
			run = 0
		}
		longest = max(longest, run)
	}
	return longest
}

// edge is the number of bytes around each region that no transfer may touch.
const edge = 4096

const edgeByte = 0xa5
