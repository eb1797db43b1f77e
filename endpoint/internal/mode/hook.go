package mode

// TWIN c/src/endpoint/hook.h.

import (
	"context"

	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/window"
)

// Answer is the decision of a hook about a request or a ring entry.
type Answer uint8

const (
	Run   Answer = iota // as without a hook
	Hold                // not now: the endpoint asks again when it is driven next
	Split               // the request pauses here, and BeforeRun decides how it continues
	Aside               // later requests may run before this one
	Done                // the hook has ended it
)

// Hook has a method for each moment in the life of the requests and messages of an endpoint. All calls are made with
// the endpoint locked. A hook keeps none of the arguments.
type Hook interface {
	// Post is called for a request that is complete but not queued yet. An error is that of the post.
	Post(r *Request) error
	// BeforeRun is called before each attempt to run a request: the next one, or one that is set aside.
	BeforeRun(r *Request) Answer
	// Bytes returns which of the next n bytes of a request travel now: m of them from byte at on. If m is 0,
	// the answer is Hold or Split.
	Bytes(r *Request, n uint64) (at, m uint64, a Answer)
	// Copy copies n bytes of a request with Hashed from Endpoint.Source to Endpoint.Sink. If the bytes are wrong, it reports
	// false and has rejected the request.
	Copy(r *Request, n uint64) (matches bool, sinkFault, sourceFault window.Fault)
	// Copied is called when this process has copied n bytes of a request.
	Copied(r *Request, n uint64)
	// BeforeRead is called before the first fragment of a Read with Hashed is sent. If it reports false, the Read waits.
	BeforeRead(r *Request) bool
	// Arrived is called when all bytes of a request are in memory: before it completes, and before a local token is
	// revoked. It may be called again.
	Arrived(r *Request)
	// BeforeCompletion reports whether a finished request, the next to complete, completes now.
	BeforeCompletion(r *Request) bool

	// PostReceive is called for a receive of size bytes that is not published yet. An error is that of the post.
	PostReceive(size uint64) error
	// BeforeServing is called before each attempt to serve the entry at the front of the peer's ring.
	BeforeServing(e *wire.Entry) Answer
	// BeforeReceive is called before each attempt to store a message that its receive can hold.
	BeforeReceive(e *wire.Entry) Answer
	// ServedBytes returns which bytes of a Read or Write of the peer are copied next: at most n from byte at on. done of
	// size bytes are copied. If n is 0, the entry waits.
	ServedBytes(e *wire.Entry, done, size uint64) (at, n uint64)
	// CopyServed is Copy for an entry with wire.FlagHashed. isFirst and isLast say whether these are the first and the last
	// bytes of the request.
	CopyServed(e *wire.Entry, n uint64, isFirst, isLast bool) (matches bool, sinkFault, sourceFault window.Fault)
	// CopiedServed is called when this process has copied n bytes of the entry.
	CopiedServed(e *wire.Entry, n uint64)
	// Received is called when the n bytes of a message are in the entries of its receive. It reports false if it has
	// failed the receive.
	Received(e *wire.Entry, entries []wire.SGE, n uint64) bool
	// Served is called when a receive completes.
	Served()

	// Step is called when the program or the engine drives the endpoint.
	Step()
	// EngineTurn reports whether the progress engine drives the endpoint now. hasScanned says that the program has done
	// so since the last call.
	EngineTurn(hasScanned bool) bool
	// Waits reports whether anything waits for the hook. No ring announces that. isBusy says that a request is not
	// completed, or an entry not served.
	Waits(isBusy bool) bool
	// End is called when all requests are canceled.
	End()
}

// None is a hook that does nothing. A mode embeds the hook inside it, None or another mode, and defines the moments
// that are its own.
type None struct{}

func (None) Post(*Request) error                                { return nil }
func (None) BeforeRun(*Request) Answer                          { return Run }
func (None) Bytes(r *Request, n uint64) (_, _ uint64, _ Answer) { return r.Transferred, n, Run }
func (None) Copy(*Request, uint64) (_ bool, _, _ window.Fault) {
	return true, window.NoFault, window.NoFault
}
func (None) Copied(*Request, uint64)                                     {}
func (None) BeforeRead(*Request) bool                                    { return true }
func (None) Arrived(*Request)                                            {}
func (None) BeforeCompletion(*Request) bool                              { return true }
func (None) PostReceive(uint64) error                                    { return nil }
func (None) BeforeServing(*wire.Entry) Answer                            { return Run }
func (None) BeforeReceive(*wire.Entry) Answer                            { return Run }
func (None) ServedBytes(_ *wire.Entry, done, size uint64) (at, n uint64) { return done, size - done }
func (None) CopyServed(*wire.Entry, uint64, bool, bool) (_ bool, _, _ window.Fault) {
	return true, window.NoFault, window.NoFault
}
func (None) CopiedServed(*wire.Entry, uint64)              {}
func (None) Received(*wire.Entry, []wire.SGE, uint64) bool { return true }
func (None) Served()                                       {}
func (None) Step()                                         {}
func (None) EngineTurn(bool) bool                          { return true }
func (None) Waits(bool) bool                               { return false }
func (None) End()                                          {}

// Endpoint is an endpoint as its hook sees it.
type Endpoint struct {
	View
	Number   uint64
	Requests int // a power of 2: so many consecutive requests have different remainders of Request.Number
	Guard    *window.Guard
	Sink     *window.Operand // of the copy in progress
	Source   *window.Operand
}

// View is what a hook can ask of its endpoint.
type View interface {
	// PeerRank returns the rank of the peer, or shm.NoRank.
	PeerRank() int
	// PeerName names the peer in errors.
	PeerName() string
	// HasEnded reports whether the connection has ended at this side.
	HasEnded() bool
	// HasFailed reports whether the connection has failed, or a queue of the endpoint has overrun.
	HasFailed() bool
	// IsOldest reports whether all requests before r are complete.
	IsOldest(r *Request) bool
	// IsReleased reports whether the peer has released the ring entries before number end.
	IsReleased(end uint64) bool
	// EntryNumber returns the number of the entry at the front of the peer's ring.
	EntryNumber() uint64
	// SharedState returns the shared state of both sides.
	SharedState() (local, peer *wire.SharedQP)

	// Error returns an error of the endpoint.
	Error(op string, s nd.Status, detail, next string) error
	// DescribeLocal describes a scatter/gather entry of this side, with what its token allows.
	DescribeLocal(e wire.SGE) string
	// Reject ends a request with status s.
	Reject(r *Request, s nd.Status, detail string)
	// RejectLocal ends a request because the guard has refused entry e.
	RejectLocal(r *Request, e wire.SGE, f window.Fault)
	// RejectRemote ends a request because the access to the peer's memory is refused.
	RejectRemote(r *Request, why string)
	// FailReceive completes the oldest receive with status s and ends the connection. peer is the status of the peer's
	// request.
	FailReceive(s, peer nd.Status, detail, next string)
	// FailServing ends the connection because of the entry being served.
	FailServing(peer nd.Status, detail, next string)
	// Terminate ends the connection.
	Terminate(cause error)
	// Overrun makes the completion queue of requests, or that of receives, overrun.
	Overrun(ofReceives bool)
	// PlaceEarly stores the data of a message that is in the entry into the oldest receive, without completing it.
	// It reports whether it has. Otherwise a says how serving continues.
	PlaceEarly(e *wire.Entry) (a Answer, isPlaced bool)
}

// Call is a call of the program that has not begun.
type Call struct {
	Op       string // as in errors
	Object   string // as in errors
	Peer     int    // rank; shm.NoRank = none, or not known
	Size     uint64 // bytes
	Endpoint uint64 // number; 0 = none
}

// Calls is a hook for the calls of a provider. It must be safe for concurrent use.
type Calls interface {
	// Before is called before a call begins. An error is that of the call.
	Before(ctx context.Context, c Call) error
	// Refuses reports whether a connection request of a peer, which has arrived, is refused.
	Refuses(peer int) bool
	// Return is called before a wait returns to the program.
	Return()
}

// NoCalls is a hook that does nothing, see None.
type NoCalls struct{}

func (NoCalls) Before(context.Context, Call) error { return nil }
func (NoCalls) Refuses(int) bool                   { return false }
func (NoCalls) Return()                            {}
