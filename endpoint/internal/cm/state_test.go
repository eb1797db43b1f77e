package cm

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

var machines = []struct {
	name string
	*states
}{{"record", &connStates}, {"connector", &phases}, {"endpoint", &qpStates}}

// each calls f for each transition.
func (t *states) each(f func(from, to string, e Event)) {
	for from, name := range t.text {
		for e := range Event(len(eventText)) {
			if to, ok := t.find(uint32(from), e); ok {
				f(name, t.text[to], e)
			}
		}
	}
}

// The tables are those of STATES.txt, whose notes are left out here, and docs/states.md draws them.
func TestStatesAreListedAndDrawn(t *testing.T) {
	listed := regexp.MustCompile(`(?m)^(  \d [^:\n]*):.*$`).ReplaceAllString(content(t, "../../../internal/layout/STATES.txt"), "$1")
	var list strings.Builder
	for _, m := range machines {
		fmt.Fprintf(&list, "\n%s\n", m.name)
		for i, s := range m.text {
			fmt.Fprintf(&list, "  %d %s\n", i, s)
		}
		drawing := "\n```mermaid\nstateDiagram-v2\n"
		m.each(func(from, to string, e Event) {
			fmt.Fprintf(&list, "  %s: %s -> %s\n", from, eventText[e], to)
			drawing += fmt.Sprintf("    %s --> %s: %s\n", strings.ReplaceAll(from, " ", "_"), strings.ReplaceAll(to, " ", "_"), eventText[e])
		})
		if drawing += "```\n"; !strings.Contains(content(t, "../../../docs/states.md"), drawing) {
			t.Errorf("docs/states.md lacks the drawing of the %s:\n%s", m.name, drawing)
		}
	}
	if !strings.HasSuffix(listed, list.String()) {
		t.Errorf("internal/layout/STATES.txt should end with\n%s", list.String())
	}
}

func content(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Each state is reached from the first, and each event moves a state of some table.
func TestStatesAreReached(t *testing.T) {
	moves := map[Event]bool{}
	for _, m := range machines {
		reached := map[string]bool{m.text[0]: true}
		for range m.text {
			m.each(func(from, to string, e Event) {
				moves[e] = true
				reached[to] = reached[to] || reached[from]
			})
		}
		if len(reached) != len(m.text) {
			t.Errorf("%s: only %v are reached", m.name, reached)
		}
	}
	if len(moves) != len(eventText) {
		t.Errorf("%d events of %d move a state", len(moves), len(eventText))
	}
}

// A state that ends a connection at this side is final, except that the endpoint is closed.
func TestEndedStatesAreFinal(t *testing.T) {
	for _, m := range machines {
		m.each(func(from, to string, e Event) {
			switch from {
			case "refused", "withdrawn", "aborted", "failed", "closed", "ended":
				if to != from && to != "closed" {
					t.Errorf("%s: %s leads from %s to %s", m.name, eventText[e], from, to)
				}
			}
		})
	}
}

// An event that is impossible in a state is an error of softnd. A record ignores it, and every event in a state that no correct peer stores.
func TestImpossibleEvent(t *testing.T) {
	for _, s := range []ConnState{ConnAborted, ConnAborted + 1, 1 << 31} {
		if to, ok := connStates.find(uint32(s), Completes); ok {
			t.Errorf("a record in state %d completes to %d", s, to)
		}
	}
	defer func() {
		if got, want := recover(), `endpoint: event "completes" in state "closed"`; got != want {
			t.Errorf("panic %v, want %v", got, want)
		}
	}()
	qpStates.next(uint32(QPClosed), Completes)
}
