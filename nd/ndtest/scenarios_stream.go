package ndtest

import "github.com/softnd/softnd/nd"

// maxStreamSize is the size of the largest message of a stream; 4 MiB in the table.
const maxStreamSize = 1 << 20

// streamSizes returns the powers of 2 from 1 to maxStreamSize.
func streamSizes() (sizes []int) {
	for n := 1; n <= maxStreamSize; n *= 2 {
		sizes = append(sizes, n)
	}
	return sizes
}

// credits is the number of messages that may be outstanding. Each needs a Receive.
const credits = 2

// perSize is the number of messages of each size.
const perSize = 3

// split returns a list of n bytes at offset off with at most the given number of entries: a header of
// 40 bytes, and the rest in equal parts.
func (c *conn) split(off, n, entries int) nd.SGL {
	const header = 40
	if entries == 1 || n <= header {
		return c.sge(off, n)
	}
	list := []nd.SGE{c.sge(off, header).First}
	part := max((n-header)/(entries-1), 1)
	for at := header; at < n; {
		if len(list) == entries-1 {
			part = n - at
		}
		part = min(part, n-at)
		list = append(list, c.sge(off+at, part).First)
		at += part
	}
	return nd.List(list...)
}

// entryCount returns the number of entries of message i, which varies.
func (c *conn) entryCount(i int) int { return 1 + i%min(4, int(c.info.MaxInitiatorSGE)) }

// streamSend sends perSize messages of each size, as far as it has credits.
func streamSend(s *side) {
	c := s.pair(connOptions{RegionSize: credits*maxStreamSize + 64, SplitCQs: true})
	for i := range uint64(credits) {
		c.must(c.ep.Receive(i, c.sge(credits*maxStreamSize, 1)))
	}
	s.barrier()
	i := 0
	for _, n := range streamSizes() {
		for range perSize {
			if i >= credits {
				c.wantLength(c.wantReceive(nd.Success, uint64(i-credits)), 1)
				c.must(c.ep.Receive(uint64(i), c.sge(credits*maxStreamSize, 1)))
				c.wantResult(nd.Success, uint64(i-credits))
			}
			off := i % credits * maxStreamSize
			fill(c.memory.mem[off:off+n], uint64(i))
			c.must(c.ep.Send(uint64(i), c.split(off, n, c.entryCount(i)), 0))
			i++
		}
	}
	for j := i - credits; j < i; j++ {
		c.wantResult(nd.Success, uint64(j))
		c.wantReceive(nd.Success, uint64(j))
	}
}

// streamReceive receives the stream and sends a credit for each message.
func streamReceive(s *side) {
	c := s.pair(connOptions{RegionSize: credits * maxStreamSize, SplitCQs: true})
	offer := func(i int) {
		c.must(c.ep.Receive(uint64(i), c.split(i%credits*maxStreamSize, maxStreamSize, c.entryCount(i+1))))
	}
	for i := range credits {
		offer(i)
	}
	s.barrier()
	i := 0
	for _, n := range streamSizes() {
		for range perSize {
			c.wantLength(c.wantReceive(nd.Success, uint64(i)), n)
			c.wantPattern(c.memory.mem[i%credits*maxStreamSize:][:n], uint64(i))
			offer(i + credits)
			c.must(c.ep.Send(uint64(i), c.sge(0, 1), 0))
			c.wantResult(nd.Success, uint64(i))
			i++
		}
	}
}
