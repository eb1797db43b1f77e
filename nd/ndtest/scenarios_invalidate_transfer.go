package ndtest

import (
	"bytes"

	"github.com/softnd/softnd/nd"
)

// Transfers whose window is invalidated while they are in progress. The transfer may already be complete
// when Invalidate takes effect, so there are several attempts, each with connections of its own.
const (
	longTransfer = 8 << 20
	attempts     = 4

	beforeRevoke byte = 1 // in the owner's memory before the revocation
	afterRevoke  byte = 2 // stored there by the owner after the revocation
	byPeer       byte = 3 // written by peers
)

// writeDuringInvalidate writes to all of the owner's memory in each attempt.
func writeDuringInvalidate(s *side) {
	transferDuringInvalidate(s, func(c *conn, d nd.WindowDescriptor) error {
		return c.ep.Write(1, c.sge(0, longTransfer), d.Address, d.Token, 0)
	}, func(*conn, nd.Status) {})
}

// readDuringInvalidate reads all of the owner's memory in each attempt, and checks the bytes.
func readDuringInvalidate(s *side) {
	transferDuringInvalidate(s, func(c *conn, d nd.WindowDescriptor) error {
		return c.ep.Read(1, c.sge(0, longTransfer), d.Address, d.Token, 0)
	}, func(c *conn, status nd.Status) {
		if bytes.IndexByte(c.memory.mem, afterRevoke) >= 0 {
			s.errorf("a Read with result %v has returned bytes that were stored after the result of Invalidate, want none", status)
		}
		if status == nd.Success {
			s.wantAll(c.memory.mem, beforeRevoke)
		}
	})
}

// transferDuringInvalidate starts a transfer in each attempt, while the owner invalidates the window.
// check is called with the status of its result.
func transferDuringInvalidate(s *side, start func(*conn, nd.WindowDescriptor) error, check func(*conn, nd.Status)) {
	base := s.pair(connOptions{RegionSize: longTransfer})
	cut := 0
	for range attempts {
		c, late := base.anotherConn(), base.anotherConn()
		setAll(c.memory.mem, byPeer)
		d := hear[nd.WindowDescriptor](s)
		c.must(start(c, d))
		s.tell("started")
		r := c.nextResult(true)
		s.tell(r.Status)
		check(c, r.Status)
		c.checkAfterRevocation(r.Status)
		if r.Status != nd.Success {
			cut++
		}
		late.wantWriteRefused(0, 8, d, longTransfer-8)
		c.closeConnection()
		late.closeConnection()
		s.barrier()
	}
	s.logf("%d of %d transfers ended by the invalidation of their window", cut, attempts)
	base.wantAlive()
}

// checkAfterRevocation checks the connection of a transfer that ended with this status during a
// revocation. After Success the connection is alive, after AccessViolation it is broken.
func (c *conn) checkAfterRevocation(status nd.Status) {
	switch status {
	case nd.Success:
		c.wantAlive()
	case nd.AccessViolation:
		c.wantBroken()
	default:
		c.fatalf("result of a transfer during the revocation: %v, want Success or AccessViolation", status)
	}
}

// invalidateDuringTransfer invalidates the window in each attempt and calls check right after the result
// of Invalidate. The function tried blocks until the peer's transfer has ended and a further Write was
// refused.
func invalidateDuringTransfer(s *side, check func(mem []byte, tried func())) {
	base := s.pair(connOptions{RegionSize: longTransfer})
	w := s.newWindow()
	for range attempts {
		c, late := base.anotherConn(), base.anotherConn()
		setAll(c.memory.mem, beforeRevoke)
		s.tell(c.bind(w, 0, longTransfer, readWrite))
		hear[string](s)
		c.invalidate(w)
		check(c.memory.mem, func() {
			c.checkAfterRevocation(hear[nd.Status](s))
			late.wantBroken()
		})
		c.closeConnection()
		late.closeConnection()
		s.barrier()
	}
	base.wantAlive()
}

// The Reads before a fenced Invalidate. They are long, and there are several trials, so that a window that
// is invalidated too early is detected.
const (
	fencedReads  = 4
	fencedRead   = 2 << 20
	fencedTotal  = fencedReads * fencedRead
	fencedTrials = 6
)

// fencedInvalidatePeer is the source of the Reads. Meanwhile it reads through the window until that is
// refused.
func fencedInvalidatePeer(s *side) {
	c := s.pair(connOptions{RegionSize: fencedTotal + 64})
	source := c.memory.mem[:fencedTotal]
	for range fencedTrials {
		late := c.anotherConn()
		setAll(source, byPeer)
		d := hear[nd.WindowDescriptor](s)
		late.readAndCheck(nd.Success, fencedTotal, 1, d, 0)
		s.tell("looking")
		for {
			s.must(late.ep.Read(1, late.sge(fencedTotal, 1), d.Address, d.Token, 0))
			if r := late.nextResult(true); r.Status != nd.Success {
				late.checkResult(r, nd.AccessViolation, 1)
				break
			}
		}
		setAll(source, afterRevoke) // a Read that has not copied its data yet reads wrong bytes
		s.tell("refused")
		late.wantBroken()
		late.closeConnection()
	}
	c.wantAlive()
}

// fencedInvalidateOwner posts Reads into the memory of a window, and then a fenced Invalidate of it.
func fencedInvalidateOwner(s *side) {
	c := s.pair(connOptions{RegionSize: fencedTotal, OutboundReads: fencedReads})
	w := s.newWindow()
	for range fencedTrials {
		late := c.anotherConn()
		setAll(c.memory.mem, beforeRevoke)
		s.tell(c.bind(w, 0, fencedTotal, nd.AllowRead))
		hear[string](s) // the peer reads through the window, so that it detects the invalidation at once
		for i := range fencedReads {
			at := i * fencedRead
			c.must(c.ep.Read(uint64(i), c.sge(at, fencedRead), c.peerRegion.Address+uint64(at), c.peerRegion.Token, 0))
		}
		c.must(c.ep.Invalidate(fencedReads, w, nd.ReadFence))
		hear[string](s)
		s.wantAll(c.memory.mem, byPeer) // although this side has not polled
		for i := range uint64(fencedReads) {
			if r := c.wantResult(nd.Success, i); r.RequestType != nd.RequestRead {
				s.errorf("result %d is of a %v, want a Read", i, r.RequestType)
			}
		}
		if r := c.wantResult(nd.Success, fencedReads); r.RequestType != nd.RequestInvalidate {
			s.errorf("the last result is of a %v, want an Invalidate", r.RequestType)
		}
		late.wantBroken()
		late.closeConnection()
	}
	c.wantAlive()
}

// fastRegisterOwner fast-registers a region, invalidates it, and registers it again.
func fastRegisterOwner(s *side) {
	const size, base = 10_000, 0x1234000
	c := s.pair(connOptions{})
	memory, err := s.ad.Allocate(s.ctx, size, nd.AllowLocalWrite)
	s.must(err)
	s.cleanup(func() { memory.Close(c.ctx) })
	mapping, err := s.ad.BuildLogicalAddressMapping(s.ctx, memory.Bytes())
	s.mustOrSkip(err)
	s.cleanup(func() { mapping.Close(c.ctx) })
	mr := s.emptyRegion()
	s.mustOrSkip(mr.InitializeFastRegister(s.ctx, len(mapping.Pages()), true))
	register := func() {
		s.must(c.ep.FastRegister(1, nd.FastRegistration{Region: mr, Pages: mapping.Pages(), Offset: mapping.Offset(), Length: size, BaseAddress: base, Rights: allRights}, 0))
		d := nd.WindowDescriptor{Address: base, Length: size, Token: mr.RemoteToken()}
		if r := c.wantResult(nd.Success, 1); r.RequestType != nd.RequestFastRegister {
			s.errorf("result of a %v, want a FastRegister", r.RequestType)
		}
		s.tell(d)
	}
	register()
	s.barrier() // the peer has used it
	s.must(c.ep.InvalidateRegion(2, mr, 0))
	if r := c.wantResult(nd.Success, 2); r.RequestType != nd.RequestInvalidate {
		s.errorf("result of a %v, want an Invalidate", r.RequestType)
	}
	s.wantPattern(memory.Bytes()[50:150], 1)
	register()
	c.wantBroken()
	s.wantPattern(memory.Bytes()[:100], 1)
}
