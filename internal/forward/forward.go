// Package forward is the hook with which a relay takes part in a connection. The relay's endpoint takes the requests of
// its peer as they are, and the relay has another host execute them.
//
// An endpoint of package endpoint implements Endpoint if endpoint.Options.Forward is set. Its peer then sends every
// request through the ring, and a request completes there when the relay says so. In the other direction the
// endpoint is an ordinary one: the relay posts requests, and the engine executes them on the peer's memory.
package forward

import (
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/window"
)

// Kind is the kind of a request.
type Kind uint8

// The kinds of requests.
const (
	Send Kind = 1 + iota
	Write
	Read
)

// Request is one ring entry: a request of the peer, or a part of it. The peer has written all numbers, so
// all of them may be wrong. A caller passes the address to Endpoint methods only.
type Request struct {
	Number     uint64   // of the ring entry, counted from 0
	Kind       Kind     //
	First      bool     // first entry of a request
	Last       bool     // last entry of a request
	Invalidate bool     // of a Send: the receiver invalidates Token
	Solicited  bool     // of a Send: its Receive completes with a solicited event
	Hashed     bool     // the peer asks for a check of the payload, which a relay cannot make yet
	Token      nd.Token // remote token, or the token to invalidate
	Address    uint64   // remote address of a Read or Write
	Length     uint64   // bytes of this entry
	Total      uint64   // bytes of the whole request

	// Where the peer has the data of this entry. Only Endpoint uses these fields.
	InEntry      bool // in Data
	Data         [48]byte
	LocalAddress uint64 // else there, in its memory
	LocalToken   nd.Token
	BindCheck    window.BindCheck // bind of LocalToken
}

// Endpoint is an endpoint whose peer's requests the program carries out.
type Endpoint interface {
	nd.Endpoint

	// HasNext reports, approximately and without a lock, whether Next has an entry.
	HasNext() bool

	// Next takes the peer's oldest ring entry. It reports false if there is none. An entry that no correct
	// peer writes ends the connection.
	Next(r *Request) bool

	// Fetch copies bytes of a Send or Write from the peer's memory, from byte at of its entry on. It returns
	// nd.Success, nd.ConnectionAborted, or nd.AccessViolation if the peer's own token does not allow it. Then the
	// caller has to call Fail.
	Fetch(r *Request, at uint64, to []byte) nd.Status

	// Store copies bytes of a Read to the peer's memory. It returns the same statuses as Fetch.
	Store(r *Request, at uint64, from []byte) nd.Status

	// Complete completes the peer's requests whose entries are before number end. Next has returned these entries.
	Complete(end uint64)

	// Fail fails the request with ring entry number, and ends the connection. All requests before it have to be
	// complete. The peer's request has the status if that is nd.AccessViolation, nd.RemoteError, nd.IOTimeout or
	// nd.NotSupported.
	Fail(number uint64, status nd.Status, why string)

	// Abort ends the connection. The peer's error includes why.
	Abort(why string)
}
