// Package frame encodes and decodes the messages that two relays exchange. It knows what a frame looks like, and
// not what it makes a relay do.
//
// Decode takes bytes of an untrusted sender. It accepts only frames that a correct relay sends: known kinds and flags,
// lengths that fit, and zeros where the kind has no field. Neither direction allocates memory.
package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Kind says what a frame asks of its receiver, or answers.
type Kind uint8

// The kinds of frames. docs/hosts.md has the exchange.
const (
	Hello       Kind = 1 + iota // first frame of a link
	Credit                      // returns credits, and nothing else
	Ping                        // asks for a Pong
	Pong                        // answers a Ping
	Open                        // asks for a connection; the payload is a Connect
	Accept                      // accepts it; the payload is a Connect
	Refuse                      // refuses it; the payload is private data
	Established                 // completes it
	Send                        // message of a Send, or a part of it
	Write                       // data of a Write, or a part of it
	Read                        // asks for Total bytes
	Data                        // part of the answer to a Read
	Done                        // all requests up to Request are complete
	Fail                        // request Request has failed with Status
	Disconnect                  // graceful end of this direction
	Abort                       // end of the connection by force; the payload says why
	Withdraw                    // the process that asked for tunnel Request of the sender has stopped waiting
	Room                        // the receiver may send the bytes of Sends and Writes before byte Request of the tunnel
	Call                        // collective call Request of the sender's host, of kind Token, with Address bytes; the payload is the next part
	Called                      // call Request of the receiver's host has arrived
	Leave                       // the sender's host takes part in no further call
	Atomic                      // changes 8 bytes; the payload is a Change

	lastKind = Atomic
)

var names = [...]string{Hello: "Hello", Credit: "Credit", Ping: "Ping", Pong: "Pong", Open: "Open", Accept: "Accept", Refuse: "Refuse",
	Established: "Established", Send: "Send", Write: "Write", Read: "Read", Data: "Data", Done: "Done", Fail: "Fail",
	Disconnect: "Disconnect", Abort: "Abort", Withdraw: "Withdraw", Room: "Room",
	Call: "Call", Called: "Called", Leave: "Leave", Atomic: "Atomic"}

// String returns the name of the kind.
func (k Kind) String() string {
	if k == 0 || k > lastKind {
		return fmt.Sprintf("kind %d", uint8(k))
	}
	return names[k]
}

// Flags of a frame.
const (
	Invalidate uint8 = 1 << iota // of a Send: the receiver invalidates Token
	Solicited                    // of a Send, or a Write with immediate data: its Receive completes with a solicited event
	Hashed                       // Hash is that of the data of the request, of a Data that of its payload; of a Read: wants such Data
	Immediate                    // of a Send or Write: its Receive completes with Immediate
)

// Sizes in bytes.
const (
	HeaderSize    = 56
	immediateSize = 4                        // after the payload of a frame with immediate data
	hashSize      = 8                        // after that of a frame that carries a hash
	MaxTrailer    = immediateSize + hashSize // of both
	MaxTotal      = 1 << 30                  // of a request
	MaxText       = 376                      // of the payload of an Abort or a Fail, which is text for people
	MaxRefusal    = 512                      // of the payload of a Refuse, which is private data
	MaxPart       = 1 << 16                  // of the payload of a Call
)

// Frame is a decoded frame. The fields that its kind does not have are 0.
type Frame struct {
	Session uint64 // of the link and this direction
	Kind    Kind
	Flags   uint8
	Credits uint16 // frames that the sender has freed since it last said so
	Tunnel  uint32 // number of the tunnel at the receiver; 0 for frames of the link
	Request uint64 // number of a request in its direction of the tunnel; of a Withdraw, of the tunnel at the sender; of a call
	Address uint64 // remote address, or the bytes of a Call
	Token   uint32 // remote token, or the token to invalidate, or the kind of a Call
	Status  uint32 // of a Fail, an Abort, a Refuse, or a Call that has failed
	Done    uint32 // of a Send, Write, Read, Atomic or Data: number of further requests of the other direction that are complete
	Total   uint32 // bytes of the request
	Offset  uint32 // of the payload in these bytes
	Order   uint32 // number of the frame in its direction of the link
	Hash    uint64 // XXH64, see Hashed; after the payload
	Payload []byte // part of the encoded frame

	Immediate uint32 // see there; after the payload, and before the hash
}

// Errors of Decode.
var (
	ErrShort  = errors.New("shorter than its header says")
	ErrKind   = errors.New("unknown kind")
	ErrFlags  = errors.New("flags that its kind does not have")
	ErrField  = errors.New("a field that its kind does not have")
	ErrLength = errors.New("a length out of range")
)

// Positions of the fields.
const (
	atSession, atKind, atFlags, atCredits, atTunnel = 0, 8, 9, 10, 12
	atRequest, atAddress, atToken, atStatus         = 16, 24, 32, 36
	atTotal, atOffset, atLength, atOrder            = 40, 44, 48, 52
)

// Put stores what is around the payload of f, which has length bytes and is at HeaderSize in b. It returns the length of the frame.
func (f *Frame) Put(b []byte, length int) int {
	_ = b[HeaderSize-1]
	binary.LittleEndian.PutUint64(b[atSession:], f.Session)
	b[atKind], b[atFlags] = byte(f.Kind), f.Flags
	binary.LittleEndian.PutUint16(b[atCredits:], f.Credits)
	binary.LittleEndian.PutUint32(b[atTunnel:], f.Tunnel)
	binary.LittleEndian.PutUint64(b[atRequest:], f.Request)
	binary.LittleEndian.PutUint64(b[atAddress:], f.Address)
	binary.LittleEndian.PutUint32(b[atToken:], f.Token)
	binary.LittleEndian.PutUint32(b[atStatus:], f.Status|f.Done)
	binary.LittleEndian.PutUint32(b[atTotal:], f.Total)
	binary.LittleEndian.PutUint32(b[atOffset:], f.Offset)
	binary.LittleEndian.PutUint32(b[atLength:], uint32(length))
	binary.LittleEndian.PutUint32(b[atOrder:], f.Order)
	length += HeaderSize
	if f.Flags&Immediate != 0 {
		binary.LittleEndian.PutUint32(b[length:], f.Immediate)
		length += immediateSize
	}
	if f.carriesHash() {
		binary.LittleEndian.PutUint64(b[length:], f.Hash)
		length += hashSize
	}
	return length
}

// carriesHash reports whether a hash follows the payload. A Read has none: it asks for Data with one.
func (f *Frame) carriesHash() bool { return f.Flags&Hashed != 0 && f.Kind != Read }

// Encode stores f and its payload at the start of b, which has room for them, and returns their length.
func (f *Frame) Encode(b []byte) int {
	copy(b[HeaderSize:], f.Payload)
	return f.Put(b, len(f.Payload))
}

// field is a bit for each field that a kind may have.
type field uint16

const (
	hasTunnel field = 1 << iota
	hasRequest
	hasAddress
	hasToken
	hasStatus
	hasParts   // Total, Offset, and a payload within them
	hasTotal   // Total alone
	hasPayload // a payload of at most maxPayload
	hasDone    // in the place of the status
)

// shape is what the frames of one kind have.
type shape struct {
	fields     field
	flags      uint8
	maxPayload uint32
}

var shapes = [lastKind + 1]shape{
	Hello:       {},
	Credit:      {},
	Ping:        {fields: hasRequest},
	Pong:        {fields: hasRequest},
	Open:        {fields: hasPayload, maxPayload: maxConnect},
	Accept:      {fields: hasTunnel | hasPayload, maxPayload: maxConnect},
	Refuse:      {fields: hasTunnel | hasStatus | hasPayload, maxPayload: MaxRefusal},
	Established: {fields: hasTunnel},
	Send:        {fields: hasTunnel | hasRequest | hasToken | hasDone | hasParts, flags: Invalidate | Solicited | Hashed | Immediate},
	Write:       {fields: hasTunnel | hasRequest | hasAddress | hasToken | hasDone | hasParts, flags: Solicited | Hashed | Immediate},
	Read:        {fields: hasTunnel | hasRequest | hasAddress | hasToken | hasDone | hasTotal, flags: Hashed},
	Data:        {fields: hasTunnel | hasRequest | hasDone | hasParts, flags: Hashed},
	Done:        {fields: hasTunnel | hasRequest},
	Fail:        {fields: hasTunnel | hasRequest | hasStatus | hasPayload, maxPayload: MaxText},
	Disconnect:  {fields: hasTunnel},
	Abort:       {fields: hasTunnel | hasStatus | hasPayload, maxPayload: MaxText},
	Withdraw:    {fields: hasRequest},
	Room:        {fields: hasTunnel | hasRequest},
	Call:        {fields: hasRequest | hasAddress | hasToken | hasStatus | hasPayload, maxPayload: MaxPart},
	Called:      {fields: hasRequest},
	Leave:       {},
	Atomic:      {fields: hasTunnel | hasRequest | hasAddress | hasToken | hasDone | hasPayload, maxPayload: ChangeSize},
}

// Decode decodes the frame that fills b. The payload is a part of b. After an error only Kind is meaningful.
func (f *Frame) Decode(b []byte) error {
	if len(b) < HeaderSize {
		f.Kind = 0
		return ErrShort
	}
	*f = Frame{
		Session: binary.LittleEndian.Uint64(b[atSession:]),
		Kind:    Kind(b[atKind]),
		Flags:   b[atFlags],
		Credits: binary.LittleEndian.Uint16(b[atCredits:]),
		Tunnel:  binary.LittleEndian.Uint32(b[atTunnel:]),
		Request: binary.LittleEndian.Uint64(b[atRequest:]),
		Address: binary.LittleEndian.Uint64(b[atAddress:]),
		Token:   binary.LittleEndian.Uint32(b[atToken:]),
		Status:  binary.LittleEndian.Uint32(b[atStatus:]),
		Total:   binary.LittleEndian.Uint32(b[atTotal:]),
		Offset:  binary.LittleEndian.Uint32(b[atOffset:]),
		Order:   binary.LittleEndian.Uint32(b[atOrder:]),
	}
	if f.Kind == 0 || f.Kind > lastKind {
		return ErrKind
	}
	if f.carriesHash() {
		end := len(b) - hashSize
		if end < HeaderSize {
			return ErrShort
		}
		f.Hash = binary.LittleEndian.Uint64(b[end:])
		b = b[:end]
	}
	if f.Flags&Immediate != 0 {
		end := len(b) - immediateSize
		if end < HeaderSize {
			return ErrShort
		}
		f.Immediate = binary.LittleEndian.Uint32(b[end:])
		b = b[:end]
	}
	length := binary.LittleEndian.Uint32(b[atLength:])
	if uint64(length) != uint64(len(b)-HeaderSize) {
		return ErrShort
	}
	f.Payload = b[HeaderSize:]
	s := &shapes[f.Kind]
	if !s.lacks(hasDone) {
		f.Status, f.Done = 0, f.Status
	}
	if f.Flags&^s.flags != 0 || !f.hasMeaningfulFlags() {
		return ErrFlags
	}
	if s.lacks(hasTunnel) != (f.Tunnel == 0) || s.lacks(hasRequest) && f.Request != 0 || s.lacks(hasAddress) && f.Address != 0 ||
		s.lacks(hasToken) && f.Token != 0 || s.lacks(hasStatus) && f.Status != 0 {
		return ErrField
	}
	return f.checkLengths(s, length)
}

// hasMeaningfulFlags reports whether the flags of a Send or Write agree with each other, and with the token.
func (f *Frame) hasMeaningfulFlags() bool {
	const invalidatesToo = Invalidate | Immediate
	switch f.Kind {
	case Send:
		return f.Flags&invalidatesToo != invalidatesToo && (f.Flags&Invalidate != 0 || f.Token == 0)
	case Write:
		return f.Flags&Immediate != 0 || f.Flags&Solicited == 0
	}
	return true
}

func (s *shape) lacks(x field) bool { return s.fields&x == 0 }

// checkLengths checks Total, Offset and the length of the payload.
func (f *Frame) checkLengths(s *shape, length uint32) error {
	switch {
	case s.fields&hasParts != 0:
		if f.Total > MaxTotal || f.Offset > f.Total || length > f.Total-f.Offset || length == 0 && f.Total != 0 {
			return ErrLength
		}
	case s.fields&hasTotal != 0:
		if f.Total > MaxTotal || f.Total == 0 || f.Offset != 0 || length != 0 {
			return ErrLength
		}
	default:
		if f.Total != 0 || f.Offset != 0 {
			return ErrField
		}
		if length > s.maxPayload {
			return ErrLength
		}
	}
	return nil
}
