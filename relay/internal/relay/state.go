package relay

import "fmt"

// tunnelState is the state of this relay's end of a tunnel. docs/states.md draws its table.
type tunnelState uint8

const (
	asked        tunnelState = 1 + iota // a local process has asked for a connection; the other relay has not answered
	refused                             // the other relay has refused; the local process gets to know
	accepting                           // the process of the other host has accepted; the local process has not completed
	calling                             // a process of the other host has asked; the local process has not answered
	offered                             // the local process has accepted; that of the other host has not completed
	open                                // requests are carried, also in the next five states
	disconnected                        // the local process has disconnected, and Disconnect is sent
	told                                // Disconnect has arrived, and the local process gets to know
	parting                             // both processes have disconnected, that of the other host first
	answering                           // both have, the local process first; it gets its answer
	lastAnswer                          // the same, and Abort has arrived
	ended                               // nothing is carried; Abort of the other relay is on its way
	over                                // neither relay needs the tunnel when the outbox is empty
)

var tunnelStateText = [...]string{"none", "asked", "refused", "accepting", "calling", "offered", "open", "disconnected", "told", "parting", "answering",
	"last answer", "ended", "over"}

func (s tunnelState) String() string { return tunnelStateText[s] }

// carries reports whether requests and their answers pass.
func (s tunnelState) carries() bool { return s >= open && s <= lastAnswer }

// tunnelEvent is what happens to a tunnel.
type tunnelEvent uint8

const (
	peerAccepts     tunnelEvent = iota // Accept arrives
	peerRefuses                        // Refuse arrives in answer to Open
	answers                            // the local process has the refusal
	withdraws                          // the local process gives up before Open is sent
	accepts                            // the local process accepts
	refuses                            // the local process or this relay refuses
	completes                          // the process that has asked completes
	disconnects                        // Disconnect is posted, because the local process has disconnected
	peerDisconnects                    // Disconnect arrives
	peerEnds                           // Abort arrives
	ends                               // this relay ends the tunnel, and posts Abort if the other one knows of it
)

var tunnelEventText = [...]string{"peer accepts", "peer refuses", "answers", "withdraws", "accepts", "refuses", "completes", "disconnects",
	"peer disconnects", "peer ends", "ends"}

func (e tunnelEvent) String() string { return tunnelEventText[e] }

var tunnelTransitions = map[tunnelEvent]map[tunnelState]tunnelState{
	peerAccepts:     {asked: accepting},
	peerRefuses:     {asked: refused, ended: over},
	answers:         {refused: over, over: over}, // over: the link has ended
	withdraws:       {asked: over},
	accepts:         {calling: offered},
	refuses:         {calling: over},
	completes:       {accepting: open, offered: open},
	disconnects:     {open: disconnected, told: parting},
	peerDisconnects: {open: told, disconnected: answering},
	peerEnds:        {answering: lastAnswer, ended: over},
	ends: {asked: ended, refused: over, accepting: ended, calling: ended, offered: ended, open: ended, disconnected: ended, told: ended,
		parting: ended, answering: ended, lastAnswer: over},
}

// change changes the state by an event that is possible in it.
func (t *tunnel) change(e tunnelEvent) {
	to, ok := tunnelTransitions[e][t.state]
	if !ok {
		panic(fmt.Sprintf("relay: event %q of a tunnel in state %q", e, t.state))
	}
	t.state = to
}

// hasEnded reports whether this relay has ended the tunnel.
func (t *tunnel) hasEnded() bool { return t.state == ended || t.state == over }
