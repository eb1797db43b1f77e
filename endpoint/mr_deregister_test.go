package endpoint

import (
	"bytes"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// TestDeregisterDuringMessages deregisters a region while other goroutines send from its
// memory and receive into it. When Deregister has returned, no transfer uses the memory.
func TestDeregisterDuringMessages(t *testing.T) {
	t.Parallel()
	const rounds, depth, size = 25, 16, 8
	for _, name := range []string{"of the sender", "of the receiver"} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, setup{Unwired: true, Both: sideOptions{ReceiveDepth: depth}})
			addr := p.b.must(order{Do: doListen}).Addr
			for round := range rounds {
				ep := 0
				if round == 0 {
					p.connect(addr)
				} else {
					ep = p.addEndpoints(addr)
				}
				owner := p.a
				if name == "of the receiver" {
					owner = p.b
				}
				region := owner.must(order{Do: doRegion, Len: depth * size, Private: true, Rights: nd.AllowLocalWrite}).N
				m := owner.regionAt(region)
				token := m.mr.LocalToken()
				from, to := p.a.regionAt(0), p.b.regionAt(0)
				sourceToken, sinkToken := from.mr.LocalToken(), to.mr.LocalToken()
				if owner == p.a {
					from, sourceToken = m, token
				} else {
					to, sinkToken = m, token
				}
				runMessages(t, p, ep, func(i uint64) nd.SGE {
					return nd.SGE{Buffer: from.cut(int(i%depth)*size, size), Token: sourceToken}
				}, func(i uint64) nd.SGE {
					return nd.SGE{Buffer: to.cut(int(i%depth)*size, size), Token: sinkToken}
				}, func() {
					owner.must(order{Do: doDeregister, Region: region})
					for i := range m.bytes() {
						m.bytes()[i] = 0xee
					}
				}, func(received []byte) {
					if owner == p.a && bytes.IndexByte(received, 0xee) >= 0 {
						t.Error("a message holds what was written after the deregistration")
					}
				})
				if !bytes.Equal(m.bytes(), bytes.Repeat([]byte{0xee}, depth*size)) {
					t.Fatalf("round %d: deregistered memory has changed", round)
				}
			}
		})
	}
}

// runMessages sends until the connection fails, which end causes. It checks each message that
// has arrived before its memory is used again.
func runMessages(t *testing.T, p *pair, ep int, source, sink func(i uint64) nd.SGE, end func(), look func(received []byte)) {
	t.Helper()
	const depth = 16
	ctx := proctest.Context(t)
	from, to := p.a.endpointAt(ep), p.b.endpointAt(ep)
	var arrived atomic.Uint64
	var crew sync.WaitGroup
	over := func(results []nd.Result) bool {
		return ctx.Err() != nil || slices.ContainsFunc(results, func(r nd.Result) bool {
			return r.Status != nd.Success && r.EndpointContext == endpointContext(ep) // not results of earlier requests
		})
	}
	for i := range uint64(depth) {
		if err := to.Receive(i, nd.One(sink(i))); err != nil {
			t.Fatal(err)
		}
	}
	crew.Go(func() {
		var results [4]nd.Result
		for i, n := uint64(0), 0; !over(results[:n]); n = p.a.queues[initiatorQueue].Poll(results[:]) {
			if from.Send(i, nd.One(source(i)), 0) == nil {
				i++
			}
			runtime.Gosched()
		}
	})
	crew.Go(func() {
		var results [4]nd.Result
		for next := uint64(depth); ; runtime.Gosched() {
			n := p.b.queues[receiveQueue].Poll(results[:])
			if over(results[:n]) {
				return
			}
			for _, r := range results[:n] {
				if r.Status != nd.Success {
					continue
				}
				look(sink(r.RequestContext).Buffer)
				_ = to.Receive(next, nd.One(sink(next))) // it may have failed by now
				next++
				arrived.Add(1)
			}
		}
	})
	proctest.Eventually(t, "messages arrive", func() bool { return arrived.Load() > 100 })
	end()
	crew.Wait()
}
