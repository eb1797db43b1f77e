package traffic

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"

	"github.com/cespare/xxhash/v2"

	"github.com/softnd/softnd/nd"
)

// Memory of a session that its requests send from and read into.

const (
	chunk  = 256 << 10 // window.ChunkSize: the bytes between two checks of the tokens
	small  = 4 << 10
	medium = 24 << 10
	big    = chunk + 64<<10
)

// blockSizes are the sizes of the blocks of each of the two regions.
var blockSizes = []int{small, small, small, medium, medium, big}

// blocksSize is the size of their memory.
var blocksSize = func() (n int) {
	for _, size := range blockSizes {
		n += size
	}
	return n
}()

// block is a part of a region that one request uses at a time.
type block struct {
	memory []byte
	token  nd.Token
	used   bool
}

// pool hands out blocks.
type pool []*block

// add adds the blocks of a region.
func (p *pool) add(mr nd.MemoryRegion) {
	at := 0
	for _, size := range blockSizes {
		*p = append(*p, &block{memory: mr.Bytes()[at:][:size:size], token: mr.LocalToken()})
		at += size
	}
}

// transfer is the memory of one transfer, in up to four entries. Its entries are of both regions.
type transfer struct {
	sge    []nd.SGE
	blocks []*block
	users  int // requests that need it
}

// load returns memory of n bytes, or nil if too many blocks are in use.
func (p pool) load(r *rand.Rand, n int) *transfer {
	c := &transfer{users: 1}
	for parts := 1 + r.IntN(2); n > 0 || len(c.sge) == 0; parts-- {
		k := n
		if parts > 1 && n > 1 {
			k = 1 + r.IntN(n-1)
		}
		b := p.free(r, k)
		if b == nil {
			c.drop()
			return nil
		}
		b.used = true
		c.blocks = append(c.blocks, b)
		at := r.IntN(len(b.memory) - k + 1)
		if cut := r.IntN(k + 1); cut > 0 && cut < k && r.IntN(3) == 0 {
			c.sge = append(c.sge, nd.SGE{Buffer: b.memory[at:][:cut], Token: b.token}, nd.SGE{Buffer: b.memory[at+cut:][:k-cut], Token: b.token})
		} else {
			c.sge = append(c.sge, nd.SGE{Buffer: b.memory[at:][:k], Token: b.token})
		}
		n -= k
	}
	return c
}

// free returns the smallest block that is free and has n bytes, of a random region.
func (p pool) free(r *rand.Rand, n int) (best *block) {
	for _, i := range r.Perm(len(p)) {
		if b := p[i]; !b.used && len(b.memory) >= n && (best == nil || len(b.memory) < len(best.memory)) {
			best = b
		}
	}
	return best
}

// drop ends the use by one request.
func (c *transfer) drop() {
	if c.users--; c.users <= 0 {
		for _, b := range c.blocks {
			b.used = false
		}
		c.blocks = nil
	}
}

// fill stores the bytes of data, which has as many as the transfer.
func (c *transfer) fill(data []byte) {
	for _, e := range c.sge {
		data = data[copy(e.Buffer, data):]
	}
}

// set stores one byte everywhere.
func (c *transfer) set(b byte) {
	for _, e := range c.sge {
		setAll(e.Buffer, b)
	}
}

// sum returns the hash of the bytes.
func (c *transfer) sum() uint64 {
	var d xxhash.Digest
	d.Reset()
	for _, e := range c.sge {
		d.Write(e.Buffer)
	}
	return d.Sum64()
}

// has reports whether a byte occurs.
func (c *transfer) has(b byte) bool {
	for _, e := range c.sge {
		if bytes.IndexByte(e.Buffer, b) >= 0 {
			return true
		}
	}
	return false
}

// copied returns a copy of the bytes in memory that is not registered, as one entry.
func (c *transfer) copied() nd.SGL {
	var b []byte
	for _, e := range c.sge {
		b = append(b, e.Buffer...)
	}
	return nd.One(nd.SGE{Buffer: b})
}

// noise is random bytes, the same in all processes. Data is cut out of it. No byte of it is poison.
var noise = func() []byte {
	b := make([]byte, 2<<20)
	r := rand.New(rand.NewPCG(1, 2))
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], r.Uint64()&0x7f7f_7f7f_7f7f_7f7f)
	}
	return b
}()

// Bytes of memory that must not be seen, and must not change.
const (
	poison  = 0xee // stored when the access to memory has ended
	guarded = 0x22 // in memory whose access ends under way
	fired   = 0x11 // written to such memory
	cleared = 0x33 // in the memory of Reads before they run
)

// patternOf is what peers read of a rank's memory.
func patternOf(rank int) []byte { return noise[rank*patternSize/2:][:patternSize] }
