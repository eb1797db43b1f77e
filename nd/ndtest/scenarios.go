package ndtest

import (
	"fmt"
	"slices"
	"strings"
)

// scenario is one row of the conformance table, C001 and on, or beyond it, R001 and on.
type scenario struct {
	id    string
	title string // what must hold, in a few words

	// The two halves. A scenario that needs one side has active only.
	active, passive func(*side)

	remote       role // the half that runs in the other process, if there is one
	needsProcess bool // needs another process: one half is killed
	exits        bool // a half calls s.exit, and the other s.survive
	ownProvider  bool // opens providers of its own, since it closes one or leaves it in a bad state
}

// role is the part that a half plays.
type role int

const (
	passive role = iota // listens; runs away from the test unless the scenario says otherwise
	active              // connects
)

func (r role) String() string {
	if r == active {
		return "A"
	}
	return "P"
}

// all returns the scenarios in the order of their numbers.
func all() []scenario {
	list := slices.Concat(
		startScenarios, notifyScenarios, connectScenarios, crossingScenarios, // parts A to D
		overflowScenarios, windowScenarios, // E, F
		limitScenarios, connectErrorScenarios, violationScenarios, // G
		messageScenarios, remoteScenarios, registrationScenarios, // H
		invalidateScenarios, sendInvalidateScenarios, bindScenarios, writeScenarios, // I
		queueScenarios, endpointScenarios, endpointOrderScenarios, connectorScenarios, listenerScenarios, regionScenarios, sharedScenarios, // J
		revocationScenarios, // R001 and on: no rows of the table
	)
	slices.SortFunc(list, func(a, b scenario) int { return strings.Compare(a.id, b.id) })
	return list
}

// Scenario tells what a row of the conformance table, or a scenario beyond it, is about.
type Scenario struct{ ID, Title string }

// Scenarios lists what Run checks, in the order of the numbers, rows of the table first.
func Scenarios() []Scenario {
	var list []Scenario
	for _, s := range all() {
		list = append(list, Scenario{s.id, s.title})
	}
	return list
}

// RowCount is the number of rows of the conformance table: C001 to C248.
const RowCount = 248

// RowID returns the number of row i, counted from 1.
func RowID(i int) string { return fmt.Sprintf("C%03d", i) }
