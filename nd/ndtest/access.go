package ndtest

import (
	"bytes"
	"hash/crc32"

	"github.com/softnd/softnd/nd"
)

// Words about grants: memory that peers use through a window or a region's token, and the end of
// that use.

const readWrite = nd.AllowRead | nd.AllowWrite

// writeAndCheck checks how a Write of n bytes of the region from off on, to place at of d, ends.
func (c *conn) writeAndCheck(status nd.Status, off, n int, d nd.WindowDescriptor, at int) {
	const probe = 0x3717e
	c.must(c.ep.Write(probe, c.sge(off, n), d.Address+uint64(at), d.Token, 0))
	c.wantResult(status, probe)
}

// readAndCheck checks how a Read of n bytes from place at of d, to the region from off on, ends.
func (c *conn) readAndCheck(status nd.Status, off, n int, d nd.WindowDescriptor, at int) {
	const probe = 0x4ead
	c.must(c.ep.Read(probe, c.sge(off, n), d.Address+uint64(at), d.Token, 0))
	c.wantResult(status, probe)
}

// wantBroken checks that the connection has failed. Results must have been taken.
func (c *conn) wantBroken() {
	c.wantDisconnected()
	c.wantErrorState()
}

// wantWriteRefused checks that the peer refuses a Write, and that this ends the connection; isOver is
// the peer's half of it.
func (c *conn) wantWriteRefused(off, n int, d nd.WindowDescriptor, at int) {
	c.writeAndCheck(nd.AccessViolation, off, n, d, at)
	c.wantBroken()
}

// wantReadRefused is refusedWrite for a Read.
func (c *conn) wantReadRefused(off, n int, d nd.WindowDescriptor, at int) {
	c.readAndCheck(nd.AccessViolation, off, n, d, at)
	c.wantBroken()
}

// anotherConn makes one more connection of the same adapter, with the same queues and region; both
// halves call it.
func (c *conn) anotherConn() *conn { return c.pair(connOptions{ShareWith: c}) }

// moreConns is another, n times.
func (c *conn) moreConns(n int) []*conn {
	var list []*conn
	for range n {
		list = append(list, c.anotherConn())
	}
	return list
}

// closeConnection releases what a connection does not share with others.
func (c *conn) closeConnection() {
	c.must(c.ep.Close())
	c.must(c.connector.Close())
}

// setAll sets every byte of b to v. It begins at the end, where a copy that goes on wrongly has
// not yet been.
func setAll(b []byte, v byte) {
	stripe := bytes.Repeat([]byte{v}, 64<<10)
	for len(b) > 0 {
		n := min(len(b), len(stripe))
		copy(b[len(b)-n:], stripe)
		b = b[:len(b)-n]
	}
}

// wantAll checks that every byte of b is v.
func (s *side) wantAll(b []byte, v byte) {
	if n := bytes.Count(b, []byte{v}); n != len(b) {
		s.fatalf("%d of %d bytes are not %d", len(b)-n, len(b), v)
	}
}

// checksumBackward is a checksum that begins at the end of b, for the reason that paint does.
func checksumBackward(b []byte) (sum uint32) {
	const stripe = 64 << 10
	for len(b) > 0 {
		n := min(len(b), stripe)
		sum = crc32.Update(sum, crc32.IEEETable, b[len(b)-n:])
		b = b[:len(b)-n]
	}
	return sum
}
