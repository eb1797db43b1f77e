// Package handshake lets two relays of a job prove to each other that they know the job's secret, and exchange the
// addresses of their libfabric endpoints. docs/hosts.md describes the messages.
//
// Both sides send messages of one length each, so a stranger learns only that a relay listens, and can make it read at
// most that many bytes. The HMAC of a message covers all messages before it, both nonces among them.
package handshake

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Version is that of the handshake and of the frames. Relays of different versions refuse each other.
const Version = 5

// Limit is how long a handshake may take.
const Limit = 5 * time.Second

// MaxAddress is the size of the longest libfabric address in bytes.
const MaxAddress = 128

// Config is what a relay brings into its handshakes.
type Config struct {
	Secret  [32]byte // of the job
	Job     [16]byte // identifies the job; not secret
	Host    uint16   // number of this relay's host
	Address []byte   // of this relay's libfabric endpoint, 1 to MaxAddress bytes
}

// Session is the result of a handshake.
type Session struct {
	Host     uint16 // number of the other host
	Address  []byte // of the other relay's libfabric endpoint
	Outbound uint64 // session number of frames to the other relay
	Inbound  uint64 // session number of frames from the other relay
}

// Errors of a handshake. Others are those of the connection.
var (
	ErrNoRelay = errors.New("the other side does not speak the protocol of relays")
	ErrVersion = errors.New("the other relay has another version")
	ErrJob     = errors.New("the other relay is of another job, or of another host than expected")
	ErrSecret  = errors.New("the other side does not know the secret of the job")
)

var magic = [8]byte{'S', 'N', 'D', 'R', 'E', 'L', 'A', 'Y'}

// Sizes of the messages in bytes.
const (
	macSize     = sha256.Size
	nonceSize   = 32
	greetSize   = 8 + 2 + 2 + 2 + 2 + 16 + nonceSize  // magic, version, from, to, 0, job, nonce
	answerSize  = 8 + 2 + 2 + 4 + nonceSize + macSize // magic, version, refusal, 0, nonce, proof
	addressSize = 2 + MaxAddress + macSize            // length, address, proof
)

// Values of the field refusal of an answer. It lets the active side tell a relay that will never take it from a connection
// that has ended.
const (
	noRefusal  = 0
	otherJob   = 1  // or another host
	refusalEnd = 12 // offset after the field
)

// transcript is all that both sides have sent.
type transcript struct {
	secret *[32]byte
	sent   []byte
}

// proof returns the HMAC of a label and everything sent so far. The label is different for each use.
func (t *transcript) proof(label string) []byte {
	h := hmac.New(sha256.New, t.secret[:])
	h.Write([]byte{byte(len(label))})
	h.Write([]byte(label))
	h.Write(t.sent)
	return h.Sum(nil)
}

// send adds b and its proof, unless label is "", and writes the message.
func (t *transcript) send(w io.Writer, b []byte, label string) error {
	start := len(t.sent)
	t.sent = append(t.sent, b...)
	if label != "" {
		t.sent = append(t.sent, t.proof(label)...)
	}
	_, err := w.Write(t.sent[start:])
	return err
}

// receive reads a message of size bytes. Unless label is "", it ends with a proof, which receive does not check: see
// check.
func (t *transcript) receive(r io.Reader, size int) ([]byte, error) {
	start := len(t.sent)
	t.sent = append(t.sent, make([]byte, size)...)
	_, err := io.ReadFull(r, t.sent[start:])
	return t.sent[start:], err
}

// check checks the proof at the end of the last message.
func (t *transcript) check(label string) bool {
	end := len(t.sent) - macSize
	before := transcript{t.secret, t.sent[:end:end]}
	return hmac.Equal(before.proof(label), t.sent[end:])
}

// session derives the session numbers from the complete exchange.
func (t *transcript) session(host uint16, address []byte, isActive bool) *Session {
	toPassive := binary.LittleEndian.Uint64(t.proof("frames to passive"))
	toActive := binary.LittleEndian.Uint64(t.proof("frames to active"))
	s := &Session{Host: host, Address: bytes.Clone(address), Outbound: toPassive, Inbound: toActive}
	if !isActive {
		s.Outbound, s.Inbound = s.Inbound, s.Outbound
	}
	return s
}

// Dial runs the active side of a handshake with the relay of a host. It closes nothing.
func Dial(conn net.Conn, c *Config, host uint16) (*Session, error) {
	s, err := dial(conn, c, host)
	if err != nil {
		return nil, fmt.Errorf("handshake with the relay of host %d at %v: %w", host, conn.RemoteAddr(), err)
	}
	return s, nil
}

func dial(conn net.Conn, c *Config, host uint16) (*Session, error) {
	if err := conn.SetDeadline(time.Now().Add(Limit)); err != nil {
		return nil, err
	}
	t := &transcript{secret: &c.Secret}
	greet := append([]byte(nil), magic[:]...)
	for _, n := range []uint16{Version, c.Host, host, 0} {
		greet = binary.LittleEndian.AppendUint16(greet, n)
	}
	greet = append(greet, c.Job[:]...)
	if err := t.send(conn, append(greet, newNonce()...), ""); err != nil {
		return nil, err
	}
	answer, err := t.receive(conn, answerSize)
	switch {
	case err != nil:
		return nil, err
	case [8]byte(answer) != magic:
		return nil, ErrNoRelay
	case binary.LittleEndian.Uint16(answer[8:]) != Version:
		return nil, ErrVersion
	case !t.check("passive"):
		return nil, ErrSecret
	case binary.LittleEndian.Uint16(answer[refusalEnd-2:]) != noRefusal:
		return nil, ErrJob
	}
	if err := t.sendAddress(conn, c.Address, "active"); err != nil {
		return nil, err
	}
	address, err := t.receiveAddress(conn, "ready")
	if err != nil {
		return nil, err
	}
	return t.session(host, address, true), conn.SetDeadline(time.Time{})
}

// errDisplaced is the error of a handshake that a Listener has ended because it runs too many.
var errDisplaced = errors.New("ended in favour of newer ones")

// Accept runs the passive side of a handshake. It closes nothing.
//
// Accept calls proved when the other side has proved the secret, before the last message. If proved returns false, Accept
// fails, and the other side does not take the handshake for complete. proved may be nil.
func Accept(conn net.Conn, c *Config, proved func() bool) (*Session, error) {
	s, err := accept(conn, c, proved)
	if err != nil {
		return nil, fmt.Errorf("handshake with %v: %w", conn.RemoteAddr(), err)
	}
	return s, nil
}

func accept(conn net.Conn, c *Config, proved func() bool) (*Session, error) {
	if err := conn.SetDeadline(time.Now().Add(Limit)); err != nil {
		return nil, err
	}
	t := &transcript{secret: &c.Secret}
	greet, err := t.receive(conn, greetSize)
	if err != nil {
		return nil, err
	}
	if [8]byte(greet) != magic {
		return nil, ErrNoRelay
	}
	version, from, to := binary.LittleEndian.Uint16(greet[8:]), binary.LittleEndian.Uint16(greet[10:]), binary.LittleEndian.Uint16(greet[12:])
	answer := binary.LittleEndian.AppendUint16(append([]byte(nil), magic[:]...), Version)
	answer = append(append(answer, make([]byte, 6)...), newNonce()...)
	switch { // the answer lets the other side name the cause
	case version != Version:
		_ = t.send(conn, answer, "passive")
		return nil, ErrVersion
	case [16]byte(greet[16:]) != c.Job || to != c.Host || from == c.Host:
		binary.LittleEndian.PutUint16(answer[refusalEnd-2:], otherJob)
		_ = t.send(conn, answer, "passive")
		return nil, ErrJob
	}
	if err := t.send(conn, answer, "passive"); err != nil {
		return nil, err
	}
	address, err := t.receiveAddress(conn, "active")
	switch {
	case errors.Is(err, io.EOF): // a relay that knows another secret ends so when it has checked the answer
		return nil, fmt.Errorf("%w, or has ended: it has sent no proof", ErrSecret)
	case err != nil:
		return nil, err
	case proved != nil && !proved():
		return nil, errDisplaced
	}
	if err := t.sendAddress(conn, c.Address, "ready"); err != nil {
		return nil, err
	}
	return t.session(from, address, false), conn.SetDeadline(time.Time{})
}

func (t *transcript) sendAddress(conn net.Conn, address []byte, label string) error {
	if len(address) == 0 || len(address) > MaxAddress {
		return fmt.Errorf("libfabric address of %d bytes, allowed are 1 to %d", len(address), MaxAddress)
	}
	b := make([]byte, addressSize-macSize)
	binary.LittleEndian.PutUint16(b, uint16(len(address)))
	copy(b[2:], address)
	return t.send(conn, b, label)
}

func (t *transcript) receiveAddress(conn net.Conn, label string) ([]byte, error) {
	b, err := t.receive(conn, addressSize)
	if err != nil {
		return nil, err
	}
	if !t.check(label) {
		return nil, ErrSecret
	}
	n := int(binary.LittleEndian.Uint16(b))
	if n == 0 || n > MaxAddress {
		return nil, ErrNoRelay
	}
	return b[2 : 2+n], nil
}

func newNonce() []byte {
	b := make([]byte, nonceSize)
	rand.Read(b) // never fails
	return b
}
