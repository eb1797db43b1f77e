package wire

// TWIN c/src/endpoint/entry.h, c/src/endpoint/entry.c.

import (
	"encoding/binary"

	"github.com/softnd/softnd/endpoint/internal/ring"
	"github.com/softnd/softnd/nd"
)

// Kind says what a ring entry asks of the receiver.
type Kind uint8

const (
	// SendInEntry carries a whole message in words 1..6. It is used with and without [nd.Inline].
	// With FlagInvalidate, the header's token names the window or region to invalidate.
	SendInEntry Kind = 1 + iota
	// SendPlaced reports a message that the sender has copied into the posted receive. Word 1
	// is its length in bytes.
	SendPlaced
	// SendFailed reports that the sender could not fill the posted receive. Word 1 is the
	// receive's status, word 2 the length of the message.
	SendFailed
	// SendFragment, WriteFragment and ReadFragment ask the receiver to copy. Word 1 is the
	// sender's address. Word 2 is the length (bits 0..31) and the sender's local token (32..63).
	// Word 3 is the receiver's address (Write and Read). Word 4 is the length of the whole
	// request. The header's token is the receiver's remote token, or the token to invalidate.
	SendFragment
	WriteFragment
	ReadFragment
	// WriteInEntry carries the data of a Write in words 2..6, and the receiver's address in word 1.
	WriteInEntry
	// WritePlaced reports a Write with immediate data whose bytes the sender has copied. Word 1 is its length in bytes.
	WritePlaced
	// Atomic asks the receiver to change 8 bytes of its memory. Word 1 is their address, word 2 the operand, word 3 the
	// value to store if the operand compares equal. Word 4 is the operation. Word 5 is an index in [SharedQP].Results of
	// the receiver, which stores the old value there. The header's token is the receiver's remote token.
	Atomic
)

// Flags of a ring entry.
const (
	FlagFirst      uint8 = 1 << iota // first entry of its request
	FlagLast                         // last entry of its request
	FlagInvalidate                   // of a Send: the receiver invalidates the token in the header
	FlagAckRequest                   // the sender's request completes when this entry has been released
	FlagSolicited                    // of a Send: its receive completes with a solicited event
	FlagHashed                       // the word HashWord has a hash, XXH64 with seed 0, or says where to store it
	FlagImmediate                    // of a Send or Write: its receive gets 32 bits of immediate data
)

// HashWord is the index of the word that FlagHashed is about. For a Send or Write it is the hash of the whole
// request's data. For a Read it is an index in [SharedQP].ReadHashes of the receiver, which stores the hash of
// the data there.
const HashWord = 6

// Limits of the data that a ring entry can carry, in bytes.
const (
	MaxSendInEntry  = ring.SlotSize - 2*8 // of a Send; the slot also holds the sequence number and the header
	MaxWriteInEntry = ring.SlotSize - 3*8 // of a Write; the slot also holds these two and the address
	hashSize        = 8                   // by which FlagHashed lowers both
	immediateSize   = 8                   // by which FlagImmediate lowers that of a Write
)

// Room returns the limit of the data in an entry that carries a whole Send or Write with these flags.
func Room(k Kind, flags uint8) uint64 {
	n := uint64(MaxSendInEntry)
	if k == WriteInEntry {
		n = MaxWriteInEntry
		if flags&FlagImmediate != 0 {
			n -= immediateSize
		}
	}
	if flags&FlagHashed != 0 {
		n -= hashSize
	}
	return n
}

// immediateWord returns the index of the word with the immediate data of a Write that has the remote token in its header. A
// Send, and a Write that is placed, has the data there, in place of a token.
func immediateWord(k Kind, flags uint8) int {
	if k == WriteInEntry && flags&FlagHashed == 0 {
		return HashWord
	}
	return HashWord - 1
}

// PutImmediate stores the immediate data of an entry whose header has FlagImmediate.
func PutImmediate(w *ring.Words, data uint32) {
	switch k := Kind(w[0]); k {
	case WriteInEntry, WriteFragment:
		w[immediateWord(k, Flags(w[0]))] = uint64(data)
	default:
		w[0] = w[0]&(1<<32-1) | uint64(data)<<32
	}
}

// AtomicEntry packs an entry of kind Atomic for a request of type t.
func AtomicEntry(token nd.Token, address uint64, t nd.RequestType, operand, swap uint64, result int) ring.Words {
	op := FetchAndAdd + Operation(t-nd.RequestFetchAndAdd)
	return ring.Words{Header(Atomic, FlagFirst|FlagLast|FlagAckRequest, 0, token), address, operand, swap, uint64(op), uint64(result)}
}

// Request returns the type of the request with this operation.
func (o Operation) Request() nd.RequestType {
	return nd.RequestFetchAndAdd + nd.RequestType(o-FetchAndAdd)
}

// Operation is what an entry of kind Atomic does with the 8 bytes.
type Operation uint8

const (
	FetchAndAdd    Operation = 1 + iota // adds the operand
	CompareAndSwap                      // stores the swap value if the bytes equal the operand
	Swap                                // stores the operand
)

// Header packs word 0 of an entry: the kind (bits 0..7), the flags (8..15), the length of the
// payload in bytes (16..31) and a token (32..63).
func Header(k Kind, flags uint8, length int, token nd.Token) uint64 {
	return uint64(k) | uint64(flags)<<8 | uint64(length)<<16 | uint64(token)<<32
}

// Flags returns the flags in the header of an entry.
func Flags(header uint64) uint8 { return uint8(header >> 8) }

// PayloadLength returns the length of the payload in the header of an entry.
func PayloadLength(header uint64) uint64 { return header >> 16 & 0xffff }

// Token returns the token in the header of an entry.
func Token(header uint64) nd.Token { return nd.Token(header >> 32) }

// Kind and flags in the header of an entry of the fast path. It holds a whole request without flags.
const (
	plainSend  = uint64(SendInEntry) | uint64(FlagFirst|FlagLast)<<8
	plainWrite = uint64(WriteInEntry) | uint64(FlagFirst|FlagLast|FlagAckRequest)<<8
)

// PlainSend returns the header of a Send of the fast path, of length bytes.
func PlainSend(length uint64) uint64 { return plainSend | length<<16 }

// IsPlainSend reports whether header is that of a Send of the fast path.
func IsPlainSend(header uint64) bool { return header&^(0xffff<<16) == plainSend }

// PlainWrite returns the header of a Write of the fast path, of length bytes.
func PlainWrite(length uint64, remoteToken nd.Token) uint64 {
	return plainWrite | length<<16 | uint64(remoteToken)<<32
}

// IsPlainWrite reports whether header is that of a Write of the fast path.
func IsPlainWrite(header uint64) bool { return header&0xffff == plainWrite }

// Fragment packs an entry of kind SendFragment, WriteFragment or ReadFragment. sender is the sender's
// memory. token goes into the header.
func Fragment(k Kind, flags uint8, token nd.Token, sender SGE, receiverAddress, requestLength uint64) ring.Words {
	return ring.Words{Header(k, flags, 0, token), sender.Address, sender.LengthAndToken(), receiverAddress, requestLength}
}

// PutPayload stores b in the words of w, from index first on. If the length of b is not a multiple of 8,
// the rest of the last word is set to zero. Later words keep their values.
func PutPayload(w *ring.Words, first int, b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		w[first] = binary.NativeEndian.Uint64(b)
		first++
	}
	if len(b) > 0 {
		var last [8]byte
		copy(last[:], b)
		w[first] = binary.NativeEndian.Uint64(last[:])
	}
}

// Entry is a decoded ring entry. Which fields are set depends on the kind. The sender is the process
// that has pushed the entry, the receiver the one that serves it.
type Entry struct {
	Kind            Kind
	Flags           uint8
	PayloadLength   int      // bytes of the data in the entry
	Token           nd.Token // the receiver's remote token, or the token to invalidate
	SenderAddress   uint64   // of the bytes of a fragment
	SenderToken     nd.Token // local token for these bytes
	ReceiverAddress uint64   // of a Write or Read
	FragmentLength  uint64   // bytes
	RequestLength   uint64   // bytes of the whole request or message
	Hash            uint64   // the word HashWord; with FlagHashed only
	Immediate       uint32   // with FlagImmediate only
	Operation       Operation
	Operand, Swap   uint64 // of an Atomic
	ResultIndex     int    // of an Atomic
	status          uint64 // see ReceiveStatus
	Payload         [MaxSendInEntry]byte
}

// Decode decodes a private copy of the words that a peer wrote. It reports false if no correct peer
// writes such an entry; Kind and PayloadLength are set even then.
func (e *Entry) Decode(w *ring.Words) bool {
	e.Kind, e.Flags = Kind(w[0]), Flags(w[0])
	e.PayloadLength, e.Token = int(PayloadLength(w[0])), Token(w[0])
	if e.Hash = 0; e.Flags&FlagHashed != 0 {
		e.Hash = w[HashWord]
	}
	if e.Immediate = 0; e.Flags&FlagImmediate != 0 && !e.decodeImmediate(w) {
		return false
	}
	first := 1 // word of the payload
	switch e.Kind {
	case SendInEntry:
	case WriteInEntry:
		first = 2
		e.ReceiverAddress = w[1]
	case SendPlaced:
		e.RequestLength = w[1]
		return e.PayloadLength == 0
	case WritePlaced:
		e.RequestLength = w[1]
		return e.PayloadLength == 0 && e.Flags&FlagImmediate != 0
	case Atomic:
		e.ReceiverAddress, e.Operand, e.Swap, e.Operation, e.ResultIndex = w[1], w[2], w[3], Operation(w[4]), int(w[5]%Results)
		return e.PayloadLength == 0 && e.Flags == FlagFirst|FlagLast|FlagAckRequest && w[4]-1 < uint64(Swap) && w[5] < Results
	case SendFailed:
		e.status, e.RequestLength = w[1], w[2]
		return e.PayloadLength == 0
	case SendFragment, WriteFragment, ReadFragment:
		e.SenderAddress, e.FragmentLength, e.SenderToken = w[1], uint64(uint32(w[2])), nd.Token(w[2]>>32)
		e.ReceiverAddress, e.RequestLength = w[3], w[4]
		return e.PayloadLength == 0
	default:
		return false
	}
	if uint64(e.PayloadLength) > Room(e.Kind, e.Flags) {
		return false
	}
	for i := 0; i < e.PayloadLength; i += 8 {
		binary.NativeEndian.PutUint64(e.Payload[i:], w[first+i/8])
	}
	return true
}

// IsWrite reports whether the entry belongs to a Write.
func (e *Entry) IsWrite() bool {
	return e.Kind == WriteFragment || e.Kind == WriteInEntry || e.Kind == WritePlaced
}

// TakesReceive reports whether the entry belongs to a Write that takes a receive, and is its last.
func (e *Entry) TakesReceive() bool {
	return e.Flags&(FlagImmediate|FlagLast) == FlagImmediate|FlagLast && e.IsWrite()
}

// IsExtended reports whether only an endpoint that has set [SharedQP].Extended takes the entry.
func (e *Entry) IsExtended() bool { return e.Flags&FlagImmediate != 0 || e.Kind >= WritePlaced }

// decodeImmediate decodes the immediate data. It reports false if an entry of this kind has none.
func (e *Entry) decodeImmediate(w *ring.Words) bool {
	switch e.Kind {
	case SendInEntry, SendPlaced, SendFragment, WritePlaced:
		e.Immediate, e.Token = uint32(e.Token), 0
	case WriteInEntry, WriteFragment:
		e.Immediate = uint32(w[immediateWord(e.Kind, e.Flags)])
	default:
		return false
	}
	return e.Flags&FlagInvalidate == 0
}

// ReceiveStatus returns the status that a SendFailed entry gives its receive. It is
// [nd.BufferOverflow] or, for any other value of the peer, [nd.AccessViolation].
func (e *Entry) ReceiveStatus() nd.Status {
	if e.status == uint64(nd.BufferOverflow) {
		return nd.BufferOverflow
	}
	return nd.AccessViolation
}
