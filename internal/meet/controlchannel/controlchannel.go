// Package controlchannel is the connection between a rank and the launcher of its job. A rank that
// has lost the descriptor of the job's memory, or of the checker's journal, gets it over this channel;
// wrappers that close descriptors cause that. The channel also tells the launcher how a rank ends: in good order, by
// aborting the job, or without a message.
//
// The launcher listens on an abstract Unix socket, which exists in no file system and disappears
// with the launcher. A rank finds the name of the socket and a secret in an environment variable.
// Every process can see the name. The secret is visible to processes of the same user that share
// the launcher's view of /proc.
//
//	rank                                        launcher
//	connects                               →    checks the user of the process
//	hello: version, secret, rank, files?   →    checks them
//	                                       ←    welcome, with the requested files,
//	                                            or refusal with the reason
//	leave                                  →    the rank ends in good order
//	abort: code, reason                    →
//	                                       ←    welcome: the job is being stopped
//	end of the connection                  →    without leave: the rank has not ended in good order
//
// Each message is one JSON object, sent as one packet of a SOCK_SEQPACKET socket.
package controlchannel

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/meet/unixsock"
)

// version is the version of the protocol. A launcher refuses ranks with another version.
const version = 1

const (
	maxMessage = 4096 // bytes
	maxReason  = 512  // bytes; at most six times as long in JSON
)

// Address is the address of a job's control channel.
type Address struct {
	name   string    // of the socket, without the leading @
	secret string    // 32 hexadecimal digits
	File   [2]uint64 // identity of the job's file, see [Listen]
}

func newAddress(file [2]uint64) Address {
	b := make([]byte, 32)
	rand.Read(b) // never fails
	return Address{"softnd-job-" + hex.EncodeToString(b[:16]), hex.EncodeToString(b[16:]), file}
}

// String returns the address in the format of the environment variable.
func (a Address) String() string {
	return fmt.Sprintf("%s:%s:%016x%016x", a.name, a.secret, a.File[0], a.File[1])
}

// Parse parses the result of [Address.String].
func Parse(s string) (Address, error) {
	var a Address
	parts := strings.Split(s, ":")
	if len(parts) != 3 || !strings.HasPrefix(parts[0], "softnd-job-") || len(parts[0]) > 100 || len(parts[1]) != 32 || len(parts[2]) != 32 {
		return a, errors.New("want name:secret:identity")
	}
	id, err := hex.DecodeString(parts[2])
	if err != nil {
		return a, fmt.Errorf("identity: %w", err)
	}
	a.name, a.secret = parts[0], parts[1]
	for i, b := range id {
		a.File[i/8] = a.File[i/8]<<8 | uint64(b)
	}
	return a, nil
}

func (a Address) socket() string { return "@" + a.name }

// Kinds of messages.
const (
	hello   = "hello"
	leave   = "leave"
	abort   = "abort"
	welcome = "welcome"
	refusal = "refusal"
)

// message is a message of either side.
type message struct {
	Kind    string `json:"kind"`
	Version int    `json:"version,omitempty"` // hello
	Build   string `json:"build,omitempty"`   // hello: name of the sender's build of softnd
	Secret  string `json:"secret,omitempty"`  // hello
	Rank    int    `json:"rank,omitempty"`    // hello
	File    bool   `json:"file,omitempty"`    // hello: request the file
	Journal bool   `json:"journal,omitempty"` // hello: request the journal; welcome: the last file is the journal
	Code    int    `json:"code,omitempty"`    // abort
	Text    string `json:"text,omitempty"`    // abort, refusal: the reason
}

func parse(b []byte) (m message, err error) {
	if len(b) > maxMessage {
		return m, fmt.Errorf("message is longer than %d bytes", maxMessage)
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("malformed message: %w", err)
	}
	return m, nil
}

func send(c *unixsock.Conn, m message, files ...int) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	var oob []byte
	if len(files) > 0 {
		oob = unix.UnixRights(files...)
	}
	_, err = c.Send(b, oob)
	return err
}

// receive reads one message. It returns io.EOF when the peer has closed the connection.
func receive(c *unixsock.Conn) (message, error) {
	b := make([]byte, maxMessage+1) // so that a longer message is noticed
	n, err := c.Read(b)             // Read drops descriptors that are sent with the message
	if err != nil {
		return message{}, err
	}
	return parse(b[:n])
}
