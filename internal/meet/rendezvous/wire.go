package rendezvous

// TWIN c/src/meet/root_channel.c.

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/softnd/softnd/internal/meet/unixsock"
)

// maxMessage is the length of the longest JSON object in bytes. A reason may be six times as long in JSON.
const maxMessage = 4096

// Sizes of the messages of the handshake, in bytes.
const (
	nonceSize    = 32
	greetingSize = 8 + 8 + nonceSize // magic, version, nonce
	answerSize   = greetingSize + sha256.Size
)

var magic = [8]byte{'S', 'N', 'D', '-', 'R', 'O', 'O', 'T'}

var (
	errStranger = errors.New("the process at the other end does not speak the protocol of SOFTND_ROOT")
	errVersion  = errors.New("the other process contains another version of softnd: build all ranks with one release")
)

// sum returns an HMAC of parts.
func sum(key []byte, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, key)
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

// channel is a connection after the exchange of nonces. One goroutine reads. Writes exclude each other by a lock of the
// owner.
type channel struct {
	conn          *unixsock.Conn
	inKey, outKey []byte
	in, out       uint64 // number of messages
}

// newChannel derives the keys from what both sides have sent.
func newChannel(conn *unixsock.Conn, secret, sent []byte, isRoot bool) *channel {
	toRoot, toRank := sum(secret, []byte("to root"), sent), sum(secret, []byte("to rank"), sent)
	if isRoot {
		return &channel{conn: conn, inKey: toRoot, outKey: toRank}
	}
	return &channel{conn: conn, inKey: toRank, outKey: toRoot}
}

// greeting returns the first message of a side, without a proof.
func greeting() []byte {
	b := binary.LittleEndian.AppendUint64(magic[:], version)
	nonce := make([]byte, nonceSize)
	rand.Read(nonce) // never fails
	return append(b, nonce...)
}

// checkGreeting checks the first fields of a message of the other side.
func checkGreeting(b []byte) error {
	switch {
	case [8]byte(b) != magic:
		return errStranger
	case binary.LittleEndian.Uint64(b[8:]) != version:
		return errVersion
	}
	return nil
}

// greet runs the rank's side of the exchange of nonces.
func greet(conn *unixsock.Conn, secret []byte) (*channel, error) {
	sent := greeting()
	if _, err := conn.Write(sent); err != nil {
		return nil, err
	}
	answer := make([]byte, answerSize)
	if _, err := io.ReadFull(conn, answer); err != nil {
		return nil, err
	}
	if err := checkGreeting(answer); err != nil {
		return nil, err
	}
	sent = append(sent, answer[:greetingSize]...)
	if !hmac.Equal(answer[greetingSize:], sum(secret, []byte("root"), sent)) {
		return nil, ErrSecret
	}
	return newChannel(conn, secret, sent, false), nil
}

// welcomeStranger runs rank 0's side of the exchange of nonces.
func welcomeStranger(conn *unixsock.Conn, secret []byte) (*channel, error) {
	sent := make([]byte, greetingSize)
	if _, err := io.ReadFull(conn, sent); err != nil {
		return nil, err
	}
	err := checkGreeting(sent)
	if err != nil && !errors.Is(err, errVersion) { // a rank of another version learns of it by the answer
		return nil, err
	}
	answer := greeting()
	sent = append(sent, answer...)
	if _, writeErr := conn.Write(append(answer, sum(secret, []byte("root"), sent)...)); writeErr != nil {
		return nil, writeErr
	}
	return newChannel(conn, secret, sent, true), err
}

// send sends a message.
func (c *channel) send(m message) error {
	payload, err := json.Marshal(m)
	if err != nil {
		return err
	}
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(payload)))
	b = append(b, payload...)
	b = append(b, c.mac(c.outKey, c.out, b)...)
	c.out++
	_, err = c.conn.Write(b)
	return err
}

// receive reads a message.
func (c *channel) receive() (m message, err error) {
	b := make([]byte, 4, 512)
	if _, err := io.ReadFull(c.conn, b); err != nil {
		return m, err
	}
	n := binary.LittleEndian.Uint32(b)
	if n > maxMessage {
		return m, fmt.Errorf("message of %d bytes: want at most %d", n, maxMessage)
	}
	b = append(b, make([]byte, n+sha256.Size)...)
	if _, err := io.ReadFull(c.conn, b[4:]); err != nil {
		return m, err
	}
	text := b[:4+n]
	if !hmac.Equal(b[4+n:], c.mac(c.inKey, c.in, text)) {
		return m, ErrSecret
	}
	c.in++
	if err := json.Unmarshal(text[4:], &m); err != nil {
		return m, fmt.Errorf("malformed message: %w", err)
	}
	return m, nil
}

func (c *channel) mac(key []byte, number uint64, text []byte) []byte {
	return sum(key, binary.LittleEndian.AppendUint64(nil, number), text)
}
