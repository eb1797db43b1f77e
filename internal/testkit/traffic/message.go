package traffic

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/softnd/softnd/nd"
)

// A message of a session has the hash of its body, then the body, whose first byte is its kind. The hash also covers the
// number of the message and a random number of the session. A message of up to 8 bytes is the beginning of such a hash.

const header = 9 // hash and kind

const (
	mHello   byte = iota + 1 // helloMessage
	mData                    // random bytes
	mWrote                   // wroteMessage
	mRead                    // ackMessage
	mGrant                   // grantMessage
	mRevoke                  // revokeMessage: end the use of the grant
	mStopped                 // revokeMessage: the use has ended
	mTrap                    // trapMessage
	mBurns                   // the trap has been used
)

// helloMessage is the first message.
type helloMessage struct{ Nonce uint64 }

// wroteMessage describes a Write that was posted before.
type wroteMessage struct {
	Slot, At, N uint32
	Sum         uint64
}

// ackMessage is sent when the data in a slot was right: the peer may write the slot again.
type ackMessage struct{ Slot uint32 }

// grantMessage grants access to shared memory.
type grantMessage struct {
	Number uint32
	Kind   grantKind
	Rights uint32
	Desc   [nd.WindowDescriptorSize]byte
}

func (g grantMessage) rights() nd.OpFlags { return nd.OpFlags(g.Rights) }

type revokeMessage struct{ Number uint32 }

// trapMessage grants access that may end at any time.
type trapMessage struct {
	Fire bool // use it without a pause
	Desc [nd.WindowDescriptorSize]byte
}

func encode(d nd.WindowDescriptor) (b [nd.WindowDescriptorSize]byte) {
	_, _ = d.AppendBinary(b[:0])
	return b
}

// letter is a message that is to be sent.
type letter struct {
	body  []byte
	flags nd.OpFlags
}

// say queues a message.
func (s *session) say(kind byte, fields any, flags nd.OpFlags) {
	body, err := binary.Append([]byte{kind}, binary.LittleEndian, fields)
	s.fail(err)
	if s.Wild { // descriptors only, which their messages end with
		if kind != mGrant && kind != mTrap {
			return
		}
		body = body[len(body)-nd.WindowDescriptorSize:]
	}
	s.outbox = append(s.outbox, letter{body, flags})
}

// sendNext sends the first queued message.
func (s *session) sendNext() bool {
	if len(s.outbox) == 0 {
		return false
	}
	m := s.outbox[0]
	message := m.body
	if !s.Wild {
		message = s.seal(message)
	}
	if !s.sendBytes(message, m.flags, nil) {
		return false
	}
	s.outbox = s.outbox[1:]
	return true
}

// mix is the number that the hash of message n of a sender is combined with.
func mix(nonce, n uint64) uint64 {
	return xxhash.Sum64(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, nonce), n))
}

// seal returns the next message with a body.
func (s *session) seal(body []byte) []byte {
	nonce := s.nonce[0]
	if s.said[0] == 0 {
		nonce = 0
	}
	return append(binary.LittleEndian.AppendUint64(nil, xxhash.Sum64(body)^mix(nonce, s.said[0])), body...)
}

// send sends a message with a body.
func (s *session) send(body []byte, flags nd.OpFlags) bool {
	return s.sendBytes(s.seal(body), flags, nil)
}

func (s *session) sendBytes(message []byte, flags nd.OpFlags, call func(x uint64, sge nd.SGL, f nd.OpFlags) error) bool {
	c := s.blocks.load(s.Rand, len(message))
	if c == nil {
		return false
	}
	c.fill(message)
	if !s.sendCargo(c, len(message), flags, func(bool) { c.drop() }, call) {
		c.drop()
		return false
	}
	return true
}

// sendCargo posts a Send, or call.
func (s *session) sendCargo(c *transfer, n int, flags nd.OpFlags, done func(bool), call func(x uint64, sge nd.SGL, f nd.OpFlags) error) bool {
	sge := nd.List(c.sge...)
	if n <= s.inline && flags&nd.ReadFence == 0 && s.IntN(2) == 0 {
		sge = c.copied()
		flags |= nd.Inline
	}
	switch number := uint32(s.said[0]); {
	case call == nil && s.IntN(4) == 0:
		s.count(Numbers)
		call = func(x uint64, sge nd.SGL, f nd.OpFlags) error { return s.ep.SendImmediate(x, sge, number, f) }
	case call == nil:
		call = s.ep.Send
	}
	if !s.post(request{kind: nd.RequestSend, bytes: n, done: done}, flags, func(x uint64, f nd.OpFlags) error { return call(x, sge, f) }) {
		return false
	}
	if flags.Has(nd.Inline) { // the memory is the program's again
		setAll(sge.First.Buffer, poison)
	}
	s.count(Sends)
	s.said[0]++
	return true
}

// sendData sends a message of random bytes.
func (s *session) sendData() bool {
	n := s.size(largestMessage)
	if n < header {
		return s.sendBytes(binary.LittleEndian.AppendUint64(nil, mix(s.nonce[0], s.said[0]))[:min(n, 8)], 0, nil)
	}
	return s.send(append([]byte{mData}, s.data(n-header)...), 0)
}

// sendPattern sends bytes of shared memory that no request has changed, with its token or with the privileged one.
func (s *session) sendPattern() bool {
	head := s.blocks.load(s.Rand, header)
	if head == nil {
		return false
	}
	at := s.IntN(patternSize)
	data := s.shared.Bytes()[patternAt+at:][:s.size(min(patternSize-at, largestMessage-header))]
	token := s.shared.LocalToken()
	if s.pages != nil && s.IntN(2) == 0 {
		token = s.privileged
		s.count(Privileged)
	}
	head.fill(s.seal(append([]byte{mData}, data...))[:header])
	c := &transfer{sge: append(head.sge[:len(head.sge):len(head.sge)], nd.SGE{Buffer: data, Token: token})}
	if !s.sendCargo(c, header+len(data), 0, func(bool) { head.drop() }, nil) {
		head.drop()
		return false
	}
	return true
}

// sendAndInvalidate sends data, and ends the access that the peer has granted.
func (s *session) sendAndInvalidate() bool {
	if !s.far.ok || s.far.Kind == grantRegion || s.IntN(4) > 0 {
		return false
	}
	body := append([]byte{mData}, s.data(s.size(largestMessage-header))...)
	token := s.far.desc.Token
	if !s.sendBytes(s.seal(body), nd.ReadFence, func(x uint64, sge nd.SGL, f nd.OpFlags) error {
		return s.ep.SendAndInvalidate(x, sge, token, f)
	}) {
		return false
	}
	s.far.Number = 0                              // the owner's grant has ended
	s.far.ok = s.Wild || s.Errs && s.IntN(2) == 0 // then later requests come too late
	s.count(SendInvalidates)
	return true
}

// hear handles a message. token is that of the window or region that it has invalidated.
func (s *session) hear(b []byte, token nd.Token) {
	if s.Wild {
		if len(b) == nd.WindowDescriptorSize && s.far.desc.UnmarshalBinary(b) == nil {
			s.far.ok, s.far.Kind, s.far.Rights = true, grantWindow, uint32(readWrite|nd.AllowAtomic)
		}
		return
	}
	n, nonce := s.said[1], s.nonce[1]
	s.said[1]++
	if token != 0 {
		s.grantTaken(token)
	}
	sum := make([]byte, 8)
	if len(b) < header {
		binary.LittleEndian.PutUint64(sum, mix(nonce, n))
		if string(b) != string(sum[:len(b)]) {
			s.fail(fmt.Errorf("message %d is %x, want the beginning of %x", n, b, sum))
		}
		return
	}
	body := b[8:]
	binary.LittleEndian.PutUint64(sum, xxhash.Sum64(body)^mix(nonce, n))
	if string(sum) != string(b[:8]) {
		s.fail(fmt.Errorf("message %d of kind %d with %d bytes has a wrong hash", n, body[0], len(b)))
	}
	if (body[0] == mHello) != (n == 0) {
		s.fail(fmt.Errorf("message %d is of kind %d", n, body[0]))
	}
	switch body[0] {
	case mHello:
		s.nonce[1] = decode[helloMessage](s, body).Nonce
	case mWrote:
		m := decode[wroteMessage](s, body)
		at := slotAt(int(m.Slot)) + int(m.At)
		if xxhash.Sum64(s.shared.Bytes()[at:][:m.N]) != m.Sum {
			s.fail(fmt.Errorf("the peer has written %d bytes at offset %d, and others are there", m.N, at))
		}
		s.say(mRead, ackMessage{m.Slot}, 0)
	case mRead:
		s.far.busy[decode[ackMessage](s, body).Slot] = false
	case mGrant:
		s.far.grantMessage = decode[grantMessage](s, body)
		s.fail(s.far.desc.UnmarshalBinary(s.far.Desc[:]))
		s.far.ok = true
	case mRevoke:
		if m := decode[revokeMessage](s, body); s.far.ok && s.far.Number == m.Number {
			s.far.ok = false
			s.say(mStopped, m, nd.ReadFence)
		}
	case mStopped:
		s.endGrant(decode[revokeMessage](s, body).Number)
	case mBurns:
		s.trap.burns = true
		s.trap.until = time.Now().Add(time.Duration(s.IntN(4000)) * time.Microsecond)
	case mTrap:
		m := decode[trapMessage](s, body)
		s.fail(s.far.trap.UnmarshalBinary(m.Desc[:]))
		s.far.fire = s.far.fire || m.Fire && s.Posts
	}
}

func decode[T any](s *session, body []byte) (v T) {
	_, err := binary.Decode(body[1:], binary.LittleEndian, &v)
	s.fail(err)
	return v
}
