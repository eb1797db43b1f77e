// Package ndtest is the conformance suite of the NetworkDirect model. It checks any provider, that is,
// any implementation of package nd. It assumes nothing about how the provider moves bytes.
//
// A provider's test calls [Run] with a [Config]. The field Open of the Config opens the provider:
//
//	func TestConformance(t *testing.T) {
//		ndtest.Run(t, ndtest.Config{Open: func() (nd.Provider, error) { return mine.New() }})
//	}
//
// The suite consists of numbered scenarios. Each scenario is a subtest named by its number:
//
//   - C001 to C248 are the rows of the conformance table. Each row is a property that a provider must
//     have.
//   - R001 and later are further scenarios. Each combines a way to revoke access to memory, such as
//     Invalidate, with a state of the access, such as "transfers in progress".
//   - X001 and later are about requests that the model does not have: atomics, and from X101 on Sends and
//     Writes with immediate data. Providers without them skip these scenarios.
//
// A scenario has one or two sides: the active side A connects, and the passive side P listens. Each
// side opens an adapter of its own. By default, both sides run as goroutines. With [Config.Spawn], one
// side runs in another process, which calls [Serve].
//
// [Stress] makes random requests of all kinds on several connections at once, and compares results
// and memory with a sequential model.
//
// [Untestable] lists the rows that no program can check, each with the reason. A scenario for an
// optional feature is skipped if the adapter reports that it does not have the feature. The [Report]
// has the outcome of each scenario.
package ndtest
