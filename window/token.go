package window

// TWIN c/src/window/table.c.

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// A token has the index of its entry (20 bits) and a tag (12 bits). Each bind of an entry has a
// number, and the tag is the lower part of that number. So a stale token is refused for the 4,095
// binds that follow it. The first number is hashed from the arena's secret, so that a token cannot
// be guessed by counting. Index 0 is never used, so no token is 0.
//
// The upper part of the number is the generation, which only the entry's word has. A request that
// has begun does not continue under another bind of the same token for 2^32 binds. See [BindCheck].
const (
	indexBits      = 20
	tagBits        = 12
	tagMask        = 1<<tagBits - 1
	generationBits = 32 - tagBits

	_ = uint(shm.WindowEntries - 1<<indexBits) // an index has exactly as many values
	_ = uint(1<<indexBits - shm.WindowEntries) // as the table has entries
)

func indexOf(t nd.Token) uint32 { return uint32(t) & (1<<indexBits - 1) }

// makeToken returns the token of a bind of an index.
func makeToken(index, bind uint32) nd.Token {
	return nd.Token(bind&tagMask<<indexBits | index)
}

// bindBaseOf returns the number before that of the first bind of an index.
func bindBaseOf(secret [2]uint64, index uint32) uint32 {
	var b [20]byte
	binary.LittleEndian.PutUint64(b[0:], secret[0])
	binary.LittleEndian.PutUint64(b[8:], secret[1])
	binary.LittleEndian.PutUint32(b[16:], index)
	return uint32(xxhash.Sum64(b[:])) & tagMask
}

// Rights are the access rights of a token.
type Rights uint8

const (
	Read   Rights = 1 << iota // a remote token: peers may read; a local one: it may be a source
	Write                     // a remote token: peers may write; a local one: it may be a sink
	Remote                    // it is a remote token, for one-sided requests
	Local                     // it is a local token, for scatter/gather entries
	Atomic                    // a remote token: peers may change 8 bytes atomically
)

// entryWord is the word of an entry that executors compare: bits 0..31 are the token, 32..39 its
// rights, 40..59 the generation of its bind; bit 63 is set while the token is valid.
type entryWord uint64

const (
	tokenBits       entryWord = 1<<32 - 1
	validBit        entryWord = 1 << 63
	generationShift           = 40
)

func wordOf(t nd.Token, r Rights) entryWord { return entryWord(t) | entryWord(r)<<32 }

// boundWord returns the word of a bind, with its generation and without the valid bit.
func boundWord(index, bind uint32, r Rights) entryWord {
	return wordOf(makeToken(index, bind), r) | entryWord(bind>>tagBits)<<generationShift
}

func (w entryWord) valid() bool     { return w&validBit != 0 }
func (w entryWord) token() nd.Token { return nd.Token(w) }
func (w entryWord) rights() Rights  { return Rights(w >> 32) }

// allows reports whether the word is that of token t and has all the rights r. The token may be
// invalid.
func (w entryWord) allows(t nd.Token, r Rights) bool {
	return w&(wordOf(t, r)|tokenBits) == wordOf(t, r)
}

// validAndAllows is valid and allows in one comparison.
func (w entryWord) validAndAllows(t nd.Token, r Rights) bool {
	return w&(validBit|wordOf(t, r)|tokenBits) == validBit|wordOf(t, r)
}
