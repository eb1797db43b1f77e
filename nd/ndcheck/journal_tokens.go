package ndcheck

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/softnd/softnd/nd"
)

// kind is the kind of object that issued a token.
type kind uint8

const (
	localToken  kind = iota + 1 // of a region, for scatter/gather entries
	regionToken                 // of a region, for peers
	windowToken
)

// tokenRecord describes a token to all processes.
type tokenRecord struct {
	token         nd.Token
	kind          kind
	live          bool
	cut           bool // it ended together with its connection
	read, write   bool // the access that it grants
	atomic        bool // peers may use atomics
	rank          int
	object        uint32 // number of the region or window in its process; 0 = a privileged token
	adapter       uint32
	link          uint64 // the only connection that it is valid on; 0 = any
	base, length  uint64 // as peers name the bytes
	memory        uint64 // address of the first byte in the owner; 0 = the bytes are not contiguous
	issued, ended int64
	endRank       int    // of the process that ended it
	writes        uint32 // Writes of peers so far
	firstWrite    int64  // when it was posted
	site, endSite string
}

// String names the token for a report.
func (r tokenRecord) String() string {
	if r.object == 0 {
		return fmt.Sprintf("privileged token of adapter %d of rank %d", r.adapter, r.rank)
	}
	object := [...]string{"unknown token of object", "local token of region", "remote token of region", "token of window"}[r.kind&3]
	return fmt.Sprintf("%s %d of rank %d", object, r.object, r.rank)
}

func (r *tokenRecord) decode(b []byte) {
	le := binary.LittleEndian
	*r = tokenRecord{
		token: nd.Token(le.Uint32(b)), kind: kind(b[4]), live: b[5] == 1, cut: b[5] == 2, read: b[6] != 0, write: b[7]&1 != 0, atomic: b[7]&2 != 0,
		rank: int(int32(le.Uint32(b[8:]))), object: le.Uint32(b[12:]), adapter: le.Uint32(b[16:]),
		base: le.Uint64(b[24:]), length: le.Uint64(b[32:]), issued: int64(le.Uint64(b[40:])), ended: int64(le.Uint64(b[48:])), writes: le.Uint32(b[56:]), endRank: int(int32(le.Uint32(b[60:]))),
		firstWrite: int64(le.Uint64(b[64:])), memory: le.Uint64(b[72:]), link: le.Uint64(b[80:]),
		site: getString(b[tokenHeader : tokenHeader+siteSize]), endSite: getString(b[tokenHeader+siteSize : tokenSize]),
	}
}

func (r *tokenRecord) encode(b []byte) {
	le := binary.LittleEndian
	flag := func(v bool) byte {
		if v {
			return 1
		}
		return 0
	}
	le.PutUint32(b, uint32(r.token))
	b[4], b[5], b[6], b[7] = byte(r.kind), flag(r.live), flag(r.read), flag(r.write)|flag(r.atomic)<<1
	if r.cut {
		b[5] = 2
	}
	le.PutUint32(b[8:], uint32(r.rank))
	le.PutUint32(b[12:], r.object)
	le.PutUint32(b[16:], r.adapter)
	le.PutUint64(b[24:], r.base)
	le.PutUint64(b[32:], r.length)
	le.PutUint64(b[40:], uint64(r.issued))
	le.PutUint64(b[48:], uint64(r.ended))
	le.PutUint32(b[56:], r.writes)
	le.PutUint32(b[60:], uint32(r.endRank))
	le.PutUint64(b[64:], uint64(r.firstWrite))
	le.PutUint64(b[72:], r.memory)
	le.PutUint64(b[80:], r.link)
	putString(b[tokenHeader:tokenHeader+siteSize], r.site)
	putString(b[tokenHeader+siteSize:tokenSize], r.endSite)
}

// probes is how many records a token may be stored in. If all are taken by others, the oldest is forgotten.
const probes = 8

// hash returns a number whose upper bits depend on all bits of the token.
func hash(token nd.Token) uint32 { return uint32(token) * 2654435761 }

func (j *Journal) tokenSlot(token nd.Token, i int) []byte {
	at := (hash(token)>>(32-15) + uint32(i)) % maxTokens
	return j.memory[tokensAt+int(at)*tokenSize:][:tokenSize]
}

// findToken returns the record of the latest issue of a token. certain is false if there is none although the token
// may exist.
func (j *Journal) findToken(token nd.Token) (r tokenRecord, ok, certain bool) {
	if !j.begin() {
		return r, false, false
	}
	defer j.end()
	_, r, ok = j.lookUp(token)
	return r, ok, ok || !j.mayBeForgotten(token)
}

// forgottenBit returns the bit that says that the record of a token, or of another one, was forgotten.
func (j *Journal) forgottenBit(token nd.Token) (b *byte, bit byte) {
	n := hash(token) >> (32 - 17) % (8 * forgottenSize)
	return &j.memory[forgottenAt+int(n/8)], 1 << (n % 8)
}

func (j *Journal) mayBeForgotten(token nd.Token) bool {
	b, bit := j.forgottenBit(token)
	return *b&bit != 0
}

func (j *Journal) lookUp(token nd.Token) (slot []byte, r tokenRecord, ok bool) {
	slot, ok = j.tokenSlotOf(token)
	if ok {
		r.decode(slot)
	}
	return slot, r, ok
}

func (j *Journal) tokenSlotOf(token nd.Token) (slot []byte, ok bool) {
	for i := range probes {
		slot = j.tokenSlot(token, i)
		if nd.Token(binary.LittleEndian.Uint32(slot)) == token {
			return slot, token != 0
		}
	}
	return nil, false
}

// issue stores the record of a token that has just been issued.
func (j *Journal) issue(r tokenRecord) {
	if r.token == 0 {
		return
	}
	r.live, r.issued = true, now()
	j.update(func() {
		if slot, _, ok := j.lookUp(r.token); ok {
			r.encode(slot)
			return
		}
		slot, oldest := j.tokenSlot(r.token, 0), tokenRecord{}
		for i := range probes {
			var other tokenRecord
			b := j.tokenSlot(r.token, i)
			if other.decode(b); other.token == 0 {
				slot, oldest = b, other
				break
			}
			if i == 0 || oldest.live && !other.live || oldest.live == other.live && other.issued < oldest.issued {
				slot, oldest = b, other
			}
		}
		if oldest.token != 0 {
			b, bit := j.forgottenBit(oldest.token)
			*b |= bit
		}
		r.encode(slot)
	})
}

// change applies f to the record of a token, if there is one. It returns what update returns.
func (j *Journal) change(token nd.Token, f func(r *tokenRecord)) (isDone bool) {
	return j.update(func() {
		if slot, r, ok := j.lookUp(token); ok {
			f(&r)
			r.encode(slot)
		}
	})
}

// withdraw notes that a process has made a token invalid, at site. An announcement has named the reason before. It
// returns what the record was before, if it is known.
func (j *Journal) withdraw(token nd.Token, rank int, site string, at int64) (before tokenRecord, ok bool) {
	var known tokenRecord
	var isKnown bool
	isDone := j.change(token, func(r *tokenRecord) {
		known, isKnown = *r, true
		if r.live && r.ended == 0 {
			r.ended, r.endRank, r.endSite = at, rank, site
		}
		r.live, r.cut = false, false
	})
	if !isDone { // another goroutine may store the result at this moment
		return before, false
	}
	return known, isKnown
}

// cutOff notes that a token has ended together with its connection.
func (j *Journal) cutOff(token nd.Token) {
	j.change(token, func(r *tokenRecord) { r.cut = true })
}

// announce notes that a process is about to make a token invalid by a message.
func (j *Journal) announce(token nd.Token, rank int, site string, at int64) {
	j.change(token, func(r *tokenRecord) {
		if r.live && r.ended == 0 {
			r.ended, r.endRank, r.endSite = at, rank, site
		}
	})
}

// retract takes an announcement back: the provider has refused the message, or it has failed.
func (j *Journal) retract(token nd.Token, rank int, at int64) {
	j.change(token, func(r *tokenRecord) {
		if r.live && r.ended == at && r.endRank == rank {
			r.ended, r.endRank, r.endSite = 0, 0, ""
		}
	})
}

// wrote is a Write that has succeeded.
type wrote struct {
	token    nd.Token
	posted   int64
	isKnown  bool // where it has stored its bytes: the end of its access notes them
	owner    int  // if it is not known: the peer, which has the bytes somewhere
	isAtomic bool
}

// finish notes that requests of a rank are complete.
func (j *Journal) finish(rank int, b batch) {
	b.closed = slices.DeleteFunc(b.closed, func(n uint32) bool { return n == 0 })
	if len(b.closed)+len(b.wrote) == 0 {
		return
	}
	for _, w := range b.wrote {
		if !w.isKnown {
			j.missWrite(w.owner, now())
		}
	}
	j.update(func() {
		j.closeAll(b.closed)
		for _, w := range b.wrote {
			if slot, ok := j.tokenSlotOf(w.token); ok && !w.isAtomic { // the owner may look at a number that atomics change
				le := binary.LittleEndian
				if le.PutUint32(slot[56:], le.Uint32(slot[56:])+1); le.Uint32(slot[56:]) == 1 {
					le.PutUint64(slot[64:], uint64(w.posted))
				}
			}
		}
	})
}
