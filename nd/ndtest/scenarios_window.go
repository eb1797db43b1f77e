package ndtest

import (
	"bytes"
	"net/netip"
	"slices"

	"github.com/softnd/softnd/nd"
)

// large stands for the 64 MiB of the table: more than a provider moves in one go.
const large = 2 << 20

// lendAll is the active half of the rows whose work is done by the passive side: it lends its
// whole region and waits for a message of no bytes.
func lendAll(s *side, flags nd.RegionFlags) *conn {
	c := s.pair(shape{Region: large, Flags: flags, Before: filled(1)})
	c.must(c.ep.Receive(9, c.sge(0, large))) // over the memory that is lent
	c.lend(0, large, nd.AllowRead|nd.AllowWrite)
	c.carried(c.received(nd.Success, 9), 0)
	return c
}

// borrowAll is the passive half's part before its work, finish the one after it.
func borrowAll(s *side, flags nd.RegionFlags) (*conn, nd.WindowDescriptor) {
	c := s.pair(shape{Region: large, Flags: flags})
	return c, c.borrow()
}

func (c *conn) finish() {
	c.must(c.ep.Send(99, nil, 0))
	c.done(nd.Success, 99)
}

// fetch reads into the region and waits for the result.
func (c *conn) fetch(off, n int, addr uint64, t nd.Token) {
	const probe = 0xfe7c
	c.must(c.ep.Read(probe, c.sge(off, n), addr, t, 0))
	c.carried(c.done(nd.Success, probe), n)
}

// store writes out of the region and waits for the result.
func (c *conn) store(off, n int, addr uint64, t nd.Token) {
	const probe = 0x5707
	c.must(c.ep.Write(probe, c.sge(off, n), addr, t, 0))
	c.carried(c.done(nd.Success, probe), n)
}

func invert(b []byte) {
	for i := range b {
		b[i] = ^b[i]
	}
}

var windowScenarios = []scenario{
	{id: "C056", title: "a window over all of a large region (2 MiB)", active: func(s *side) {
		c := s.pair(shape{Region: large})
		w := s.window()
		c.must(c.ep.Bind(0xabcdef, c.memory.mr, w, c.memory.mem, nd.AllowRead|nd.AllowWrite))
		d := w.Descriptor()
		if d.Address != c.memory.mr.Address() || d.Length != large || d.Token == 0 || d.Token != w.RemoteToken() {
			c.errorf("the descriptor is %+v right after Bind", d)
		}
		r := c.done(nd.Success, 0xabcdef)
		if r.RequestType != nd.RequestBind {
			c.errorf("the result is of a %v", r.RequestType)
		}
		s.tell(d)
	}, passive: func(s *side) {
		c := s.pair(shape{})
		d := c.borrow()
		for _, at := range []uint64{0, large - 64} {
			c.fetch(0, 64, d.Address+at, d.Token)
			c.store(0, 64, d.Address+at, d.Token)
		}
	}},
	{id: "C057", title: "a window needs no remote rights of its region", active: func(s *side) {
		const flags = nd.RDMAReadSink | nd.AllowLocalWrite
		c := lendAll(s, flags)
		c.holds(c.memory.mem[64:128], 7)
	}, passive: func(s *side) {
		c, d := borrowAll(s, 0)
		c.fetch(0, 64, d.Address, d.Token)
		c.holds(c.memory.mem[:64], 1)
		fill(c.memory.mem[64:128], 7)
		c.store(64, 64, d.Address+64, d.Token)
		c.finish()
	}},
	{id: "C058", title: "two entries on an endpoint made for one", active: func(s *side) {
		c := s.pair(shape{Limits: nd.EndpointConfig{MaxInitiatorSGE: 1}, Before: filled(3)})
		s.meet()
		c.must(c.ep.Send(1, slices.Concat(c.sge(0, 1024), c.sge(1024, 16)), 0))
		c.carried(c.done(nd.Success, 1), 1040)
	}, passive: func(s *side) {
		c := s.pair(shape{})
		c.must(c.ep.Receive(1, c.sge(0, 2048)))
		s.meet()
		c.carried(c.received(nd.Success, 1), 1040)
		c.holds(c.memory.mem[:1040], 3)
	}},
	{id: "C059", title: "36 bytes of private data in both directions", active: func(s *side) {
		data := make([]byte, 36)
		fill(data, 1)
		c := s.prepare(shape{Data: data})
		c.connect(hear[netip.AddrPort](s))
		c.dataInTwoSteps(2)
		c.complete()
		c.alive()
	}, passive: func(s *side) {
		data := make([]byte, 36)
		fill(data, 2)
		c := s.prepare(shape{Data: data})
		l, addr := s.listen(0)
		s.tell(addr)
		c.request(l)
		c.dataInTwoSteps(1)
		c.must(c.connector.Accept(s.ctx, c.ep, c.shape.params()))
		c.alive()
	}},
	{id: "C060", title: "a Read sees what a message carried along (2 MiB)", active: func(s *side) {
		c := s.pair(shape{Region: large, Before: filled(1)})
		d := c.bind(s.window(), 0, large, nd.AllowRead)
		words, err := d.MarshalBinary()
		s.must(err)
		note := s.region(len(words), 0)
		copy(note.mem, words)
		s.meet()
		c.must(c.ep.Send(1, append(note.sge(0, len(note.mem)), c.sge(large/2, 1024)...), 0))
		c.done(nd.Success, 1)
	}, passive: func(s *side) {
		c := s.pair(shape{})
		c.must(c.ep.Receive(1, c.sge(0, 2048)))
		s.meet()
		n := int(c.received(nd.Success, 1).BytesTransferred) - 1024
		var d nd.WindowDescriptor
		s.must(d.UnmarshalBinary(c.memory.mem[:n]))
		c.fetch(4096, 1024, d.Address+large/2, d.Token)
		if !bytes.Equal(c.memory.mem[4096:][:1024], c.memory.mem[n:][:1024]) {
			c.errorf("the Read and the message differ")
		}
	}},
	{id: "C061", title: "half of a large window in one Read (2 MiB)", active: func(s *side) {
		lendAll(s, 0)
	}, passive: func(s *side) {
		c, d := borrowAll(s, 0)
		const n = large/2 - 1024
		c.fetch(512, n, d.Address, d.Token)
		c.holds(c.memory.mem[512:][:n], 1)
		c.blank(c.memory.mem[:512])
		c.blank(c.memory.mem[512+n:])
		c.finish()
	}},
	{id: "C062", title: "a region without RDMAReadSink takes a Read", active: func(s *side) {
		lendAll(s, 0)
	}, passive: func(s *side) {
		c, d := borrowAll(s, nd.AllowLocalWrite|nd.AllowRemoteRead|nd.AllowRemoteWrite)
		c.fetch(0, 4096, d.Address, d.Token)
		c.holds(c.memory.mem[:4096], 1)
		c.finish()
	}},
	{id: "C063", title: "Writes are there when a later message is (2 MiB)", active: func(s *side) {
		c := lendAll(s, 0)
		invert(c.memory.mem)
		c.holds(c.memory.mem, 1)
	}, passive: func(s *side) {
		c, d := borrowAll(s, 0)
		c.fetch(0, large, d.Address, d.Token)
		invert(c.memory.mem)
		c.store(0, large/2, d.Address, d.Token)
		c.store(large/2, large/2, d.Address+large/2, d.Token)
		c.finish()
	}},
	{id: "C064", title: "a message of no bytes leaves its Receive's memory alone", active: func(s *side) {
		c := lendAll(s, 0) // checks the byte count
		c.holds(c.memory.mem, 1)
	}, passive: func(s *side) {
		c, _ := borrowAll(s, 0)
		c.finish()
	}},
	{id: "C065", title: "many Writes of 4 bytes, from the end to the start (4,096)", active: func(s *side) {
		c := lendAll(s, 0)
		want := make([]byte, mirrored)
		fill(want, 5)
		for i := 0; i < mirrored; i += 4 {
			if !bytes.Equal(c.memory.mem[i:i+4], want[mirrored-4-i:][:4]) {
				c.fatalf("the word at %d is not the one from %d", i, mirrored-4-i)
			}
		}
	}, passive: func(s *side) {
		c, d := borrowAll(s, 0)
		fill(c.memory.mem[:mirrored], 5)
		const depth, n = 16, mirrored / 4
		for i := range n + depth {
			if i >= depth {
				c.carried(c.done(nd.Success, uint64(i-depth)), 4)
			}
			if i < n {
				c.must(c.ep.Write(uint64(i), c.sge(4*i, 4), d.Address+uint64(mirrored-4-4*i), d.Token, 0))
			}
		}
		c.finish()
	}},
	{id: "C066", title: "regions and windows released after Disconnect, the window still bound", active: func(s *side) {
		c := lendAll(s, 0)
		c.disconnect()
		s.must(c.memory.mr.Deregister(s.ctx))
		s.must(c.memory.mr.Close())
	}, passive: func(s *side) {
		c, d := borrowAll(s, 0)
		c.fetch(0, 64, d.Address, d.Token)
		c.finish()
		c.disconnect()
		s.must(c.memory.mr.Deregister(s.ctx))
		s.must(c.memory.mr.Close())
	}},
	{id: "C067", title: "Reads one after the other with read limits of 1", active: func(s *side) {
		c := s.pair(shape{In: 1, Out: 1, Before: filled(1)})
		c.limits(1, 1)
		c.lend(0, 4096, nd.AllowRead)
	}, passive: func(s *side) {
		c := s.pair(shape{In: 1, Out: 1})
		c.limits(1, 1)
		d := c.borrow()
		for at := range 8 {
			c.fetch(512*at, 512, d.Address+uint64(512*at), d.Token)
		}
		c.holds(c.memory.mem[:4096], 1)
	}},
}

// mirrored is the size of what C065 mirrors.
const mirrored = 4 * 4096

// dataInTwoSteps asks for the peer's 36 bytes of private data as programs do: the size first.
func (c *conn) dataInTwoSteps(seed uint64) {
	n, err := c.connector.GetPrivateData(nil)
	c.want(nd.BufferOverflow, err)
	if n != 36 {
		c.fatalf("%d bytes of private data, want 36", n)
	}
	data := make([]byte, n)
	_, err = c.connector.GetPrivateData(data)
	c.must(err)
	c.holds(data, seed)
}

// limits checks the connection's read limits.
func (c *conn) limits(in, out int) {
	gotIn, gotOut, err := c.connector.ReadLimits()
	c.must(err)
	if gotIn != in || gotOut != out {
		c.errorf("read limits %d and %d, want %d and %d", gotIn, gotOut, in, out)
	}
}
