package window

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// A token is the index of its entry (20 bits) and a tag (12 bits), the lower
// part of the number of a bind of the index. So a stale token is refused for
// the 4,095 binds that follow it; where the numbers start is hashed from the
// arena's secret, so a token cannot be guessed by counting. Index 0 is never
// given out, and so no token is 0. The rest of the number, the generation, is
// in the entry's word: a request that has begun is not continued under another
// bind of its token for 2^32 binds. See [Begun].
const (
	indexBits      = 20
	tagBits        = 12
	tagMask        = 1<<tagBits - 1
	generationBits = 32 - tagBits

	_ = uint(shm.WindowEntries - 1<<indexBits) // the table and the index
	_ = uint(1<<indexBits - shm.WindowEntries) // must agree
)

func indexOf(t nd.Token) uint32 { return uint32(t) & (1<<indexBits - 1) }

// makeToken returns the token of a bind of an index.
func makeToken(index, bind uint32) nd.Token {
	return nd.Token(bind&tagMask<<indexBits | index)
}

// firstTag is where the tags of an index start.
func firstTag(secret [2]uint64, index uint32) uint32 {
	var b [20]byte
	binary.LittleEndian.PutUint64(b[0:], secret[0])
	binary.LittleEndian.PutUint64(b[8:], secret[1])
	binary.LittleEndian.PutUint32(b[16:], index)
	return uint32(xxhash.Sum64(b[:])) & tagMask
}

// Rights say what a token allows.
type Rights uint8

const (
	Read   Rights = 1 << iota // peers may read; the owner may use it as a source
	Write                     // peers may write; the owner may use it as a sink
	Remote                    // it is a remote token: for one-sided requests
	Local                     // it is a local token: for scatter/gather entries
)

// entryWord packs the word that executors compare: the token in bits 0..31,
// its rights in bits 32..39, the generation of its bind in bits 40..59, and
// whether it is valid in bit 63.
type entryWord uint64

const (
	validBit        entryWord = 1 << 63
	generationShift           = 40
)

func wordOf(t nd.Token, r Rights) entryWord { return entryWord(t) | entryWord(r)<<32 }

// boundWord is wordOf a bind: it has the generation, too.
func boundWord(index, bind uint32, r Rights) entryWord {
	return wordOf(makeToken(index, bind), r) | entryWord(bind>>tagBits)<<generationShift
}

func (w entryWord) valid() bool     { return w&validBit != 0 }
func (w entryWord) token() nd.Token { return nd.Token(w) }
func (w entryWord) rights() Rights  { return Rights(w >> 32) }
