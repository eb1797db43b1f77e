package endpoint

import (
	"testing"

	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/nd"
)

// TestResponderRejectsInvalidInlineWrites checks inline Writes with each kind of mistake: they change no memory. A valid one precedes each, so
// that both ends are on their fast paths.
func TestResponderRejectsInvalidInlineWrites(t *testing.T) {
	for name, tc := range map[string]struct {
		flags  nd.OpFlags
		off, n int
		stale  bool // the window has been invalidated
		other  bool // over another connection
	}{
		"no right to write":  {nd.AllowRead, 0, 8, false, false},
		"a byte before":      {nd.AllowWrite, -1, 8, false, false},
		"a byte behind":      {nd.AllowWrite, 93, 8, false, false},
		"invalidated":        {nd.AllowWrite, 0, 8, true, false},
		"another connection": {nd.AllowWrite | nd.ThisEndpointOnly, 0, 8, false, true},
		"the longest":        {nd.AllowRead, 0, wire.MaxWriteInEntry, false, false},
	} {
		for _, s := range []setup{{Executors: [2]Executor{Target, Target}}, {Private: [2]bool{false, true}}} {
			t.Run(name+"/"+s.String(), func(t *testing.T) {
				p := newPair(t, s)
				from := 0
				if tc.other {
					from = p.addEndpoints(p.b.listen(0))
				}
				w := p.b.newWindow()
				far := p.b.bind(w, 1000, 100, tc.flags)
				if tc.stale {
					p.b.invalidate(w)
				}
				of := func(r nd.Result) nd.Result { r.EndpointContext = endpointContext(from); return r }
				for range 2 { // the first may find out that the memory is out of reach
					p.a.must(order{Do: doWrite, Endpoint: from, Parts: mine(0, 8), Far: at(p.b.memory, 2000)})
					p.a.expect(initiatorQueue, of(success(nd.RequestWrite, 0, 8)))
				}
				before := p.b.sum(0, 900, 300)
				p.a.must(order{Do: doWrite, Endpoint: from, Context: 1, Parts: mine(0, tc.n), Far: at(far, tc.off)})
				p.a.expect(initiatorQueue, of(failure(nd.RequestWrite, 1, nd.AccessViolation)))
				if p.b.sum(0, 900, 300) != before {
					t.Error("the memory has changed")
				}
			})
		}
	}
}
