package ndtest

import (
	"bytes"

	"github.com/softnd/softnd/nd"
)

var regionScenarios = []scenario{
	{id: "C235", title: "a registration above MaxRegistrationSize is refused", active: func(s *side) {
		limit := s.info.MaxRegistrationSize
		if limit >= 1<<46 {
			s.skipf("MaxRegistrationSize is %d, and no process can have a buffer larger than that", limit)
		}
		huge := s.reserve(int(limit) + 1)
		_, err := s.ad.Register(s.ctx, huge, 0)
		s.want(nd.InvalidParameter, err)
		mr := s.emptyRegion()
		s.want(nd.InvalidParameter, mr.Register(s.ctx, huge, 0))
		s.must(mr.Register(s.ctx, make([]byte, 64), 0)) // the refused Register has not changed it
		_, err = s.ad.Allocate(s.ctx, len(huge), 0)
		s.want(nd.InvalidParameter, err)
	}},

	{id: "C236", title: "access to a buffer in two regions has the rights of the token's region", active: func(s *side) {
		c := s.pair(connOptions{})
		readable := hear[nd.WindowDescriptor](s)
		fill(c.memory.mem, 1)
		s.must(c.ep.Write(1, c.sge(0, 4096), c.peerRegion.Address, c.peerRegion.Token, 0))
		c.wantResult(nd.Success, 1)
		s.must(c.ep.Read(2, c.sge(8192, 4096), readable.Address, readable.Token, 0))
		c.wantResult(nd.Success, 2)
		if !bytes.Equal(c.memory.mem[:4096], c.memory.mem[8192:8192+4096]) {
			s.errorf("the Read with the second region's token has returned other bytes than the Write stored")
		}
		s.must(c.ep.Write(3, c.sge(0, 64), readable.Address, readable.Token, 0))
		c.wantResult(nd.AccessViolation, 3)
		c.wantErrorState()
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		s.tell(s.register(c.memory.mem, nd.AllowRemoteRead).descriptor())
		c.wantDisconnected()
		c.wantErrorState()
	}},

	{id: "C237", title: "Register of a registered region and Deregister of an unregistered one are refused", active: func(s *side) {
		mr := s.emptyRegion()
		s.want(nd.InvalidDeviceState, mr.Deregister(s.ctx))
		buf := make([]byte, 4096)
		s.must(mr.Register(s.ctx, buf, nd.AllowLocalWrite))
		local, remote := mr.LocalToken(), mr.RemoteToken()
		for _, again := range [][]byte{buf, make([]byte, 64)} {
			s.want(nd.InvalidDeviceState, mr.Register(s.ctx, again, allRights))
		}
		if mr.LocalToken() != local || mr.RemoteToken() != remote || len(mr.Bytes()) != len(buf) || &mr.Bytes()[0] != &buf[0] {
			s.errorf("a refused Register has changed the tokens or the bytes of the region")
		}
		s.must(mr.Deregister(s.ctx))
		s.want(nd.InvalidDeviceState, mr.Deregister(s.ctx))
		s.must(mr.Register(s.ctx, buf, 0))
	}},

	{id: "C238", title: "two endpoints may use one local token", active: func(s *side) {
		c := s.pair(connOptions{})
		d := s.pair(connOptions{ShareWith: c})
		fill(c.memory.mem[:1000], 1)
		s.barrier()
		for _, x := range []*conn{c, d} {
			s.must(x.ep.Send(1, c.sge(0, 1000), 0))
			x.wantResult(nd.Success, 1)
			s.must(x.ep.Read(2, c.sge(2000, 1000), x.peerRegion.Address, x.peerRegion.Token, 0))
			x.wantResult(nd.Success, 2)
			s.wantPattern(c.memory.mem[2000:3000], 2)
			clear(c.memory.mem[2000:3000])
		}
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		d := s.pair(connOptions{ShareWith: c})
		fill(c.memory.mem[:1000], 2)
		for i, x := range []*conn{c, d} {
			s.must(x.ep.Receive(1, c.sge(10_000+i*1000, 1000)))
		}
		s.barrier()
		for i, x := range []*conn{c, d} {
			x.wantReceive(nd.Success, 1)
			s.wantPattern(c.memory.mem[10_000+i*1000:][:1000], 1)
		}
	}},

	{id: "C239", title: "a window can be used on other connections unless bound with ThisEndpointOnly", active: func(s *side) {
		c := s.pair(connOptions{})
		d := s.pair(connOptions{ShareWith: c})
		fill(c.memory.mem, 1)
		open := hear[nd.WindowDescriptor](s)
		s.must(d.ep.Write(1, c.sge(0, 1000), open.Address, open.Token, 0))
		d.wantResult(nd.Success, 1)
		s.barrier()
		closed := hear[nd.WindowDescriptor](s)
		s.must(d.ep.Write(2, c.sge(0, 1000), closed.Address, closed.Token, 0))
		d.wantResult(nd.AccessViolation, 2)
		d.wantErrorState()
		s.barrier()
		s.must(c.ep.Write(3, c.sge(0, 1000), closed.Address, closed.Token, 0))
		c.wantResult(nd.Success, 3)
		s.barrier()
		c.wantAlive()
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		d := s.pair(connOptions{ShareWith: c})
		w := s.newWindow()
		s.tell(c.bind(w, 100, 1000, nd.AllowWrite))
		s.barrier()
		s.wantPattern(c.memory.mem[100:1100], 1)
		c.invalidate(w)
		clear(c.memory.mem)
		s.tell(c.bind(w, 100, 1000, nd.AllowWrite|nd.ThisEndpointOnly))
		d.wantDisconnected()
		d.wantErrorState()
		s.wantZero(c.memory.mem)
		s.barrier()
		s.barrier()
		s.wantPattern(c.memory.mem[100:1100], 1)
		c.invalidate(w)
		c.wantAlive()
	}},

	failingRequest("C240", "a Write with token 0 fails while a window is not bound", nd.AccessViolation,
		connOptions{}, connOptions{BeforeConnect: func(c *conn) {
			if w := c.newWindow(); w.RemoteToken() != 0 || w.Descriptor() != (nd.WindowDescriptor{}) {
				c.errorf("a new window has a token or a descriptor, want neither")
			}
		}}, func(c *conn) {
			c.must(c.ep.Write(1, c.sge(0, 64), c.peerRegion.Address, 0, 0))
		}),

	{id: "C248", title: "a window descriptor is 20 bytes, in network byte order", active: func(s *side) {
		d := nd.WindowDescriptor{Address: 0x0102030405060708, Length: 0x1112131415161718, Token: 0x21222324}
		want := []byte{1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22, 0x23, 0x24}
		got, err := d.MarshalBinary()
		s.must(err)
		if !bytes.Equal(got, want) || len(got) != nd.WindowDescriptorSize {
			s.errorf("MarshalBinary: % x, want % x", got, want)
		}
		var back nd.WindowDescriptor
		s.must(back.UnmarshalBinary(got))
		if back != d {
			s.errorf("UnmarshalBinary of MarshalBinary of %+v: %+v, want the same", d, back)
		}
		for _, wrong := range [][]byte{nil, got[:19], append(got, 0)} {
			s.want(nd.InvalidBufferSize, back.UnmarshalBinary(wrong))
		}
		if back != d {
			s.errorf("UnmarshalBinary of a wrong length has changed the descriptor")
		}
	}},
}
