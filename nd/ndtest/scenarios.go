package ndtest

import (
	"fmt"
	"slices"
	"strings"
)

// scenario is a row of the conformance table, C001 and later, or a further scenario, R001 and later or X001 and later.
type scenario struct {
	id    string
	title string // the property that is checked

	// The code of the sides. A scenario with one side has active only.
	active, passive func(*side)

	remote       role // the side that runs in the other process, if there is one
	needsProcess bool // a side is killed, so that another process is needed
	exits        bool // one side calls exit, the other expectPeerExit
	timed        bool // it waits for ReceiveTimeout or DisconnectTimeout, and nothing in it needs a longer one
	ownProvider  bool // a side closes its provider or leaves it in a bad state, so each side opens one of its own
}

// role says which side of a scenario runs.
type role int

const (
	passive role = iota // listens; runs in the other process, if there is one, unless scenario.remote is active
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
		revocationScenarios,                                         // R001 and later
		atomicScenarios, immediateScenarios, immediateFlagScenarios, // X001 and later
	)
	slices.SortFunc(list, func(a, b scenario) int { return strings.Compare(a.id, b.id) })
	return list
}

// Scenario describes a scenario.
type Scenario struct {
	ID, Title string // its number, and the property that it checks
	Timed     bool   // it waits for a time-out of the provider: see [Config.OpenTimed]
}

// Scenarios returns the scenarios that Run checks, ordered by number. The rows of the conformance
// table come first.
func Scenarios() []Scenario {
	var list []Scenario
	for _, s := range all() {
		list = append(list, Scenario{s.id, s.title, s.timed})
	}
	return list
}

// RowCount is the number of rows of the conformance table, C001 to C248. It includes the rows in
// [Untestable].
const RowCount = 248

// RowID returns the number of row i as the suite writes it: RowID(7) is "C007". The first row is 1.
func RowID(i int) string { return fmt.Sprintf("C%03d", i) }
