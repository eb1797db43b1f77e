package endpoint

import "fmt"

// A connection has three states: that of its record in shared memory, and for each side that of the endpoint and of the
// connector. This file is the table of them: for each event and state the state that follows. An event has no effect in a
// state without a row. internal/layout/STATES.txt has the table as text, and docs/states.md draws it.

// connEvent is what happens to a connection at one side.
type connEvent uint8

const (
	requests        connEvent = iota // Connect sends the request
	undoes                           // Connect has failed, and may be called again
	takes                            // a connector takes the request of a peer
	accepts                          // Accept answers the request; at the active side: the answer has arrived
	completes                        // CompleteConnect; at the passive side: it has been noticed
	refuses                          // there is no listener, its backlog is full, or Reject
	withdraws                        // the active side gives up
	abandons                         // the passive side gives up before the active side has completed
	cuts                             // a relay cannot reach the process that the request is for
	aborts                           // either side ends the connection by force, or it has failed
	disconnects                      // this side calls Disconnect
	peerDisconnects                  // the peer has called Disconnect
	bothDisconnect                   // both sides have called Disconnect
	ends                             // the connector is not used again
	closes                           // the endpoint is closed
)

var eventText = [...]string{"requests", "undoes", "takes", "accepts", "completes", "refuses", "withdraws", "abandons", "cuts", "aborts",
	"disconnects", "peer disconnects", "both disconnect", "ends", "closes"}

func (e connEvent) String() string { return eventText[e] }

// transitions has for each event the states before and after it.
type transitions[S comparable] map[connEvent]map[S]S

// next returns the state after an event. The event must be possible in state s.
func (t transitions[S]) next(s S, e connEvent) S {
	to, ok := t[e][s]
	if !ok {
		panic(fmt.Sprintf("endpoint: event %q in state %v", e, s))
	}
	return to
}

// connState is the state word of a connection record. It changes by compare-and-swap only, so
// that one side wins if the two want different changes.
type connState uint32

const (
	connRequested connState = 1 + iota
	connAccepted
	connEstablished
	connRefused
	connWithdrawn
	connAborted
)

// connTransitions: the active side requests, completes and withdraws; the passive side accepts, refuses, abandons and cuts.
var connTransitions = transitions[connState]{
	requests:  {0: connRequested},
	accepts:   {connRequested: connAccepted},
	refuses:   {connRequested: connRefused},
	cuts:      {connRequested: connAborted},
	completes: {connAccepted: connEstablished},
	withdraws: {connRequested: connWithdrawn, connAccepted: connWithdrawn},
	abandons:  {connAccepted: connAborted},
	aborts:    {connAccepted: connAborted, connEstablished: connAborted},
}

// phase is the state of a connector.
type phase int

const (
	phaseNew        phase = iota // also after a failed Connect that may be repeated
	phaseConnecting              // Connect in progress
	phaseAccepted                // active side: Connect is done, CompleteConnect is due
	phaseRequested               // passive side: holds a request that is not answered
	phaseAccepting               // passive side: Accept in progress
	phaseConnected               // connected now or before
	phaseEnded
)

var phaseTransitions = transitions[phase]{
	requests:  {phaseNew: phaseConnecting},
	undoes:    {phaseConnecting: phaseNew},
	takes:     {phaseNew: phaseRequested},
	accepts:   {phaseConnecting: phaseAccepted, phaseRequested: phaseAccepting},
	completes: {phaseAccepted: phaseConnected, phaseAccepting: phaseConnected},
	ends: {phaseNew: phaseEnded, phaseConnecting: phaseEnded, phaseAccepted: phaseEnded, phaseRequested: phaseEnded,
		phaseAccepting: phaseEnded, phaseConnected: phaseEnded, phaseEnded: phaseEnded},
}

// qpState is the state of an endpoint.
type qpState uint32

const (
	idle       qpState = iota
	connecting         // a Connect or Accept is in progress
	accepted           // active side: the peer has accepted, CompleteConnect has not returned
	connected
	peerDisconnected // the peer has called Disconnect
	failed           // after an error, a flush, an abort, or the peer's death
	disconnecting    // this side has called Disconnect, the peer has not
	closed
)

var stateText = [...]string{"idle", "connecting", "accepted by the peer", "connected", "disconnected by the peer", "failed", "disconnecting", "closed"}

func (s qpState) String() string { return stateText[s] }

var qpTransitions = transitions[qpState]{
	requests:        {idle: connecting}, // also Accept
	undoes:          {connecting: idle, accepted: idle},
	accepts:         {connecting: accepted},
	completes:       {accepted: connected, connecting: connected},
	peerDisconnects: {connected: peerDisconnected},
	disconnects:     {connected: disconnecting, peerDisconnected: disconnecting},
	bothDisconnect:  {disconnecting: closed},
	aborts: {idle: failed, connecting: failed, accepted: failed, connected: failed, peerDisconnected: failed,
		disconnecting: failed},
	closes: {failed: closed, closed: closed},
}
