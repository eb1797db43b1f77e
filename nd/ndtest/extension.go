package ndtest

import (
	"encoding/binary"

	"github.com/softnd/softnd/nd"
)

// Helpers for requests that the model does not have: atomics, and Sends and Writes with immediate data.

// skipUnless skips the row if the adapter does not have a capability. The requests must then be refused.
func (s *side) skipUnless(f nd.AdapterFlags) {
	if s.info.AdapterFlags.Has(f) {
		return
	}
	c := s.prepare(connOptions{})
	posts := []func(*conn) error{sendNumber, writeNumber}
	if f == nd.AtomicsSupported {
		posts = nil
		for _, a := range atomics {
			posts = append(posts, func(c *conn) error { return a.post(c, 1, c.sge(0, 8).First, c.memory.descriptor(), 0) })
		}
	}
	for _, post := range posts {
		s.want(nd.NotSupported, post(c))
	}
	s.skipf("the adapter does not have %v", f)
}

func sendNumber(c *conn) error { return c.ep.SendImmediate(1, c.sge(0, 8), 7, 0) }

func writeNumber(c *conn) error {
	return c.ep.WriteImmediate(1, c.sge(0, 8), c.peerRegion.Address, c.peerRegion.Token, 7, 0)
}

// wantNumber waits for the next receive result, which has immediate data.
func (c *conn) wantNumber(t nd.RequestType, reqCtx uint64, n int, number uint32) {
	r := c.wantReceive(nd.Success, reqCtx)
	if got, ok := r.Immediate(); !ok || r.RequestType != t || got != number {
		c.fatalf("result of a %v with the number %#x (%t), want a %v with %#x", r.RequestType, got, ok, t, number)
	}
	c.wantLength(r, n)
}

// wantDone waits for the next initiator result, which is a success of type t with n bytes.
func (c *conn) wantDone(t nd.RequestType, reqCtx uint64, n int) {
	r := c.wantResult(nd.Success, reqCtx)
	if r.RequestType != t {
		c.fatalf("result of a %v, want a %v", r.RequestType, t)
	}
	c.wantLength(r, n)
}

// change is one of the three atomics, with operands under which it stores another number.
type change struct {
	name string
	kind nd.RequestType
	post func(c *conn, reqCtx uint64, old nd.SGE, at nd.WindowDescriptor, flags nd.OpFlags) error
}

// atomics store 1 in memory that is 0.
var atomics = []change{
	{"FetchAndAdd", nd.RequestFetchAndAdd, func(c *conn, reqCtx uint64, old nd.SGE, at nd.WindowDescriptor, flags nd.OpFlags) error {
		return c.ep.FetchAndAdd(reqCtx, old, at.Address, at.Token, 1, flags)
	}},
	{"CompareAndSwap", nd.RequestCompareAndSwap, func(c *conn, reqCtx uint64, old nd.SGE, at nd.WindowDescriptor, flags nd.OpFlags) error {
		return c.ep.CompareAndSwap(reqCtx, old, at.Address, at.Token, 0, 1, flags)
	}},
	{"Swap", nd.RequestSwap, func(c *conn, reqCtx uint64, old nd.SGE, at nd.WindowDescriptor, flags nd.OpFlags) error {
		return c.ep.Swap(reqCtx, old, at.Address, at.Token, 1, flags)
	}},
}

// atomicRights are the rights of a region that takes all requests.
const atomicRights = allRights | nd.AllowRemoteAtomic

// atomicOptions are the options of a connection whose region takes atomics.
func atomicOptions() connOptions { return connOptions{RegionFlags: atomicRights} }

// atomicPair makes one side of a connection whose region takes atomics, or skips the row.
func (s *side) atomicPair() *conn {
	s.skipUnless(nd.AtomicsSupported)
	return s.pair(atomicOptions())
}

// immediatePair makes one side of a connection with immediate data, or skips the row.
func (s *side) immediatePair(o connOptions) *conn {
	s.skipUnless(nd.ImmediateSupported)
	return s.pair(o)
}

// number returns the 8 bytes of the region at offset off.
func (c *conn) number(off int) uint64 { return binary.NativeEndian.Uint64(c.memory.mem[off:]) }

// setNumber stores 8 bytes in the region.
func (c *conn) setNumber(off int, v uint64) { binary.NativeEndian.PutUint64(c.memory.mem[off:], v) }

// wantNumberAt checks 8 bytes of the region.
func (c *conn) wantNumberAt(off int, want uint64) {
	if got := c.number(off); got != want {
		c.fatalf("the number at offset %d is %d, want %d", off, got, want)
	}
}

// add posts an addition of n to the number at an offset of d. The old value goes to the region, at offset to.
func (c *conn) add(reqCtx uint64, to int, d nd.WindowDescriptor, off int, n uint64, flags nd.OpFlags) {
	c.must(c.ep.FetchAndAdd(reqCtx, c.sge(to, 8).First, d.Address+uint64(off), d.Token, n, flags))
}

// past returns the part of d that begins at an offset.
func past(d nd.WindowDescriptor, off int) nd.WindowDescriptor {
	d.Address += uint64(off)
	d.Length -= uint64(off)
	return d
}
