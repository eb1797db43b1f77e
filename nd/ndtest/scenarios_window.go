package ndtest

import (
	"bytes"
	"net/netip"

	"github.com/softnd/softnd/nd"
)

// large replaces the 64 MiB of the table. It is more than a provider copies in one step.
const large = 2 << 20

// exposeRegion is the active side of rows in which the passive side makes the requests. It binds a window
// to its whole region, tells the peer, and waits for an empty message.
func exposeRegion(s *side, flags nd.RegionFlags) *conn {
	c := s.pair(connOptions{RegionSize: large, RegionFlags: flags, BeforeConnect: fillRegion(1)})
	c.must(c.ep.Receive(9, c.sge(0, large))) // into the memory of the window
	c.bindAndTell(0, large, nd.AllowRead|nd.AllowWrite)
	c.wantLength(c.wantReceive(nd.Success, 9), 0)
	return c
}

// accessRegion is the start of the passive side of exposeRegion; sendDone is its end.
func accessRegion(s *side, flags nd.RegionFlags) (*conn, nd.WindowDescriptor) {
	c := s.pair(connOptions{RegionSize: large, RegionFlags: flags})
	return c, c.hearDescriptor()
}

// sendDone sends the empty message that exposeRegion waits for.
func (c *conn) sendDone() {
	c.must(c.ep.Send(99, nd.SGL{}, 0))
	c.wantResult(nd.Success, 99)
}

// read posts a Read into the region and waits for the result.
func (c *conn) read(off, n int, addr uint64, t nd.Token) {
	const probe = 0xfe7c
	c.must(c.ep.Read(probe, c.sge(off, n), addr, t, 0))
	c.wantLength(c.wantResult(nd.Success, probe), n)
}

// write posts a Write from the region and waits for the result.
func (c *conn) write(off, n int, addr uint64, t nd.Token) {
	const probe = 0x5707
	c.must(c.ep.Write(probe, c.sge(off, n), addr, t, 0))
	c.wantLength(c.wantResult(nd.Success, probe), n)
}

func invert(b []byte) {
	for i := range b {
		b[i] = ^b[i]
	}
}

var windowScenarios = []scenario{
	{id: "C056", title: "a window over all of a large region (2 MiB)", active: func(s *side) {
		c := s.pair(connOptions{RegionSize: large})
		w := s.newWindow()
		c.must(c.ep.Bind(0xabcdef, c.memory.mr, w, c.memory.mem, nd.AllowRead|nd.AllowWrite))
		d := w.Descriptor()
		if d.Address != c.memory.mr.Address() || d.Length != large || d.Token == 0 || d.Token != w.RemoteToken() {
			c.errorf("Descriptor after Bind: %+v, want the whole region, with the window's token", d)
		}
		r := c.wantResult(nd.Success, 0xabcdef)
		if r.RequestType != nd.RequestBind {
			c.errorf("result of a %v, want a Bind", r.RequestType)
		}
		s.tell(d)
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		d := c.hearDescriptor()
		for _, at := range []uint64{0, large - 64} {
			c.read(0, 64, d.Address+at, d.Token)
			c.write(0, 64, d.Address+at, d.Token)
		}
	}},
	{id: "C057", title: "a window needs no remote rights of its region", active: func(s *side) {
		const flags = nd.RDMAReadSink | nd.AllowLocalWrite
		c := exposeRegion(s, flags)
		c.wantPattern(c.memory.mem[64:128], 7)
	}, passive: func(s *side) {
		c, d := accessRegion(s, 0)
		c.read(0, 64, d.Address, d.Token)
		c.wantPattern(c.memory.mem[:64], 1)
		fill(c.memory.mem[64:128], 7)
		c.write(64, 64, d.Address+64, d.Token)
		c.sendDone()
	}},
	{id: "C058", title: "a Send of two entries on an endpoint that asked for one", active: func(s *side) {
		c := s.pair(connOptions{Endpoint: nd.EndpointConfig{MaxInitiatorSGE: 1}, BeforeConnect: fillRegion(3)})
		s.barrier()
		c.must(c.ep.Send(1, nd.List(c.sge(0, 1024).First, c.sge(1024, 16).First), 0))
		c.wantLength(c.wantResult(nd.Success, 1), 1040)
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		c.must(c.ep.Receive(1, c.sge(0, 2048)))
		s.barrier()
		c.wantLength(c.wantReceive(nd.Success, 1), 1040)
		c.wantPattern(c.memory.mem[:1040], 3)
	}},
	{id: "C059", title: "36 bytes of private data in both directions", active: func(s *side) {
		data := make([]byte, 36)
		fill(data, 1)
		c := s.prepare(connOptions{PrivateData: data})
		c.connect(hear[netip.AddrPort](s))
		c.wantPrivateDataInTwoSteps(2)
		c.completeConnect()
		c.wantAlive()
	}, passive: func(s *side) {
		data := make([]byte, 36)
		fill(data, 2)
		c := s.prepare(connOptions{PrivateData: data})
		l, addr := s.listen(0)
		s.tell(addr)
		c.getRequest(l)
		c.wantPrivateDataInTwoSteps(1)
		c.must(c.connector.Accept(s.ctx, c.ep, c.opts.connectParams()))
		c.wantAlive()
	}},
	{id: "C060", title: "a Read returns the same bytes as a Send of them (2 MiB)", active: func(s *side) {
		c := s.pair(connOptions{RegionSize: large, BeforeConnect: fillRegion(1)})
		d := c.bind(s.newWindow(), 0, large, nd.AllowRead)
		words, err := d.MarshalBinary()
		s.must(err)
		note := s.region(len(words), 0)
		copy(note.mem, words)
		s.barrier()
		c.must(c.ep.Send(1, nd.List(note.sge(0, len(note.mem)).First, c.sge(large/2, 1024).First), 0))
		c.wantResult(nd.Success, 1)
	}, passive: func(s *side) {
		c := s.pair(connOptions{})
		c.must(c.ep.Receive(1, c.sge(0, 2048)))
		s.barrier()
		n := int(c.wantReceive(nd.Success, 1).BytesTransferred) - 1024
		var d nd.WindowDescriptor
		s.must(d.UnmarshalBinary(c.memory.mem[:n]))
		c.read(4096, 1024, d.Address+large/2, d.Token)
		if !bytes.Equal(c.memory.mem[4096:][:1024], c.memory.mem[n:][:1024]) {
			c.errorf("the bytes of the Read differ from those of the message")
		}
	}},
	{id: "C061", title: "one Read of half of a large window (2 MiB)", active: func(s *side) {
		exposeRegion(s, 0)
	}, passive: func(s *side) {
		c, d := accessRegion(s, 0)
		const n = large/2 - 1024
		c.read(512, n, d.Address, d.Token)
		c.wantPattern(c.memory.mem[512:][:n], 1)
		c.wantZero(c.memory.mem[:512])
		c.wantZero(c.memory.mem[512+n:])
		c.sendDone()
	}},
	{id: "C062", title: "a region without RDMAReadSink takes a Read", active: func(s *side) {
		exposeRegion(s, 0)
	}, passive: func(s *side) {
		c, d := accessRegion(s, nd.AllowLocalWrite|nd.AllowRemoteRead|nd.AllowRemoteWrite)
		c.read(0, 4096, d.Address, d.Token)
		c.wantPattern(c.memory.mem[:4096], 1)
		c.sendDone()
	}},
	{id: "C063", title: "Writes are visible when a later message is received (2 MiB)", active: func(s *side) {
		c := exposeRegion(s, 0)
		invert(c.memory.mem)
		c.wantPattern(c.memory.mem, 1)
	}, passive: func(s *side) {
		c, d := accessRegion(s, 0)
		c.read(0, large, d.Address, d.Token)
		invert(c.memory.mem)
		c.write(0, large/2, d.Address, d.Token)
		c.write(large/2, large/2, d.Address+large/2, d.Token)
		c.sendDone()
	}},
	{id: "C064", title: "an empty message does not change the memory of its Receive", active: func(s *side) {
		c := exposeRegion(s, 0) // checks the number of bytes
		c.wantPattern(c.memory.mem, 1)
	}, passive: func(s *side) {
		c, _ := accessRegion(s, 0)
		c.sendDone()
	}},
	{id: "C065", title: "4,096 Writes of 4 bytes, from the end to the start", active: func(s *side) {
		c := exposeRegion(s, 0)
		want := make([]byte, mirroredSize)
		fill(want, 5)
		for i := 0; i < mirroredSize; i += 4 {
			if !bytes.Equal(c.memory.mem[i:i+4], want[mirroredSize-4-i:][:4]) {
				c.fatalf("the word at offset %d differs from the word at offset %d of the source", i, mirroredSize-4-i)
			}
		}
	}, passive: func(s *side) {
		c, d := accessRegion(s, 0)
		fill(c.memory.mem[:mirroredSize], 5)
		const depth, n = 16, mirroredSize / 4
		for i := range n + depth {
			if i >= depth {
				c.wantLength(c.wantResult(nd.Success, uint64(i-depth)), 4)
			}
			if i < n {
				c.must(c.ep.Write(uint64(i), c.sge(4*i, 4), d.Address+uint64(mirroredSize-4-4*i), d.Token, 0))
			}
		}
		c.sendDone()
	}},
	{id: "C066", title: "regions can be deregistered and closed after Disconnect, with the window still bound", active: func(s *side) {
		c := exposeRegion(s, 0)
		c.disconnect()
		s.must(c.memory.mr.Deregister(s.ctx))
		s.must(c.memory.mr.Close(c.ctx))
	}, passive: func(s *side) {
		c, d := accessRegion(s, 0)
		c.read(0, 64, d.Address, d.Token)
		c.sendDone()
		c.disconnect()
		s.must(c.memory.mr.Deregister(s.ctx))
		s.must(c.memory.mr.Close(c.ctx))
	}},
	{id: "C067", title: "consecutive Reads with read limits of 1", active: func(s *side) {
		c := s.pair(connOptions{InboundReads: 1, OutboundReads: 1, BeforeConnect: fillRegion(1)})
		c.wantExactReadLimits(1, 1)
		c.bindAndTell(0, 4096, nd.AllowRead)
	}, passive: func(s *side) {
		c := s.pair(connOptions{InboundReads: 1, OutboundReads: 1})
		c.wantExactReadLimits(1, 1)
		d := c.hearDescriptor()
		for at := range 8 {
			c.read(512*at, 512, d.Address+uint64(512*at), d.Token)
		}
		c.wantPattern(c.memory.mem[:4096], 1)
	}},
}

// mirroredSize is the number of bytes that C065 writes.
const mirroredSize = 4 * 4096

// wantPrivateDataInTwoSteps queries the size of the peer's private data, and then the 36 bytes.
func (c *conn) wantPrivateDataInTwoSteps(seed uint64) {
	n, err := c.connector.GetPrivateData(nil)
	c.want(nd.BufferOverflow, err)
	if n != 36 {
		c.fatalf("GetPrivateData: %d bytes, want 36", n)
	}
	data := make([]byte, n)
	_, err = c.connector.GetPrivateData(data)
	c.must(err)
	c.wantPattern(data, seed)
}

// wantExactReadLimits checks the read limits of the connection.
func (c *conn) wantExactReadLimits(in, out int) {
	gotIn, gotOut, err := c.connector.ReadLimits()
	c.must(err)
	if gotIn != in || gotOut != out {
		c.errorf("ReadLimits: %d in and %d out, want %d and %d", gotIn, gotOut, in, out)
	}
}
