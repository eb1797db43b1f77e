package relay

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// eachChange calls f for each transition of a tunnel.
func eachChange(f func(from, to tunnelState, e tunnelEvent)) {
	for from := range tunnelState(len(tunnelStateText)) {
		for e := range tunnelEvent(len(tunnelEventText)) {
			if to, ok := tunnelTransitions[e][from]; ok {
				f(from, to, e)
			}
		}
	}
}

// docs/states.md draws the table.
func TestTunnelStatesAreDrawn(t *testing.T) {
	page, err := os.ReadFile("../../../docs/states.md")
	if err != nil {
		t.Fatal(err)
	}
	name := func(s tunnelState) string { return strings.ReplaceAll(s.String(), " ", "_") }
	drawing := "\n```mermaid\nstateDiagram-v2\n"
	eachChange(func(from, to tunnelState, e tunnelEvent) {
		drawing += fmt.Sprintf("    %s --> %s: %v\n", name(from), name(to), e)
	})
	if drawing += "```\n"; !strings.Contains(string(page), drawing) {
		t.Errorf("docs/states.md lacks the drawing of a tunnel:\n%s", drawing)
	}
}

// A tunnel begins because either process asks. From each state it ends, an end is final, and no event is there in vain.
func TestTunnelStatesAreReached(t *testing.T) {
	reached, ending, moves := map[tunnelState]bool{asked: true, calling: true}, map[tunnelState]bool{over: true}, map[tunnelEvent]bool{}
	for range tunnelStateText {
		eachChange(func(from, to tunnelState, e tunnelEvent) {
			moves[e] = true
			reached[to] = reached[to] || reached[from]
			ending[from] = ending[from] || ending[to]
			if from == over && to != over || from == ended && to != over {
				t.Errorf("event %q leads from %v to %v", e, from, to)
			}
		})
	}
	if n := len(tunnelStateText) - 1; len(reached) != n || len(ending) != n || len(moves) != len(tunnelEventText) {
		t.Errorf("reached are %v, over can get %v, and events that move a state are %v", reached, ending, moves)
	}
	(&tunnel{state: refused}).change(answers)
	defer func() {
		if got, want := recover(), `relay: event "accepts" of a tunnel in state "over"`; got != want {
			t.Errorf("panic %v, want %v", got, want)
		}
	}()
	(&tunnel{state: over}).change(accepts)
}
