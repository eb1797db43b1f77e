package endpoint

import (
	"net/netip"
	"time"

	"github.com/softnd/softnd/nd"
)

// An order is an operation that one side of a connection executes. Orders can be sent, so the
// same test runs with both sides in one process or in two.
type order struct {
	Do       verb
	Endpoint int // which endpoint, and which connector
	Context  uint64
	Parts    []part
	Far      nd.WindowDescriptor
	Flags    nd.OpFlags
	Window   int
	Region   int
	Off, Len int // of Region
	Rights   nd.RegionFlags
	Private  bool // memory of the process instead of arena memory
	Queue    queue
	N        int
	Retries  int // of doPoll: further polls while the queue is empty
	Seed     uint64
	Addr     netip.AddrPort
	Data     []byte
	In, Out  int           // read limits
	Timeout  time.Duration // limits a control call; 0 = proctest.Timeout
}

// part is one scatter/gather entry: a range of a region, which may be out of bounds.
type part struct {
	Region, Off, Len int
	Token            nd.Token // instead of the region's local token, if not 0
}

type reply struct {
	Status  nd.Status // status that the call returned
	Text    string    // its error
	Results []nd.Result
	Far     nd.WindowDescriptor
	Sum     uint64
	N       int
	In, Out int
	Addr    netip.AddrPort
	Data    []byte
	IsGone  bool // the process that received the order is gone
}

type queue int

const (
	initiatorQueue queue = iota
	receiveQueue
)

type verb string

const (
	doWrite         verb = "write"
	doRead          verb = "read"
	doSend          verb = "send"
	doSendRevoking  verb = "send and invalidate"
	doReceive       verb = "receive"
	doBind          verb = "bind"
	doInvalidate    verb = "invalidate"
	doFlush         verb = "flush"
	doWait          verb = "wait" // for N results of Queue
	doPoll          verb = "poll" // for the queued results
	doFill          verb = "fill"
	doFillByte      verb = "fill with byte N"
	doLongestRun    verb = "find the longest run of byte N"
	doSum           verb = "sum"
	doPeek          verb = "peek"   // the bytes themselves
	doGather        verb = "sum up" // of Parts
	doEdges         verb = "check the edges"
	doRegion        verb = "register"
	doAllocate      verb = "allocate" // a region without edges
	doRegionInfo    verb = "describe region"
	doDeregister    verb = "deregister"
	doCloseRegion   verb = "close region"
	doWindow        verb = "create window"
	doCloseWindow   verb = "close window"
	doDescriptor    verb = "describe"
	doEndpoint      verb = "create endpoint"
	doCloseEndpoint verb = "close endpoint"
	doWhy           verb = "why" // Endpoint.Err
	doListen        verb = "listen"
	doAccept        verb = "accept"
	doConnect       verb = "connect"
	doComplete      verb = "complete connect"
	doNotify        verb = "notify disconnect"
	doDisconnect    verb = "disconnect"
	doCloseLink     verb = "close connector"
	doVisit         verb = "visit"  // connect, exchange messages, and end the connection
	doServe         verb = "serve"  // the other side of a visit
	doRepeat        verb = "repeat" // a transfer, until it fails
	doCloseProvider verb = "close provider"
	doInUse         verb = "count memory"
	doLeave         verb = "leave"
)
