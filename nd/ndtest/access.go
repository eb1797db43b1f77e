package ndtest

import (
	"bytes"
	"hash/crc32"

	"github.com/softnd/softnd/nd"
)

// Helpers for access by remote token, through a window or a region, and for its revocation.

const readWrite = nd.AllowRead | nd.AllowWrite

// writeAndCheck posts a Write of n bytes of the region at offset off, to offset at of d, and checks
// the status of its result.
func (c *conn) writeAndCheck(status nd.Status, off, n int, d nd.WindowDescriptor, at int) {
	const probe = 0x3717e
	c.must(c.ep.Write(probe, c.sge(off, n), d.Address+uint64(at), d.Token, 0))
	c.wantResult(status, probe)
}

// readAndCheck posts a Read of n bytes at offset at of d, into the region at offset off, and checks
// the status of its result.
func (c *conn) readAndCheck(status nd.Status, off, n int, d nd.WindowDescriptor, at int) {
	const probe = 0x4ead
	c.must(c.ep.Read(probe, c.sge(off, n), d.Address+uint64(at), d.Token, 0))
	c.wantResult(status, probe)
}

// wantBroken checks that the connection has failed. The caller has taken the results of earlier requests.
func (c *conn) wantBroken() {
	c.wantDisconnected()
	c.wantErrorState()
}

// wantWriteRefused checks that a Write fails with AccessViolation and breaks the connection. The other
// side calls wantBroken.
func (c *conn) wantWriteRefused(off, n int, d nd.WindowDescriptor, at int) {
	c.writeAndCheck(nd.AccessViolation, off, n, d, at)
	c.wantBroken()
}

// wantReadRefused is wantWriteRefused for a Read.
func (c *conn) wantReadRefused(off, n int, d nd.WindowDescriptor, at int) {
	c.readAndCheck(nd.AccessViolation, off, n, d, at)
	c.wantBroken()
}

// anotherConn makes another connection of the same adapter, with the same completion queues and
// region. Both sides call it.
func (c *conn) anotherConn() *conn { return c.pair(connOptions{ShareWith: c}) }

// moreConns makes n connections like anotherConn.
func (c *conn) moreConns(n int) []*conn {
	var list []*conn
	for range n {
		list = append(list, c.anotherConn())
	}
	return list
}

// closeConnection closes the endpoint and the connector, which connections do not share.
func (c *conn) closeConnection() {
	c.must(c.ep.Close())
	c.must(c.connector.Close())
}

// setAll sets every byte of b to v, from the end to the start. A copy that wrongly continues has not
// yet reached the end, so it overwrites or reads the new bytes.
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
		s.fatalf("%d of %d bytes have another value than %d", len(b)-n, len(b), v)
	}
}

// checksumBackward returns a checksum of b. It reads from the end to the start, for the same reason as
// setAll.
func checksumBackward(b []byte) (sum uint32) {
	const stripe = 64 << 10
	for len(b) > 0 {
		n := min(len(b), stripe)
		sum = crc32.Update(sum, crc32.IEEETable, b[len(b)-n:])
		b = b[:len(b)-n]
	}
	return sum
}
