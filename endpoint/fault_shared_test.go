package endpoint

import (
	"testing"

	"github.com/softnd/softnd/faults"
	"github.com/softnd/softnd/nd"
)

// TestFaultInSharedPost: a post to a shared receive queue matches the rules about receives that need no endpoint.
func TestFaultInSharedPost(t *testing.T) {
	post := faults.Rule{Phase: "post", Action: "fail", Status: nd.InsufficientResources}
	second, large, named, peer, drop, overrun := post, post, post, post, post, post
	second.Nth = 2
	large.MinSize = 100
	named.Endpoint = 1
	peer.Peers = []int{0}
	drop.Action, drop.Status = "drop", 0
	overrun.Action, overrun.Status = "overrun", 0
	rules := rulesOf(t, on("receive", drop), on("receive", overrun), on("receive", named), on("receive", peer), on("receive", second), on("receive", large))
	p := newPair(t, setup{Both: sideOptions{FaultRules: rules}, Shared: &nd.SharedReceiveQueueConfig{Depth: 4}})
	q := p.queue()
	for i, want := range []nd.Status{nd.Success, nd.InsufficientResources, nd.Success} {
		if got := p.a.do(order{Do: doReceive, Context: uint64(i), Parts: mine(0, 8)}); got.Status != want {
			t.Errorf("post %d: %v %s, want %v", i, got.Status, got.Text, want)
		}
	}
	p.a.refuse(nd.InsufficientResources, order{Do: doReceive, Parts: mine(0, 100)})
	if n := q.outstanding(); n != 2 {
		t.Errorf("%d receives are posted, want 2", n)
	}
	for i, want := range []uint64{0, 0, 0, 0, 4, 1} {
		if matched, _ := p.a.plan.Counts(i); matched != want {
			t.Errorf("rule %d matched %d posts, want %d", i+1, matched, want)
		}
	}
	for range 2 {
		p.b.must(order{Do: doSend, Parts: mine(0, 8)})
	}
	p.a.expect(receiveQueue, success(nd.RequestReceive, 0, 8), success(nd.RequestReceive, 2, 8))
}
