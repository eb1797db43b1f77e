package ndtest

import (
	"bytes"

	"github.com/softnd/softnd/nd"
)

// Transfers that lose their window half-way. Whether one is still in progress when the window
// goes is a matter of luck, so there are some attempts, each with connections of its own.
const (
	longTransfer = 8 << 20
	attempts     = 4

	beforehand byte = 1 // what the owner's memory holds before a window goes
	afterwards byte = 2 // and what the owner writes there then
	written    byte = 3 // what peers write
)

// longWriter writes all of the owner's memory in each attempt.
func longWriter(s *side) {
	longUser(s, func(c *conn, d nd.WindowDescriptor) error {
		return c.ep.Write(1, c.sge(0, longTransfer), d.Address, d.Token, 0)
	}, func(*conn, nd.Status) {})
}

// longReader reads it, and looks at what it got.
func longReader(s *side) {
	longUser(s, func(c *conn, d nd.WindowDescriptor) error {
		return c.ep.Read(1, c.sge(0, longTransfer), d.Address, d.Token, 0)
	}, func(c *conn, status nd.Status) {
		if bytes.IndexByte(c.memory.mem, afterwards) >= 0 {
			s.errorf("a Read that ended with %v has read what was written after the Invalidate", status)
		}
		if status == nd.Success {
			s.painted(c.memory.mem, beforehand)
		}
	})
}

// longUser starts a transfer in each attempt, while the owner takes the window away.
func longUser(s *side, start func(*conn, nd.WindowDescriptor) error, check func(*conn, nd.Status)) {
	base := s.pair(shape{Region: longTransfer})
	cut := 0
	for range attempts {
		c, late := base.another(), base.another()
		paint(c.memory.mem, written)
		d := hear[nd.WindowDescriptor](s)
		c.must(start(c, d))
		s.tell("started")
		r := c.next(true)
		s.tell(r.Status)
		check(c, r.Status)
		c.survivesOnly(r.Status)
		if r.Status != nd.Success {
			cut++
		}
		late.refusedWrite(0, 8, d, longTransfer-8)
		c.shut()
		late.shut()
		s.meet()
	}
	s.logf("%d of %d transfers lost their window before their end", cut, attempts)
	base.alive()
}

// survivesOnly checks what is left of a connection whose transfer ended with this status when its
// grant was taken away.
func (c *conn) survivesOnly(status nd.Status) {
	switch status {
	case nd.Success:
		c.alive()
	case nd.AccessViolation:
		c.isOver()
	default:
		c.fatalf("the transfer ended with %v", status)
	}
}

// cutShort takes the window away in each attempt. check runs as soon as the Invalidate's result
// is there; tried returns when the peer's transfer has ended, and the peer has tried once more.
func cutShort(s *side, check func(mem []byte, tried func())) {
	base := s.pair(shape{Region: longTransfer})
	w := s.window()
	for range attempts {
		c, late := base.another(), base.another()
		paint(c.memory.mem, beforehand)
		s.tell(c.bind(w, 0, longTransfer, readWrite))
		hear[string](s)
		c.invalidate(w)
		check(c.memory.mem, func() {
			c.survivesOnly(hear[nd.Status](s))
			late.isOver()
		})
		c.shut()
		late.shut()
		s.meet()
	}
	base.alive()
}

// The Reads in front of a fenced Invalidate: so many bytes that they take a while, and so many
// times that a window which goes too early is seen to.
const (
	fencedReads  = 4
	fencedRead   = 2 << 20
	fencedTotal  = fencedReads * fencedRead
	fencedTrials = 6
)

// fencedFromAfar is read from while it looks whether the window is still there.
func fencedFromAfar(s *side) {
	c := s.pair(shape{Region: fencedTotal + 64})
	source := c.memory.mem[:fencedTotal]
	for range fencedTrials {
		late := c.another()
		paint(source, written)
		d := hear[nd.WindowDescriptor](s)
		late.reads(nd.Success, fencedTotal, 1, d, 0)
		s.tell("looking")
		for {
			s.must(late.ep.Read(1, late.sge(fencedTotal, 1), d.Address, d.Token, 0))
			if r := late.next(true); r.Status != nd.Success {
				late.check(r, nd.AccessViolation, 1)
				break
			}
		}
		paint(source, afterwards) // what would be read late is read wrong
		s.tell("refused")
		late.isOver()
		late.shut()
	}
	c.alive()
}

// fencedAtHome reads into the memory under a window, and posts the window's end.
func fencedAtHome(s *side) {
	c := s.pair(shape{Region: fencedTotal, Out: fencedReads})
	w := s.window()
	for range fencedTrials {
		late := c.another()
		paint(c.memory.mem, beforehand)
		s.tell(c.bind(w, 0, fencedTotal, nd.AllowRead))
		hear[string](s) // the peer looks, so that it sees the end at once
		for i := range fencedReads {
			at := i * fencedRead
			c.must(c.ep.Read(uint64(i), c.sge(at, fencedRead), c.far.Address+uint64(at), c.far.Token, 0))
		}
		c.must(c.ep.Invalidate(fencedReads, w, nd.ReadFence))
		hear[string](s)
		s.painted(c.memory.mem, written) // although nobody here has looked for a result
		for i := range uint64(fencedReads) {
			if r := c.done(nd.Success, i); r.RequestType != nd.RequestRead {
				s.errorf("result %d is of a %v", i, r.RequestType)
			}
		}
		if r := c.done(nd.Success, fencedReads); r.RequestType != nd.RequestInvalidate {
			s.errorf("the last result is of a %v", r.RequestType)
		}
		late.isOver()
		late.shut()
	}
	c.alive()
}

// fastOwner registers, invalidates and registers again.
func fastOwner(s *side) {
	const size, base = 10_000, 0x1234000
	c := s.pair(shape{})
	memory, err := s.ad.Allocate(s.ctx, size, nd.AllowLocalWrite)
	s.must(err)
	s.atEnd(func() { memory.Close() })
	mapping, err := s.ad.BuildLogicalAddressMapping(s.ctx, memory.Bytes())
	s.optional(err)
	s.atEnd(func() { mapping.Close() })
	mr := s.emptyRegion()
	s.optional(mr.InitializeFastRegister(s.ctx, len(mapping.Pages()), true))
	register := func() {
		s.must(c.ep.FastRegister(1, mr, mapping.Pages(), mapping.Offset(), size, base, allRights, 0))
		d := nd.WindowDescriptor{Address: base, Length: size, Token: mr.RemoteToken()}
		if r := c.done(nd.Success, 1); r.RequestType != nd.RequestFastRegister {
			s.errorf("the result is of a %v", r.RequestType)
		}
		s.tell(d)
	}
	register()
	s.meet() // the peer has used it
	s.must(c.ep.InvalidateRegion(2, mr, 0))
	if r := c.done(nd.Success, 2); r.RequestType != nd.RequestInvalidate {
		s.errorf("the result is of a %v", r.RequestType)
	}
	s.holds(memory.Bytes()[50:150], 1)
	register()
	c.isOver()
	s.holds(memory.Bytes()[:100], 1)
}
