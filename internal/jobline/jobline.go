// Package jobline is the line between a rank and the launcher of its job. It reaches
// ranks that have lost what they should have inherited, because they run behind a
// wrapper that closes descriptors: the line hands them the job's file. It also tells
// the launcher how a rank ends: in good order, by aborting the job, or without a word.
//
// The launcher listens on an abstract Unix socket, which exists in no file system and
// goes with the launcher. A rank finds its name in an environment variable, together
// with a secret: the name can be seen by everybody, the secret by processes of the
// same user that share the launcher's view of /proc.
//
//	rank                                        launcher
//	connects                               →    looks whose process it is
//	hello: version, secret, rank, file?    →    compares
//	                                       ←    welcome, with the file if asked for,
//	                                            or a refusal that says why
//	leave                                  →    the rank has ended well
//	abort: code, reason                    →
//	                                       ←    welcome: the job is coming down
//	end of the connection                  →    without leave: the rank has not ended well
//
// Each is one record of JSON over a socket that keeps record boundaries.
package jobline

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/unixsock"
)

// version of the protocol. A launcher refuses ranks of another one.
const version = 1

const (
	maxRecord = 4096 // bytes
	maxReason = 512  // in JSON at most six times as long
)

// Address tells a rank where its launcher listens, and which file to expect.
type Address struct {
	name   string    // of the socket, without the leading @
	secret string    // 32 hexadecimal digits
	File   [2]uint64 // identity of the job's file, as its users define it
}

func newAddress(file [2]uint64) Address {
	b := make([]byte, 32)
	rand.Read(b) // never fails
	return Address{"softnd-job-" + hex.EncodeToString(b[:16]), hex.EncodeToString(b[16:]), file}
}

// String is the address as it stands in the environment.
func (a Address) String() string {
	return fmt.Sprintf("%s:%s:%016x%016x", a.name, a.secret, a.File[0], a.File[1])
}

// Parse reads what [Address.String] has written.
func Parse(s string) (Address, error) {
	var a Address
	parts := strings.Split(s, ":")
	if len(parts) != 3 || !strings.HasPrefix(parts[0], "softnd-job-") || len(parts[0]) > 100 || len(parts[1]) != 32 || len(parts[2]) != 32 {
		return a, errors.New("it is not name:secret:identity")
	}
	id, err := hex.DecodeString(parts[2])
	if err != nil {
		return a, fmt.Errorf("the identity in it: %w", err)
	}
	a.name, a.secret = parts[0], parts[1]
	for i, b := range id {
		a.File[i/8] = a.File[i/8]<<8 | uint64(b)
	}
	return a, nil
}

func (a Address) socket() string { return "@" + a.name }

// The kinds of records.
const (
	hello   = "hello"
	leave   = "leave"
	abort   = "abort"
	welcome = "welcome"
	refusal = "refusal"
)

// record is what either side says.
type record struct {
	Kind    string `json:"kind"`
	Version int    `json:"version,omitempty"` // hello
	Build   string `json:"build,omitempty"`   // hello: name of the sender's build of softnd
	Secret  string `json:"secret,omitempty"`  // hello
	Rank    int    `json:"rank,omitempty"`    // hello
	File    bool   `json:"file,omitempty"`    // hello: send it
	Code    int    `json:"code,omitempty"`    // abort
	Text    string `json:"text,omitempty"`    // abort, refusal: why
}

func parse(b []byte) (r record, err error) {
	if len(b) > maxRecord {
		return r, fmt.Errorf("a record of more than %d bytes", maxRecord)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("not a record: %w", err)
	}
	return r, nil
}

func send(c *unixsock.Conn, r record, files ...int) error {
	b, err := json.Marshal(r)
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

// receive reads one record; io.EOF when the other side has hung up.
func receive(c *unixsock.Conn) (record, error) {
	b := make([]byte, maxRecord+1) // so that a longer record does not look like a whole one
	n, err := c.Read(b)            // a plain read: descriptors that come along are dropped
	if err != nil {
		return record{}, err
	}
	return parse(b[:n])
}
