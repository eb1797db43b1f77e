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
// Each scenario is a subtest named by its number. C001 and later are the rows of the conformance
// table. R001 and later combine each way to revoke access to memory with each state that the
// access can be in.
//
// A scenario has one or two sides: the active side A connects, the passive side P listens. Each
// side opens an adapter of its own. Both sides run as goroutines by default. With [Config.Spawn],
// one side runs in a process of its own that calls [Serve].
//
// [Stress] makes random requests of all kinds on several connections at once, and compares results
// and memory with a sequential model.
//
// [Untestable] lists the rows that no program can check, each with its reason. A scenario is
// skipped if the adapter reports that it lacks the optional feature. The [Report] counts both.
package ndtest
