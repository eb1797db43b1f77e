package ndtest

import (
	"math"
	"net/netip"
	"slices"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndcompat"
)

// wantCreateRefused checks that CreateEndpoint fails with status after change has made a field invalid.
func (s *side) wantCreateRefused(status nd.Status, change func(*nd.EndpointConfig)) {
	q := s.newQueue(16)
	cfg := nd.EndpointConfig{ReceiveCQ: q, InitiatorCQ: q, ReceiveDepth: 4, InitiatorDepth: 4, MaxReceiveSGE: 1, MaxInitiatorSGE: 1}
	change(&cfg)
	_, err := s.ad.CreateEndpoint(s.ctx, cfg)
	s.want(status, err)
}

// failingRequest returns a row in which a request of the active side fails with status. post posts it
// with request context 1. The passive side has two Receives outstanding and only loses the connection.
func failingRequest(id, title string, status nd.Status, a, p connOptions, post func(c *conn)) scenario {
	return scenario{id: id, title: title, active: func(s *side) {
		c := s.pair(a)
		fill(c.memory.mem, 1)
		s.must(c.ep.Receive(90, nd.SGL{}))
		s.barrier()
		post(c)
		c.wantResult(status, 1)
		s.must(c.ep.Send(2, nd.SGL{}, 0))
		c.wantFlushed(2)
		c.wantReceivesFlushed(90)
		c.wantErrorState()
		s.barrier()
		c.wantRegionPattern(1)
	}, passive: func(s *side) {
		c := s.pair(p)
		fill(c.memory.mem, 2)
		c.receiveAny(2)
		s.barrier()
		c.wantDisconnected()
		c.wantReceivesFlushed(0, 1)
		c.wantErrorState()
		s.barrier()
		c.wantRegionPattern(2)
	}}
}

func (c *conn) wantRegionPattern(seed uint64) { c.wantPattern(c.memory.mem, seed) }

// postWrite posts a Write of the first n bytes of the region to the start of the peer's.
func (c *conn) postWrite(reqCtx uint64, n int) {
	c.must(c.ep.Write(reqCtx, c.sge(0, n), c.peerRegion.Address, c.peerRegion.Token, 0))
}

// postRead posts a Read of the first n bytes of the peer's region.
func (c *conn) postRead(reqCtx uint64, n int) {
	c.must(c.ep.Read(reqCtx, c.sge(0, n), c.peerRegion.Address, c.peerRegion.Token, 0))
}

// unknownFlag is a bit that no flag uses.
const unknownFlag nd.OpFlags = 0x40

var endpointScenarios = []scenario{
	{id: "C201", title: "CreateCompletionQueue refuses depths out of range", active: func(s *side) {
		limit := int(s.info.MaxCompletionQueueDepth)
		for _, depth := range []int{0, -1, limit + 1} {
			_, err := s.ad.CreateCompletionQueue(s.ctx, depth)
			s.want(nd.InvalidParameter, err)
		}
		s.newQueue(1)
	}},

	{id: "C202", title: "the status of CreateEndpoint names the limit that was exceeded", active: func(s *side) {
		i := s.info
		s.wantCreateRefused(nd.InvalidParameter, func(c *nd.EndpointConfig) { c.ReceiveDepth = int(i.MaxReceiveQueueDepth) + 1 })
		s.wantCreateRefused(nd.InvalidParameter, func(c *nd.EndpointConfig) { c.InitiatorDepth = int(i.MaxInitiatorQueueDepth) + 1 })
		s.wantCreateRefused(nd.InvalidParameter, func(c *nd.EndpointConfig) { c.MaxReceiveSGE = int(i.MaxReceiveSGE) + 1 })
		s.wantCreateRefused(nd.InvalidParameter, func(c *nd.EndpointConfig) { c.MaxInitiatorSGE = int(i.MaxInitiatorSGE) + 1 })
		s.wantCreateRefused(nd.InvalidParameter, func(c *nd.EndpointConfig) { c.InlineSize = int(i.MaxInlineDataSize) + 1 })
	}},

	{id: "C203", title: "CreateEndpoint needs both completion queues", active: func(s *side) {
		s.wantCreateRefused(nd.InvalidParameter, func(c *nd.EndpointConfig) { c.ReceiveCQ = nil })
		s.wantCreateRefused(nd.InvalidParameter, func(c *nd.EndpointConfig) { c.InitiatorCQ = nil })
	}},

	{id: "C204", title: "Query knows two versions only; address lists belong to the caller", active: func(s *side) {
		one, err := ndcompat.Query(s.ad, ndcompat.InfoVersion1)
		s.must(err)
		two, err := ndcompat.Query(s.ad, ndcompat.InfoVersion2)
		s.must(err)
		if one.InfoVersion != ndcompat.InfoVersion1 || two.InfoVersion != ndcompat.InfoVersion2 {
			s.errorf("Query: InfoVersion %#x and %#x, want 1 and 2 as requested", one.InfoVersion, two.InfoVersion)
		}
		two.InfoVersion = one.InfoVersion
		if one != two {
			s.errorf("Query: version 1 has %+v, version 2 has %+v, want the same", one, two)
		}
		for _, version := range []uint32{0, 2, ndcompat.InfoVersion2 + 1, math.MaxUint32} {
			_, err := ndcompat.Query(s.ad, version)
			s.want(nd.InvalidParameter, err)
		}
		for _, query := range []func() ([]netip.Addr, error){s.ad.QueryAddressList, s.provider.QueryAddressList} {
			list, err := query()
			s.must(err)
			want := slices.Clone(list)
			clear(list)
			_ = append(list, netip.Addr{})
			again, err := query()
			s.must(err)
			if !slices.Equal(again, want) {
				s.errorf("QueryAddressList: %v, after a change of the previous list, want %v", again, want)
			}
		}
	}},

	{id: "C205", title: "a list with more entries than the limit is refused without effect", active: func(s *side) {
		i := s.info
		c := s.pair(connOptions{Endpoint: nd.EndpointConfig{MaxInitiatorSGE: int(i.MaxInitiatorSGE), MaxReceiveSGE: int(i.MaxReceiveSGE)}})
		entries := func(n uint32) nd.SGL { return nd.List(slices.Repeat([]nd.SGE{c.sge(0, 1).First}, int(n))...) }
		most := entries(i.MaxInitiatorSGE + 1)
		s.want(nd.DataOverrun, c.ep.Send(1, most, 0))
		s.want(nd.DataOverrun, c.ep.Write(2, most, c.peerRegion.Address, c.peerRegion.Token, 0))
		s.want(nd.DataOverrun, c.ep.Read(3, entries(i.MaxReadSGE+1), c.peerRegion.Address, c.peerRegion.Token, 0))
		s.want(nd.DataOverrun, c.ep.Receive(4, entries(i.MaxReceiveSGE+1)))
		s.wantEmpty(c.cq)
		s.must(c.ep.Write(5, entries(i.MaxInitiatorSGE), c.peerRegion.Address, c.peerRegion.Token, 0))
		c.wantResult(nd.Success, 5)
		c.wantAlive()
	}, passive: func(s *side) {
		s.pair(connOptions{}).wantAlive()
	}},

	{id: "C206", title: "a request above MaxTransferLength is refused without effect", active: func(s *side) {
		i := s.info
		n := min(i.MaxInitiatorSGE, i.MaxReceiveSGE, i.MaxReadSGE)
		c := s.pair(connOptions{Endpoint: nd.EndpointConfig{MaxInitiatorSGE: int(n), MaxReceiveSGE: int(n)}})
		part := nd.SGE{Buffer: s.reserve(int(i.MaxTransferLength/n) + 1), Token: c.memory.mr.LocalToken()}
		huge := nd.List(slices.Repeat([]nd.SGE{part}, int(n))...)
		s.want(nd.BufferOverflow, c.ep.Send(1, huge, 0))
		s.want(nd.BufferOverflow, c.ep.Write(2, huge, c.peerRegion.Address, c.peerRegion.Token, 0))
		s.want(nd.BufferOverflow, c.ep.Read(3, huge, c.peerRegion.Address, c.peerRegion.Token, 0))
		s.want(nd.BufferOverflow, c.ep.Receive(4, huge))
		s.wantEmpty(c.cq)
		c.wantAlive()
	}, passive: func(s *side) {
		s.pair(connOptions{}).wantAlive()
	}},

	{id: "C207", title: "unknown flags are refused without effect", active: func(s *side) {
		c, w := s.pair(connOptions{}), s.newWindow()
		s.want(nd.InvalidParameter, c.ep.Send(1, nd.SGL{}, unknownFlag))
		s.want(nd.InvalidParameter, c.ep.Write(2, nd.SGL{}, c.peerRegion.Address, c.peerRegion.Token, unknownFlag))
		s.want(nd.InvalidParameter, c.ep.Read(3, nd.SGL{}, c.peerRegion.Address, c.peerRegion.Token, unknownFlag))
		s.want(nd.InvalidParameter, c.ep.Bind(4, c.memory.mr, w, c.memory.mem, nd.AllowRead|unknownFlag))
		s.want(nd.InvalidParameter, c.ep.Invalidate(5, w, unknownFlag))
		s.wantEmpty(c.cq)
		c.wantAlive()
	}, passive: func(s *side) {
		s.pair(connOptions{}).wantAlive()
	}},

	failingRequest("C208", "a Send from memory with an unknown token fails", nd.AccessViolation, connOptions{}, connOptions{}, func(c *conn) {
		sge := c.sge(0, 64)
		sge.First.Token ^= 0x55555555
		c.must(c.ep.Send(1, sge, 0))
	}),

	{id: "C209", title: "a Receive into memory without AllowLocalWrite fails", active: func(s *side) {
		c := s.pair(connOptions{})
		fill(c.memory.mem, 1)
		s.must(c.ep.Receive(90, nd.SGL{}))
		s.barrier()
		s.must(c.ep.Send(1, c.sge(0, 64), 0))
		s.must(c.ep.Send(2, c.sge(0, 64), 0))
		c.wantResult(nd.RemoteError, 1)
		c.wantFlushed(2)
		c.wantReceivesFlushed(90)
		c.wantErrorState()
	}, passive: func(s *side) {
		c := s.pair(connOptions{RegionFlags: nd.AllowRemoteRead})
		s.must(c.ep.Receive(1, c.sge(0, 64)))
		s.must(c.ep.Receive(2, c.sge(64, 64)))
		s.barrier()
		c.wantReceive(nd.AccessViolation, 1)
		c.wantReceivesFlushed(2)
		c.wantDisconnected()
		c.wantErrorState()
		s.wantZero(c.memory.mem)
	}},

	failingRequest("C210", "a Read into memory without AllowLocalWrite fails", nd.AccessViolation,
		connOptions{RegionFlags: nd.AllowRemoteRead}, connOptions{}, func(c *conn) { c.postRead(1, 64) }),

	{id: "C211", title: "a region with AllowRemoteRead can be read and not written with its own token", active: func(s *side) {
		c := s.pair(connOptions{})
		s.barrier()
		c.postRead(1, 4096)
		c.wantResult(nd.Success, 1)
		s.wantPattern(c.memory.mem[:4096], 2)
		c.postWrite(2, 100)
		c.postWrite(3, 100)
		c.wantResult(nd.AccessViolation, 2)
		c.wantFlushed(3)
		c.wantErrorState()
		s.barrier()
	}, passive: func(s *side) {
		c := s.pair(connOptions{RegionSize: 4096, RegionFlags: nd.AllowRemoteRead})
		fill(c.memory.mem, 2)
		s.must(c.ep.Receive(1, nd.SGL{}))
		s.barrier()
		c.wantDisconnected()
		c.wantReceivesFlushed(1)
		c.wantErrorState()
		s.barrier()
		c.wantRegionPattern(2)
	}},

	failingRequest("C212", "a Write to a region with only the lower bit of AllowRemoteWrite fails", nd.AccessViolation,
		connOptions{}, connOptions{RegionFlags: nd.AllowLocalWrite}, func(c *conn) { c.postWrite(1, 64) }),

	{id: "C213", title: "requests before a failing one succeed, and those after it are canceled", active: func(s *side) {
		const fails, n = 5, 10
		c := s.pair(connOptions{})
		s.barrier()
		for i := range uint64(n) {
			token := c.peerRegion.Token
			if i == fails {
				token = 0
			}
			s.must(c.ep.Write(i, c.sge(0, 64), c.peerRegion.Address, token, 0))
		}
		for i := range uint64(n) {
			switch {
			case i < fails:
				c.wantResult(nd.Success, i)
			case i == fails:
				c.wantResult(nd.AccessViolation, i)
			default:
				c.wantResult(nd.Canceled, i)
			}
		}
		c.wantErrorState()
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		c.receiveAny(1)
		s.barrier()
		c.wantDisconnected()
		c.wantReceivesFlushed(0)
		c.wantErrorState()
	}},
}
