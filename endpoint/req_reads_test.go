package endpoint

import (
	"sync"
	"testing"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
)

// TestReadLimitBoundsReadsInProgress checks that the peer never has more Reads than the limit, and that the others follow.
func TestReadLimitBoundsReadsInProgress(t *testing.T) {
	const n = 1000
	for _, limit := range []int{1, 2, 5, maxReads} {
		for _, private := range []bool{false, true} {
			s := setup{ReadLimit: limit, Executors: [2]Executor{Target, Target}, Private: [2]bool{private, private}}
			t.Run(s.String(), func(t *testing.T) {
				count := limit + 7
				s.Both.InitiatorDepth = count
				p := newPair(t, s)
				p.b.fill(0, 0, count*n, 1)
				from, to := p.a.endpointAt(0).(*queuePair), p.b.endpointAt(0).(*queuePair)

				to.mu.Lock() // so that nothing is done there
				release := sync.OnceFunc(to.mu.Unlock)
				defer release()
				var want []nd.Result
				for i := range uint64(count) {
					p.a.must(order{Do: doRead, Context: i, Parts: mine(int(i)*n, n), Far: at(p.b.memory, int(i)*n)})
					want = append(want, success(nd.RequestRead, i, n))
				}
				readsSent := func() uint64 {
					from.progress()
					from.mu.Lock()
					defer from.mu.Unlock()
					return from.conn.readsSent
				}
				most := uint64(limit)
				if private {
					// One is in progress at a time: its data pass through a buffer.
					most = 1
				}
				proctest.Eventually(t, "as many Reads as may are under way", func() bool { return readsSent() >= most })
				for range 10 {
					if got := readsSent(); got != most {
						t.Errorf("%d Reads in progress, want %d", got, most)
					}
				}
				release()

				p.a.expect(initiatorQueue, want...)
				if p.a.sum(0, 0, count*n) != p.b.sum(0, 0, count*n) {
					t.Error("the data differ")
				}
			})
		}
	}
}

// TestReadsBehindLimitDelayLaterRequests checks that requests after the Reads wait for them, and that fences wait for all of them.
func TestReadsBehindLimitDelayLaterRequests(t *testing.T) {
	onEvery(t, setup{ReadLimit: 2, Both: sideOptions{Size: 1 << 20}}, func(t *testing.T, p *pair) {
		const n = 100_000
		p.b.fill(0, 0, 5*n, 1)
		before := p.b.sum(0, 0, 5*n)
		p.b.must(order{Do: doReceive, Context: 9})
		var want []nd.Result
		for i := range uint64(5) {
			p.a.must(order{Do: doRead, Context: i, Parts: mine(int(i)*n, n), Far: at(p.b.memory, int(i)*n)})
			want = append(want, success(nd.RequestRead, i, n))
		}
		p.a.must(order{Do: doWrite, Context: 5, Parts: mine(5*n, n), Far: p.b.memory, Flags: nd.ReadFence})
		p.a.must(order{Do: doSend, Context: 6})
		p.a.expect(initiatorQueue, append(want, success(nd.RequestWrite, 5, n), success(nd.RequestSend, 6, 0))...)
		p.b.expect(receiveQueue, success(nd.RequestReceive, 9, 0))
		if p.a.sum(0, 0, 5*n) != before {
			t.Error("a Read brought what a fenced Write put there")
		}
		if p.b.sum(0, 0, n) != p.a.sum(0, 5*n, n) {
			t.Error("the Write's data differ")
		}
	})
}
