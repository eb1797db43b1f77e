// Package rendezvous lets the ranks of a job on several hosts meet over TCP, without a launcher. Rank 0 listens at an
// address that all ranks know, SOFTND_ROOT. It serves a key-value space and barriers, as PMI does, and tells all ranks
// when one of them aborts the job or dies.
//
//	rank                                        rank 0
//	connects                               →
//	greeting: magic, version, nonce        →
//	                                       ←    magic, version, nonce, proof
//	hello: rank, size                      →    checks them
//	                                       ←    welcome with the name of the job, or refusal
//	put, get, barrier                      →
//	                                       ←    ok, value, refusal
//	leave                                  →    the rank ends in good order
//	abort: code, reason                    →
//	                                       ←    end: another rank has aborted or died
//	end of the connection                  →    without leave: the rank has died
//
// Rank 0 leaves last: it serves the others until they have left.
//
// Both sides know a secret. The proof is an HMAC of the greeting and of both nonces. Each later message is one JSON
// object between its length and an HMAC. The HMAC covers the number of the message, and its key depends on the nonces and
// on the direction. So a process that does not know the secret can neither take part nor change, repeat or
// reflect a message. The messages are not encrypted.
package rendezvous

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// version is that of the protocol. Rank 0 refuses ranks with another version.
const version = 2

// Limits of the key-value space. Those of keys and values are those of PMI.
const (
	maxKey    = 64       // bytes
	maxValue  = 960      // bytes
	maxStored = 64 << 20 // bytes of all keys and values
	maxReason = 512      // bytes
)

// maxStrangers is how many handshakes run at a time. One more ends the oldest.
const maxStrangers = 64

// writeLimit is the time that a rank has to take a message, before it counts as dead.
var writeLimit = 2 * time.Second

// handshakeLimit is the time that a process has from its connection to its hello.
var handshakeLimit = 5 * time.Second

// ErrSecret is the error of Join if the process at the address does not prove that it knows the secret.
var ErrSecret = errors.New("the process there does not know the secret of this job: give all ranks the same secret, and each job a port of its own")

// Config is what a rank brings along.
type Config struct {
	Root       netip.AddrPort // at which rank 0 listens
	Secret     []byte
	Rank, Size int
	Keepalive  time.Duration // a host that is silent for this long, and for two seconds at least, has failed; 0 = 5 s

	// Ended is called once if another rank has aborted the job or died, in a goroutine of its own.
	Ended func(End)
	// Logf prints a line for the user of rank 0.
	Logf func(format string, args ...any)
}

// End says why the job ends. It is the error of Leave then.
type End struct {
	Rank int    // that ends the job; -1 if it is not known
	Code int    // of Abort; 0 after a death
	Text string // the reason of Abort, or what has happened
}

// Error returns a sentence without a full stop.
func (e End) Error() string {
	if e.Code != 0 {
		return fmt.Sprintf("rank %d has aborted the job with code %d: %s", e.Rank, e.Code, e.Text)
	}
	return e.Text
}

// Kinds of messages.
const (
	hello   = "hello"
	welcome = "welcome"
	refusal = "refusal"
	put     = "put"
	get     = "get"
	barrier = "barrier"
	absent  = "absent" // asks which ranks have not reached the barrier
	leave   = "leave"
	abort   = "abort"
	ok      = "ok" // the answer to put, barrier, leave and abort
	value   = "value"
	end     = "end"
)

// message is a message of either side.
type message struct {
	Kind  string `json:"kind"`
	Rank  int    `json:"rank,omitempty"`  // hello, end
	Size  int    `json:"size,omitempty"`  // hello
	Key   string `json:"key,omitempty"`   // put, get
	Value string `json:"value,omitempty"` // put, value
	Code  int    `json:"code,omitempty"`  // abort, end
	Text  string `json:"text,omitempty"`  // welcome: name of the job; refusal, abort, end, absent
}
