package endpoint

import (
	"fmt"
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
	Operand  uint64        // of an atomic; the immediate data of a Send or Write
	Swap     uint64        // of CompareAndSwap
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
	doSendImmediate verb = "send immediate"
	doReceive       verb = "receive"
	doBind          verb = "bind"
	doInvalidate    verb = "invalidate"
	doFlush         verb = "flush"

	doWriteImmediate verb = "write immediate"
	doFetchAndAdd    verb = "fetch and add"
	doCompareAndSwap verb = "compare and swap"
	doSwap           verb = "swap"

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

// do executes an order and returns its reply.
func (s *side) do(o order) reply {
	if s.process != nil {
		return s.process.execute(o)
	}
	return s.execute(o)
}

// start executes an order in the background.
func (s *side) start(o order) <-chan reply {
	c := make(chan reply, 1)
	go func() { c <- s.do(o) }()
	return c
}

// must executes an order that has to succeed.
func (s *side) must(o order) reply {
	s.t.Helper()
	r := s.do(o)
	if r.Status != nd.Success {
		s.t.Fatalf("%s: %s: %s\n%s", s.name, o.Do, r.Text, s.why())
	}
	return r
}

// refuse executes an order that has to return a status.
func (s *side) refuse(want nd.Status, o order) reply {
	s.t.Helper()
	r := s.do(o)
	if r.Status != want {
		s.t.Errorf("%s: %s returns %v (%s), want %v", s.name, o.Do, r.Status, r.Text, want)
	}
	return r
}

// why returns why the endpoints of this side have ended.
func (s *side) why() string {
	r := s.do(order{Do: doWhy})
	return fmt.Sprintf("%s says: %q", s.name, r.Text)
}

// region describes a region to peers.
func (s *side) describe(i int) nd.WindowDescriptor {
	s.t.Helper()
	return s.must(order{Do: doRegionInfo, Region: i}).Far
}

// results waits for n results of a queue.
func (s *side) results(q queue, n int) []nd.Result {
	s.t.Helper()
	r := s.do(order{Do: doWait, Queue: q, N: n})
	if r.Status != nd.Success {
		s.t.Fatalf("%s: waiting for %d results of queue %d: %s (the last are %v)\n%s", s.name, n, q, r.Text, r.Results[max(0, len(r.Results)-3):], s.why())
	}
	return r.Results
}

// expect waits for the results of a queue, which must be exactly these. It fills in the first
// endpoint's context.
func (s *side) expect(q queue, want ...nd.Result) {
	s.t.Helper()
	for i := range want {
		if want[i].EndpointContext == 0 {
			want[i].EndpointContext = endpointContext(0)
		}
	}
	for i, got := range s.results(q, len(want)) {
		if got != want[i] {
			s.t.Fatalf("%s: result %d of queue %d\n got %v\nwant %v\n%s", s.name, i, q, got, want[i], s.why())
		}
	}
}

// nothing checks that a queue has no result.
func (s *side) nothing(q queue) {
	s.t.Helper()
	if r := s.must(order{Do: doPoll, Queue: q, N: 4}); len(r.Results) != 0 {
		s.t.Errorf("%s: unexpected results of queue %d: %v", s.name, q, r.Results)
	}
}

func (s *side) fill(region, off, n int, seed uint64) {
	s.t.Helper()
	s.must(order{Do: doFill, Region: region, Off: off, Len: n, Seed: seed})
}

func (s *side) sum(region, off, n int) uint64 {
	s.t.Helper()
	return s.must(order{Do: doSum, Region: region, Off: off, Len: n}).Sum
}
