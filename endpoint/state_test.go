package endpoint

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// machine is one of the tables of states, as text.
type machine struct {
	name   string
	states []string
	next   func(state int, e connEvent) (to int, ok bool)
}

func machineOf[S ~int | ~uint32](name string, t transitions[S], states ...string) machine {
	return machine{name, states, func(state int, e connEvent) (int, bool) {
		to, ok := t[e][S(state)]
		return int(to), ok
	}}
}

func machines() []machine {
	return []machine{
		machineOf("record", connTransitions, "none", "requested", "accepted", "established", "refused", "withdrawn", "aborted"),
		machineOf("connector", phaseTransitions, "new", "connecting", "accepted", "requested", "accepting", "connected", "ended"),
		machineOf("endpoint", qpTransitions, "idle", "connecting", "accepted", "connected", "peer disconnected", "failed", "disconnecting", "closed"),
	}
}

// each calls f for each transition.
func (m machine) each(f func(from, to string, e connEvent)) {
	for from, name := range m.states {
		for e := range connEvent(len(eventText)) {
			if to, ok := m.next(from, e); ok {
				f(name, m.states[to], e)
			}
		}
	}
}

// STATES.txt is the table for readers and for other languages, docs/states.md its drawing. Both are written here, and compared.
func TestStatesAreListedAndDrawn(t *testing.T) {
	var list, drawing strings.Builder
	for _, m := range machines() {
		fmt.Fprintf(&list, "\n%s\n", m.name)
		for i, s := range m.states {
			fmt.Fprintf(&list, "  %d %s\n", i, s)
		}
		fmt.Fprintf(&drawing, "\n```mermaid\nstateDiagram-v2\n")
		m.each(func(from, to string, e connEvent) {
			fmt.Fprintf(&list, "  %s: %v -> %s\n", from, e, to)
			fmt.Fprintf(&drawing, "    %s --> %s: %v\n", strings.ReplaceAll(from, " ", "_"), strings.ReplaceAll(to, " ", "_"), e)
		})
		drawing.WriteString("```\n")
		if !strings.Contains(content(t, "../docs/states.md"), drawing.String()) {
			t.Errorf("docs/states.md lacks the drawing of the %s:\n%s", m.name, drawing.String())
		}
		drawing.Reset()
	}
	if got := content(t, "../internal/layout/STATES.txt"); !strings.HasSuffix(got, list.String()) {
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
	moves := map[connEvent]bool{}
	for _, m := range machines() {
		reached := map[string]bool{m.states[0]: true}
		for range m.states {
			m.each(func(from, to string, e connEvent) {
				moves[e] = true
				reached[to] = reached[to] || reached[from]
			})
		}
		if len(reached) != len(m.states) {
			t.Errorf("%s: only %v are reached", m.name, reached)
		}
	}
	if len(moves) != len(eventText) {
		t.Errorf("%d events of %d move a state", len(moves), len(eventText))
	}
}

// A state that ends a connection at this side is final, except that the endpoint is closed.
func TestEndedStatesAreFinal(t *testing.T) {
	for _, m := range machines() {
		m.each(func(from, to string, e connEvent) {
			switch from {
			case "refused", "withdrawn", "aborted", "failed", "closed", "ended":
				if to != from && to != "closed" {
					t.Errorf("%s: %v leads from %s to %s", m.name, e, from, to)
				}
			}
		})
	}
}
