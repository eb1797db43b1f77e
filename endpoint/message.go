package endpoint

import (
	"encoding/binary"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
	"github.com/softnd/softnd/window"
)

// A message is one ring slot. Word 0 holds its kind (bits 0..7), flags
// (8..15), the length of its payload (16..31) and a token (32..63).
type kind uint8

const (
	// sendInline carries a whole message in words 1..6. Its token, if
	// flagInvalidate is set, is to be invalidated.
	sendInline kind = 1 + iota
	// sendPlaced tells that a message of word 1 bytes lies in the posted
	// receive already.
	sendPlaced
	// sendFailed tells that the posted receive could not be filled; word 1
	// holds its status, word 2 the length of the message.
	sendFailed
	// sendPiece, writePiece and readPiece ask the peer to copy: word 1 is the
	// sender's address, word 2 the length (bits 0..31) and the sender's local
	// token (32..63), word 3 the receiver's address (write, read), word 4 the
	// length of the whole request. The token in word 0 is the
	// receiver's remote token, or the one to be invalidated.
	sendPiece
	writePiece
	readPiece
	// writeInline carries the data in words 2..6 and the address in word 1.
	writeInline
)

const (
	flagFirst uint8 = 1 << iota
	flagLast
	flagInvalidate
	flagAwaited   // the sender waits to hear that the message is done with
	flagSolicited // of a Send: its receive's result is to wake who waits for such ones
)

// marks are the flags that every message of a Send takes from its request.
func (r *request) marks() (flags uint8) {
	if r.invalidate {
		flags |= flagInvalidate
	}
	if r.flags.Has(nd.SendAndSolicitEvent) {
		flags |= flagSolicited
	}
	return flags
}

const (
	inlinePayload      = 8 * (shm.SlotWords - 1)
	inlineWritePayload = 8 * (shm.SlotWords - 2)
)

// message is a decoded slot.
type message struct {
	kind    kind
	flags   uint8
	length  int // of the inline payload
	token   nd.Token
	address uint64 // word 1
	size    uint64
	local   nd.Token
	remote  uint64 // word 3
	total   uint64 // word 4
	payload [inlinePayload]byte

	ours window.Generation // of our token; passes from the first to the last piece of a request
	far  window.Generation // of the sender's token in this piece
}

// head packs word 0.
func head(k kind, flags uint8, length int, token nd.Token) uint64 {
	return uint64(k) | uint64(flags)<<8 | uint64(length)<<16 | uint64(token)<<32
}

// putPayload stores b in the words from first on; what follows b is undefined.
func putPayload(s *shm.Slot, first int, b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		s[first] = binary.NativeEndian.Uint64(b)
		first++
	}
	if len(b) > 0 {
		var last [8]byte
		copy(last[:], b)
		s[first] = binary.NativeEndian.Uint64(last[:])
	}
}

// decode reads a slot, which comes from a peer; false means that no sound
// peer writes such a one.
func (m *message) decode(s *shm.Slot) bool {
	m.kind, m.flags = kind(s[0]), uint8(s[0]>>8)
	m.length, m.token = int(uint16(s[0]>>16)), nd.Token(s[0]>>32)
	if m.far = (window.Generation{}); m.flags&flagFirst != 0 {
		m.ours = window.Generation{}
	}
	first, limit := 1, inlinePayload
	switch m.kind {
	case sendInline:
	case writeInline:
		first, limit = 2, inlineWritePayload
		m.address = s[1]
	case sendPlaced, sendFailed:
		m.address, m.total = s[1], s[2]
		return m.length == 0
	case sendPiece, writePiece, readPiece:
		m.address, m.size, m.local = s[1], uint64(uint32(s[2])), nd.Token(s[2]>>32)
		m.remote, m.total = s[3], s[4]
		return m.length == 0
	default:
		return false
	}
	if m.length > limit {
		return false
	}
	for i := 0; i < m.length; i += 8 {
		binary.NativeEndian.PutUint64(m.payload[i:], s[first+i/8])
	}
	return true
}

// piece packs a request to copy.
func piece(k kind, flags uint8, token nd.Token, e entry, remote, total uint64) shm.Slot {
	return shm.Slot{head(k, flags, 0, token), e.address, uint64(e.length) | uint64(e.token)<<32, remote, total}
}
