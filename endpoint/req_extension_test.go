package endpoint

import (
	"strings"
	"testing"

	"github.com/softnd/softnd/nd"
)

// extensions are the requests that only a peer with the extension understands.
var extensions = []verb{doFetchAndAdd, doCompareAndSwap, doSwap, doWriteImmediate, doSendImmediate}

// withoutExtension is a pair whose side b does not say that it understands atomics and immediate data.
func withoutExtension(t *testing.T) *pair {
	p := newPair(t, setup{Unwired: true})
	p.b.endpoints[0].(*queuePair).localQP.Extended = 0
	p.connect(p.b.listen(0))
	return p
}

// A post that the peer does not understand fails at once, and the connection goes on in both directions.
func TestPeerWithoutExtension(t *testing.T) {
	p := withoutExtension(t)
	far := p.b.regionAt(0).mr
	for _, do := range extensions {
		r := p.a.refuse(nd.NotSupported, order{Do: do, Parts: mine(0, 8), Far: nd.DescriptorOf(far)})
		if !strings.Contains(r.Text, "has no atomics and no immediate data") {
			t.Errorf("%s: %s", do, r.Text)
		}
	}
	p.a.must(order{Do: doWrite, Context: 1, Parts: mine(0, 8), Far: nd.DescriptorOf(far)})
	p.a.expect(initiatorQueue, success(nd.RequestWrite, 1, 8))
	_, atomics := p.atomicRegion(p.a, false)
	p.b.must(order{Do: doFetchAndAdd, Context: 2, Parts: mine(0, 8), Far: atomics, Operand: 1})
	p.b.expect(initiatorQueue, success(nd.RequestFetchAndAdd, 2, 8))
}

// An entry of the extension that comes all the same ends the connection.
func TestEntryWithoutExtension(t *testing.T) {
	p := withoutExtension(t)
	p.b.must(order{Do: doReceive, Context: 4, Parts: mine(0, 8)})
	ep := p.a.endpoints[0].(*queuePair)
	ep.mu.Lock()
	ep.conn.peerExtended = true
	ep.mu.Unlock()
	p.a.must(order{Do: doSendImmediate, Context: 1, Parts: mine(0, 8), Operand: 3})
	p.b.expect(receiveQueue, failure(nd.RequestReceive, 4, nd.Canceled))
}
