// Package cm has the parts of connection management that know no queue pair: the states of a connection, one side's access to
// the record in which both sides keep its state, and the ports of a process.
package cm

// TWIN c/src/endpoint/state.h, c/src/endpoint/state.c.

import "fmt"

// A connection has three states: that of its record in shared memory, and for each side that of the endpoint and of the
// connector. Each has a table. internal/layout/STATES.txt has the tables as text, and docs/states.md draws them.

// states is a table of states, by their numbers.
type states struct {
	text  []string
	after [][len(eventText)]uint8 // the state after an event, plus one; 0 = the event is impossible
}

// find returns the state after an event, and whether the event is possible in state s, which a peer may have written.
func (t *states) find(s uint32, e Event) (to uint32, ok bool) {
	if s >= uint32(len(t.after)) || t.after[s][e] == 0 {
		return s, false
	}
	return uint32(t.after[s][e]) - 1, true
}

// next returns the state after an event. The event must be possible in state s.
func (t *states) next(s uint32, e Event) uint32 {
	to, ok := t.find(s, e)
	if !ok {
		panic(fmt.Sprintf("endpoint: event %q in state %q", eventText[e], t.text[s]))
	}
	return to
}

// After returns the phase after an event, which must be possible.
func (p Phase) After(e Event) Phase { return Phase(phases.next(uint32(p), e)) }

// After returns the state after an event, which must be possible.
func (s QPState) After(e Event) QPState { return QPState(qpStates.next(uint32(s), e)) }

func (s QPState) String() string { return qpStates.text[s] }
