// Package relayhook is the hook with which a relay takes part in a connection. The relay's endpoint takes the requests of
// its peer as they are, and the relay has another host execute them.
//
// An endpoint of package endpoint implements Endpoint if endpoint.Options.Forward is set. Its peer then sends every
// request through the ring, and a request completes there when the relay says so. In the other direction the
// endpoint is an ordinary one: the relay posts requests, which execute on the peer's memory.
package relayhook

import (
	"context"

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
	Atomic
)

// Change is what an Atomic does with the 8 bytes at its address.
type Change struct {
	Type    nd.RequestType // RequestFetchAndAdd, RequestCompareAndSwap or RequestSwap
	Operand uint64         // number to add, to compare or to store
	Swap    uint64         // number to store if the comparison finds Operand
}

// Request is one ring entry: a request of the peer, or a part of it. The peer has written all numbers, so
// all of them may be wrong. A caller passes the address to Endpoint methods only.
type Request struct {
	Number     uint64   // of the ring entry, counted from 0
	Kind       Kind     //
	First      bool     // first entry of a request
	Last       bool     // last entry of a request
	Invalidate bool     // of a Send: the receiver invalidates Token
	Solicited  bool     // of a Send, or a Write with immediate data: its Receive completes with a solicited event
	Hashed     bool     // the peer asks for a check of the payload
	Token      nd.Token // remote token, or the token to invalidate
	Address    uint64   // remote address of a Read, Write or Atomic
	Length     uint64   // bytes of this entry
	Total      uint64   // bytes of the whole request
	Hash       uint64   // of the data of the whole request, if a Send or Write is Hashed

	HasImmediate bool   // of a Send or Write: its Receive completes with Immediate
	Immediate    uint32 //
	Change       Change // of an Atomic

	// Where the peer has the data of this entry. Only Endpoint uses these fields.
	InEntry      bool // in Data
	Data         [48]byte
	LocalAddress uint64 // else there, in its memory
	LocalToken   nd.Token
	BindCheck    window.BindCheck // bind of LocalToken
	ResultIndex  int              // of an Atomic: the place of its answer
}

// Adapter is an adapter of a relay.
//
// A connector of it can be bound to any address and port of another host. The process that it connects to then has this
// address as the address of its peer.
type Adapter interface {
	nd.Adapter

	// ListenForOtherHosts makes the member the relay of its arena. It returns a listener that gets all requests of local
	// processes for addresses of other hosts. LocalAddress of a connector with such a request is the address that the
	// process wants.
	ListenForOtherHosts(ctx context.Context) (Listener, error)

	// Serve calls step until ctx ends or the provider is closed, and returns the error. step does all the work that there is, and
	// reports whether there was any; it must not block. Between the calls the process makes progress on all its objects.
	// When there has been no work for some time, the process sleeps until a peer or this process rings the doorbell.
	// Then step is called with the doorbell armed.
	//
	// Other waits of the process drive the same endpoints, and each message wakes them, too. So a process that serves has
	// them for short times only.
	Serve(ctx context.Context, step func() bool) error

	// HasDied reports whether the process that holds a rank of the arena has died, or has ended without leaving.
	HasDied(rank int) bool
}

// Listener is the listener of a relay.
type Listener interface {
	nd.Listener

	// TakeRequest puts the oldest request that waits into c, a new connector. It does not block, and reports false if no
	// request waits.
	TakeRequest(c nd.Connector) (bool, error)
}

// Connector is a connector of a relay.
type Connector interface {
	nd.Connector

	// IsWanted reports whether the process whose request the connector holds waits for an answer. Such a process can
	// cancel its Connect, or die. That rings the waiters' doorbell of the relay.
	IsWanted() bool

	// RejectUnreachable is Reject, but Connect of the process returns nd.HostUnreachable.
	RejectUnreachable() error
}

// Order is a request that the program posts to its peer in parts: for a process of another host, whose memory has
// no token here. The endpoint executes it as any other request, and its result is in the requester's completion queue. The
// range that it names is checked before its first part. Its token has to keep its bind until the last part.
type Order struct {
	Context    uint64   // of the result
	Kind       Kind     //
	Invalidate bool     // of a Send: the peer invalidates Token
	Solicited  bool     // of a Send, or a Write with immediate data: its Receive completes with a solicited event
	Token      nd.Token // remote token, or the token to invalidate
	Address    uint64   // remote address of a Read, Write or Atomic
	Total      uint64   // bytes of the request
	Hashed     bool     // of a Send or Write: its data has to have the hash Hash
	Hash       uint64

	HasImmediate bool    // of a Send or Write: the peer's Receive completes with Immediate
	Immediate    uint32  //
	Change       Change  // of an Atomic, which is posted as a whole
	Old          *uint64 // of an Atomic: the value of the 8 bytes before it, stored when it has succeeded
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

	// AnswerHash tells the peer the hash of the data of a Read that is Hashed. r is the last ring entry of it. It has to be called
	// before Complete.
	AnswerHash(r *Request, hash uint64)

	// AnswerAtomic tells the peer what the 8 bytes of its Atomic were before. It has to be called before Complete.
	AnswerAtomic(r *Request, old uint64)

	// Complete completes the peer's requests whose entries are before number end. Next has returned these entries.
	Complete(end uint64)

	// Fail fails the request with ring entry number, and ends the connection. All requests before it have to be
	// complete. The peer's request has the status if that is nd.AccessViolation, nd.RemoteError, nd.IOTimeout,
	// nd.DataChecksumError or nd.NotSupported.
	Fail(number uint64, status nd.Status, why string)

	// Abort ends the connection. The peer's error includes why.
	Abort(why string)

	// Begin posts a request in parts, and passes the first bytes of a Send or Write as Give does.
	Begin(o *Order, data []byte) error

	// Give passes the next bytes of the Sends and Writes that were begun, in the order of their posts, and no more
	// than their bytes. It copies those that cannot be stored in the peer's memory now, because they
	// wait for an earlier request, for a Receive, or for the peer to copy them.
	Give(data []byte)

	// Used returns how many bytes of those given the peer's memory or the ring have received: the rest is held.
	Used() uint64

	// Take stores the next bytes of a Read in to, which is not longer than the rest of the Read. It returns the
	// number of bytes, which is 0 if an earlier request is not executed, or the peer has to copy first.
	Take(context uint64, to []byte) (n int)
}
