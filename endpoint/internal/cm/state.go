// Package cm has what the two sides of a connection share, and what establishes one: its states, the record, and ports.
package cm

// TWIN c/src/endpoint/state.h.

import "fmt"

// A connection has three states: that of its record in shared memory, and for each side that of the endpoint and of the
// connector. Each has a table. internal/layout/STATES.txt has the tables as text, and docs/states.md draws them.

// States is a table of states, by their numbers.
type States struct {
	Text  []string
	After [][len(EventText)]uint8 // the state after an event, plus one; 0 = the event is impossible
}

// Find returns the state after an event, and whether the event is possible in state s, which a peer may have written.
func (t *States) Find(s uint32, e Event) (to uint32, ok bool) {
	if s >= uint32(len(t.After)) || t.After[s][e] == 0 {
		return s, false
	}
	return uint32(t.After[s][e]) - 1, true
}

// Next returns the state after an event. The event must be possible in state s.
func (t *States) Next(s uint32, e Event) uint32 {
	to, ok := t.Find(s, e)
	if !ok {
		panic(fmt.Sprintf("endpoint: event %q in state %q", EventText[e], t.Text[s]))
	}
	return to
}

func (s QPState) String() string { return QPStates.Text[s] }
