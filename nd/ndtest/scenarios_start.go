package ndtest

import (
	"net/netip"
	"slices"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndcompat"
)

// Library start-up, address lists, adapter information.
var startScenarios = []scenario{
	{id: "C001", title: "the address list is not empty", active: func(s *side) {
		list, err := s.library().QueryAddressList(0)
		s.must(err)
		own, err := s.provider.QueryAddressList()
		s.must(err)
		if len(list) == 0 || !slices.Equal(list, own) {
			s.errorf("Library.QueryAddressList: %v, want the provider's list %v, not empty", list, own)
		}
		for _, a := range list {
			if !a.IsValid() || a.IsUnspecified() {
				s.errorf("QueryAddressList: %v is not an address that a peer can connect to", a)
			}
		}
	}},
	{id: "C002", title: "the address list is the caller's copy", active: func(s *side) {
		for what, query := range map[string]func() ([]netip.Addr, error){
			"provider": s.provider.QueryAddressList, "adapter": s.ad.QueryAddressList,
		} {
			list, err := query()
			s.must(err)
			before := slices.Clone(list)
			for i := range list {
				list[i] = netip.IPv6Unspecified()
			}
			if after, err := query(); err != nil || len(after) == 0 || !slices.Equal(after, before) {
				s.errorf("%s.QueryAddressList: %v, after a change of that slice %v, %v, want the same list", what, before, after, err)
			}
		}
	}},
	{id: "C003", title: "CheckAddress accepts every listed address", active: func(s *side) {
		lib := s.library()
		list, err := lib.QueryAddressList(0)
		s.must(err)
		adapters, err := s.ad.QueryAddressList()
		s.must(err)
		for _, a := range slices.Concat(list, adapters) {
			s.must(lib.CheckAddress(a))
			s.must(nd.CheckAddress(s.provider, a))
		}
	}},
	{id: "C004", title: "CheckAddress ignores the port", active: func(s *side) {
		l, listening := s.listen(0)
		bound, err := s.newBoundConnector(0).LocalAddress()
		s.must(err)
		s.must(l.Close())
		for _, a := range []netip.AddrPort{listening, bound, netip.AddrPortFrom(s.addr, 0), netip.AddrPortFrom(s.addr, 1)} {
			s.must(s.library().CheckAddress(a.Addr()))
			s.must(s.library().CheckAddress(netip.AddrFrom16(a.Addr().As16()))) // IPv4 in IPv6 form
		}
	}},
	{id: "C005", title: "CheckAddress refuses an address that is not local", active: func(s *side) {
		lib := s.library()
		for _, a := range []string{"203.0.113.77", "2001:db8::77"} { // reserved for documentation
			foreign := netip.MustParseAddr(a)
			s.want(nd.InvalidAddress, lib.CheckAddress(foreign))
			s.want(nd.InvalidAddress, nd.CheckAddress(s.provider, foreign))
			_, err := s.provider.ResolveAddress(foreign)
			s.want(nd.InvalidAddress, err)
			_, err = lib.OpenAdapter(s.ctx, foreign)
			s.want(nd.InvalidAddress, err)
		}
		s.want(nd.InvalidAddress, lib.CheckAddress(netip.Addr{}))
	}},
	{id: "C006", title: "an adapter opened and closed 100 times leaves nothing behind", active: func(s *side) {
		lib := s.library()
		for range 100 {
			ad, err := lib.OpenAdapter(s.ctx, s.addr)
			s.must(err)
			s.ad = ad
			r := s.region(1<<20, allRights) // large, so that a leak exhausts the memory soon
			s.must(ad.Close(s.ctx))
			s.must(r.mr.Close(s.ctx))
			_, err = ad.CreateCompletionQueue(s.ctx, 1)
			s.want(nd.InvalidHandle, err)
		}
	}},
	{id: "C007", title: "Query fills in the adapter's limits", active: func(s *side) {
		old, err := ndcompat.Query(s.ad, ndcompat.InfoVersion1)
		s.must(err)
		i, err := ndcompat.Query(s.ad, ndcompat.InfoVersion2)
		s.must(err)
		if old.InfoVersion != ndcompat.InfoVersion1 || i.InfoVersion != ndcompat.InfoVersion2 {
			s.errorf("Query: InfoVersion %#x and %#x, want 1 and 2 as requested", old.InfoVersion, i.InfoVersion)
		}
		if old.InfoVersion = i.InfoVersion; old != i {
			s.errorf("Query: version 1 has %+v, version 2 has %+v, want the same", old, i)
		}
		if id, err := s.provider.ResolveAddress(s.addr); err != nil || id != i.AdapterID || id == 0 {
			s.errorf("Query: AdapterID %v, want that of ResolveAddress, %v, %v, not 0", i.AdapterID, id, err)
		}
		for _, f := range []struct {
			name       string
			got, least uint64 // least: the needs of existing programs
		}{
			{"MaxRegistrationSize", i.MaxRegistrationSize, 64 << 20},
			{"MaxWindowSize", i.MaxWindowSize, 64 << 20},
			{"MaxInitiatorSGE", uint64(i.MaxInitiatorSGE), 2},
			{"MaxReceiveSGE", uint64(i.MaxReceiveSGE), 2},
			{"MaxReadSGE", uint64(i.MaxReadSGE), 1},
			{"MaxTransferLength", uint64(i.MaxTransferLength), 64 << 20},
			{"MaxInboundReadLimit", uint64(i.MaxInboundReadLimit), 1},
			{"MaxOutboundReadLimit", uint64(i.MaxOutboundReadLimit), 1},
			{"MaxReceiveQueueDepth", uint64(i.MaxReceiveQueueDepth), 1},
			{"MaxInitiatorQueueDepth", uint64(i.MaxInitiatorQueueDepth), 1},
			{"MaxCompletionQueueDepth", uint64(i.MaxCompletionQueueDepth), 1},
			{"LargeRequestThreshold", uint64(i.LargeRequestThreshold), 1},
			{"MaxCallerData", uint64(i.MaxCallerData), 40},
			{"MaxCalleeData", uint64(i.MaxCalleeData), 36},
		} {
			if f.got < f.least {
				s.errorf("Query: %s is %d, want at least %d", f.name, f.got, f.least)
			}
		}
		_, err = ndcompat.Query(s.ad, 7)
		s.want(nd.InvalidParameter, err)
	}},
	{id: "C008", title: "the limits agree with each other", active: func(s *side) {
		if s.info.MaxReadSGE > s.info.MaxInitiatorSGE {
			s.errorf("Query: MaxReadSGE %d, want at most MaxInitiatorSGE %d", s.info.MaxReadSGE, s.info.MaxInitiatorSGE)
		}
		if s.info.InlineRequestThreshold > s.info.MaxInlineDataSize {
			s.errorf("Query: InlineRequestThreshold %d, want at most MaxInlineDataSize %d", s.info.InlineRequestThreshold, s.info.MaxInlineDataSize)
		}
		if s.info.MaxReceiveQueueDepth == 1<<32-1 {
			s.errorf("Query: MaxReceiveQueueDepth is the largest uint32, want less, so that a larger depth can be refused")
		}
		const known = nd.InOrderDMASupported | nd.ReadSinkNotRequired | nd.InterruptModerationSupported |
			nd.MultiEngineSupported | nd.ReadLocalInvalidateSupported | nd.CQResizeSupported | nd.LoopbackConnectionsSupported |
			nd.AtomicsSupported | nd.ImmediateSupported | nd.PlacementSupported
		if unknown := s.info.AdapterFlags &^ known; unknown != 0 {
			s.errorf("Query: unknown adapter flags %v", unknown)
		}
	}},
	{id: "C009", title: "the limits of both queues are equal, or the completion queue limit is the lower depth", active: func(s *side) {
		r, i, cq := s.info.MaxReceiveQueueDepth, s.info.MaxInitiatorQueueDepth, s.info.MaxCompletionQueueDepth
		if r != i && cq > min(r, i) {
			s.errorf("Query: queue depths %d and %d differ, and MaxCompletionQueueDepth is %d, want at most the lower of them", r, i, cq)
		}
		if s.info.MaxReceiveSGE != s.info.MaxInitiatorSGE {
			s.errorf("Query: MaxReceiveSGE %d, MaxInitiatorSGE %d, want the same", s.info.MaxReceiveSGE, s.info.MaxInitiatorSGE)
		}
	}},
	{id: "C010", title: "objects may be closed before the objects that use them", active: func(s *side) {
		for range 25 {
			s.ad = s.openAdapter()
			c := s.prepare(connOptions{RegionSize: 4 << 20}) // large, so that a leak exhausts the memory soon
			w := s.newWindow()
			connector := s.newBoundConnector(0)
			listener, _ := s.listen(0)
			objects := []any{c.memory.mr, w, c.cq}
			if s.info.MaxSharedReceiveQueueDepth > 0 {
				srq, err := s.ad.CreateSharedReceiveQueue(s.ctx, nd.SharedReceiveQueueConfig{Depth: 4, MaxSGE: 1})
				s.must(err)
				objects = append(objects, srq)
			}
			s.must(closeAll(s.ctx, nil, append(objects, c.ep, connector, listener)...))
			s.must(s.ad.Close(c.ctx))
		}
	}},
	{id: "C011", title: "the route to a server starts at a local address", active: func(s *side) {
		server := hear[netip.Addr](s)
		lib := s.library()
		local, err := lib.ResolveAddress(server)
		s.must(err)
		s.must(lib.CheckAddress(local))
		s.must(s.newConnector().Bind(netip.AddrPortFrom(local, 0)))
		_, err = lib.ResolveAddress(s.addr) // the route to itself
		s.must(err)
	}, passive: func(s *side) { s.tell(s.addr) }},
	{id: "C012", title: "calls of the library fail before Startup", active: func(s *side) {
		s.notReady(&ndcompat.Library{V2: []nd.Provider{s.provider}})
	}},
	{id: "C013", title: "the library counts its users", active: func(s *side) {
		lib := &ndcompat.Library{V2: []nd.Provider{s.provider}}
		s.must(lib.Startup())
		s.must(lib.Startup())
		s.must(lib.Cleanup())
		s.must(lib.CheckAddress(s.addr)) // one user remains
		s.must(lib.Cleanup())
		s.notReady(lib)
	}},
}

// library returns a started library with this side's provider.
func (s *side) library() *ndcompat.Library {
	lib := &ndcompat.Library{V2: []nd.Provider{s.provider}}
	s.must(lib.Startup())
	s.cleanup(func() { lib.Cleanup() })
	return lib
}

// notReady checks that every call of a library that is not started fails with DeviceNotReady.
func (s *side) notReady(lib *ndcompat.Library) {
	_, err := lib.OpenAdapter(s.ctx, s.addr)
	s.want(nd.DeviceNotReady, err)
	_, err = lib.QueryAddressList(0)
	s.want(nd.DeviceNotReady, err)
	_, err = lib.ResolveAddress(s.addr)
	s.want(nd.DeviceNotReady, err)
	s.want(nd.DeviceNotReady, lib.CheckAddress(s.addr))
	s.want(nd.DeviceNotReady, lib.Cleanup())
}
