// Package ndtest is the conformance suite of the NetworkDirect model. It checks any
// implementation of package nd against the numbered scenarios C001, C002, ... and assumes
// nothing about how the provider moves bytes.
//
// A provider's test calls [Run] with a [Config] that says how to open the provider:
//
//	func TestConformance(t *testing.T) {
//		ndtest.Run(t, ndtest.Config{Open: func() (nd.Provider, error) { return mine.New() }})
//	}
//
// Each scenario is a subtest named by its number; those beyond the table (R001, R002, ...) pair
// every way to take access to memory away with every state that the access can be in. A scenario
// has one or two halves: the active side A, which connects, and the passive side P, which
// listens. Each half opens an adapter of its own. The halves run as goroutines or, with
// [Config.Spawn], one of them in a process of its own that calls [Serve].
//
// [Stress] goes beyond the table: random requests of all kinds over several connections at once,
// compared with a sequential model.
//
// Rows of the model that no program can check are in [Untestable], each with its reason, and a
// run counts them. A scenario of an optional feature that the adapter says it lacks is skipped,
// and counted as such in the [Report].
package ndtest
