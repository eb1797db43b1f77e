package endpoint

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/softnd/softnd/endpoint/internal/mode/integrity"
	"github.com/softnd/softnd/endpoint/internal/ring"
	"github.com/softnd/softnd/endpoint/internal/wire"
	"github.com/softnd/softnd/faults"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndtest"
	"github.com/softnd/softnd/window"
)

// checkedPayloads makes both sides of a pair check payloads.
var checkedPayloads = sideOptions{Options: Options{CheckPayloads: true}}

// TestChecksFindCorruption: a wrong byte in flight fails the request with a status of its own, in each executor,
// for each kind of transfer, at each of its ends. TestFaultCorrupts shows that nothing else finds it.
func TestChecksFindCorruption(t *testing.T) {
	t.Parallel()
	// Around the limits of what a ring entry holds, of the staging buffer, of a bounce buffer, of a chunk, and of a budget.
	for _, n := range []int{1, 8, 32, 33, 40, 41, 48, 49, 1000, integrity.StagingSize + 1, bounceSize + 1, window.ChunkSize + 1, quantum + 1} {
		for _, operation := range []string{"write", "read", "send", "receive"} {
			for _, offset := range []int{0, n - 1} {
				t.Run(fmt.Sprintf("%s of %d/byte %d", operation, n, offset), func(t *testing.T) {
					rule := on(operation, faults.Rule{Nth: 2, Action: "corrupt", Offset: uint64(offset), XOR: 0x10})
					runEach(t, faultSetups(), func(t *testing.T, s setup) {
						s.Both = checkedPayloads
						s.Both.Size = n
						testCorruption(t, s, operation, n, rule)
					})
				})
			}
		}
	}
}

// testCorruption makes two transfers of n bytes. The rule, of the side that operation is about, changes the second.
func testCorruption(t *testing.T, s setup, operation string, n int, rule faults.Rule) {
	rules := [2][]faults.Rule{{rule}, nil}
	if operation == "receive" {
		rules = [2][]faults.Rule{nil, {rule}}
	}
	p := newFaultyPair(t, s, rules[0], rules[1])
	do := map[string]order{"write": {Do: doWrite}, "read": {Do: doRead}, "send": {Do: doSend}, "receive": {Do: doSend}}[operation]
	kind := map[string]nd.RequestType{"write": nd.RequestWrite, "read": nd.RequestRead}[operation]
	if do.Parts = []part{{Len: n / 3}, {Off: n / 3, Len: n - n/3}}; do.Do == doSend {
		kind = nd.RequestSend
		for i := range 3 {
			p.b.must(order{Do: doReceive, Context: uint64(i), Parts: do.Parts})
		}
	} else {
		do.Far = p.b.memory
	}
	from, to := p.a, p.b
	if kind == nd.RequestRead {
		from, to = p.b, p.a
	}
	from.fill(0, 0, n, 1)
	p.a.must(do)
	p.a.expect(initiatorQueue, success(kind, 0, n))
	if to.sum(0, 0, n) != from.sum(0, 0, n) {
		t.Error("the first transfer has delivered other bytes")
	}
	do.Context = 1
	p.a.must(do)
	p.a.expect(initiatorQueue, failure(kind, 1, nd.DataChecksumError))
	if kind == nd.RequestSend {
		p.b.expect(receiveQueue, success(nd.RequestReceive, 0, n), failure(nd.RequestReceive, 1, nd.DataChecksumError), failure(nd.RequestReceive, 2, nd.Canceled))
	}
	p.ended(nd.DataChecksumError)
	if err := p.a.endpointAt(0).Err(); !strings.Contains(err.Error(), fmt.Sprintf("%d bytes", n)) {
		t.Errorf("the error does not name the bytes: %v", err)
	}
	faulty := p.a
	if operation == "receive" {
		faulty = p.b
	}
	faulty.allFired()
}

// TestChecksOfOneSide: each side decides for its own requests, and the peer checks whatever its own setting is.
func TestChecksOfOneSide(t *testing.T) {
	corrupt := func(operation string) []faults.Rule {
		return []faults.Rule{on(operation, faults.Rule{Nth: 1, Action: "corrupt"})}
	}
	for _, asks := range []bool{true, false} {
		t.Run(fmt.Sprintf("the requester asks: %v", asks), func(t *testing.T) {
			runEach(t, faultSetups(), func(t *testing.T, s setup) {
				s.Unwired = true
				p := newFaultyPair(t, s, append(corrupt("send"), corrupt("write")...), nil)
				asking := p.b
				if asks {
					asking = p.a
				}
				asking.provider.options.CheckPayloads = true
				p.b.must(order{Do: doListen})
				number := p.addEndpoints(p.b.listen(0)) // made with that option
				want := success(nd.RequestSend, 0, 100)
				if asks {
					want = failure(nd.RequestSend, 0, nd.DataChecksumError)
				}
				p.b.must(order{Do: doReceive, Endpoint: number, Parts: mine(0, 100)})
				p.a.must(order{Do: doSend, Endpoint: number, Parts: mine(0, 100)})
				if got := p.a.results(initiatorQueue, 1)[0]; got.Status != want.Status {
					t.Errorf("%v, want %v", got.Status, want.Status)
				}
				if got := p.b.results(receiveQueue, 1)[0]; got.Status != want.Status {
					t.Errorf("%v at the receiver, want %v", got.Status, want.Status)
				}
			})
		})
	}
}

// TestChecksFindChangedBuffer: the program changes the buffer of a Send that waits for a receive.
func TestChecksFindChangedBuffer(t *testing.T) {
	for _, n := range []int{8, 5000} {
		runEach(t, everySetup(setup{Both: checkedPayloads}), func(t *testing.T, s setup) {
			p := newPair(t, s)
			p.a.fill(0, 0, n, 1)
			p.a.must(order{Do: doSend, Parts: mine(0, n)})
			p.a.fill(0, n/2, 1, 2)
			p.b.must(order{Do: doReceive, Parts: mine(0, n)})
			p.a.expect(initiatorQueue, failure(nd.RequestSend, 0, nd.DataChecksumError))
			p.b.expect(receiveQueue, failure(nd.RequestReceive, 0, nd.DataChecksumError))
		})
	}
}

// TestChecksAllowPolling: the target polls for a Write and overwrites its last word at once, perhaps before the Write
// is complete. That is no change in flight.
func TestChecksAllowPolling(t *testing.T) {
	runEach(t, faultSetups(), func(t *testing.T, s setup) {
		s.Both = checkedPayloads
		p := newPair(t, s)
		const n = 100_000
		flag := &must(nd.View[atomic.Uint64](p.b.rangeOf(order{Off: n - 8, Len: 8})))[0]
		for i := range 200 {
			p.a.rangeOf(order{Off: n - 8, Len: 8})[0] = 1
			done := make(chan struct{})
			go func() {
				defer close(done)
				for flag.Load() == 0 {
					p.b.queues[0].Poll(nil)
				}
				flag.Store(0)
			}()
			p.a.must(order{Do: doWrite, Context: uint64(i), Parts: mine(0, n), Far: p.b.memory})
			p.a.expect(initiatorQueue, success(nd.RequestWrite, uint64(i), n))
			<-done
		}
	})
}

// TestChecksConform runs the suite where both sides check: in two opposite combinations, or in all.
func TestChecksConform(t *testing.T) {
	t.Parallel() // with the other runs of the suite
	two := func(target, private, processes bool) bool { return target == private && private == processes }
	suiteRuns(two, func(executor string, private, processes bool) {
		if raceDetector && processes {
			return
		}
		kind := executor + checked
		t.Run(fmt.Sprintf("%s/%s/%s", kind, choose(private, "private", "arena"), choose(processes, "processes", "goroutines")), func(t *testing.T) {
			t.Parallel()
			testConformance(t, kind, private, processes)
		})
	})
}

// TestChecksStress: 20 plans of random requests, half of them with a peer process that does not check.
func TestChecksStress(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		here, there := []string{"auto", "target"}[seed/2%2]+checked, []string{"auto", "target"}[seed/4%2]
		if seed%8 < 4 {
			there += checked
		}
		t.Run(fmt.Sprintf("%s+%s/%d", here, there, seed), func(t *testing.T) {
			arena := newArena(t)
			cfg := ndtest.Config{Open: openersIn(arena, here, there), PrivateMemory: seed%3 == 0}
			if seed%2 == 0 {
				cfg.Open = openersIn(arena, here)
				cfg.Spawn = func() (io.ReadWriteCloser, error) { return startConformance(t, arena, there, nil) }
			}
			ndtest.Stress(t, cfg, seed, 3)
		})
	}
}

// TestChecksManyReads: more Reads are in flight than the peer has words for their hashes.
func TestChecksManyReads(t *testing.T) {
	runEach(t, faultSetups(), func(t *testing.T, s setup) {
		s.Both, s.ReadLimit = checkedPayloads, maxReads
		p := newPair(t, s)
		p.b.fill(0, 0, 4096, 1)
		for round := range 4 {
			for i := range 60 {
				p.a.must(order{Do: doRead, Context: uint64(i), Parts: mine(i*64, 64), Far: at(p.b.memory, i*64)})
			}
			for i := range 60 {
				p.a.expect(initiatorQueue, success(nd.RequestRead, uint64(i), 64))
			}
			if p.a.sum(0, 0, 60*64) != p.b.sum(0, 0, 60*64) {
				t.Fatalf("round %d: wrong bytes", round)
			}
		}
	})
}

// TestChecksUnderWeakOrder: a weak order keeps the bytes of a hashed transfer in order, and nothing else.
func TestChecksUnderWeakOrder(t *testing.T) {
	t.Parallel()
	onWeakSeeds(t, 2, func(t *testing.T, seed uint64, processes bool) {
		ndtest.Stress(t, weakConfig(t, seed, processes, checked), seed, 3)
	})
}

// TestChecksRefuseForgedEntries: a peer marks entries with wrong hashes, or has more data than fits beside a hash.
func TestChecksRefuseForgedEntries(t *testing.T) {
	whole := wire.FlagFirst | wire.FlagLast | wire.FlagAckRequest | wire.FlagHashed
	for name, c := range map[string]struct {
		kind   wire.Kind
		length int
		want   nd.Status // of the victim's endpoint
	}{
		"message":       {wire.SendInEntry, 8, nd.DataChecksumError},
		"long message":  {wire.SendInEntry, 41, nd.ConnectionAborted},
		"write":         {wire.WriteInEntry, 8, nd.ConnectionAborted},
		"long write":    {wire.WriteInEntry, 33, nd.ConnectionAborted},
		"empty message": {wire.SendInEntry, 0, nd.DataChecksumError},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, setup{})
			before := p.b.sum(0, 0, 64)
			p.b.must(order{Do: doReceive, Parts: mine(100, 100)})
			attacker := p.a.endpointAt(0).(*queuePair)
			entry := ring.Words{wire.Header(c.kind, whole, c.length, p.b.memory.Token), p.b.memory.Address, 2, 3, 4, 5, 6}
			attacker.mu.Lock()
			attacker.conn.out.Push(&entry)
			attacker.conn.record.Peer.Wake()
			attacker.mu.Unlock()
			victim := p.b.endpointAt(0)
			<-victim.Done()
			if err := victim.Err(); nd.StatusOf(err) != c.want {
				t.Errorf("the victim's error is %v, want %v", err, c.want)
			}
			if p.b.sum(0, 0, 64) != before {
				t.Error("the data of a write with a wrong hash is in memory")
			}
		})
	}
}

// TestChecksRefuseForgedReadHash: a peer answers Reads with wrong hashes.
func TestChecksRefuseForgedReadHash(t *testing.T) {
	p := newPair(t, setup{Executors: [2]Executor{Target, Auto}, Both: checkedPayloads})
	attacker := p.b.endpointAt(0).(*queuePair)
	func() {
		attacker.mu.Lock() // so that its provider cannot serve the Read
		defer attacker.mu.Unlock()
		p.a.must(order{Do: doRead, Parts: mine(0, 8), Far: p.b.memory})
		proctest.Eventually(t, "the Read arrives", attacker.conn.in.HasEntry)
		attacker.localQP.ReadHashes[0].Store(1)
		attacker.conn.in.Advance()
		attacker.conn.in.Release()
		attacker.conn.record.Peer.Wake()
	}()
	p.a.expect(initiatorQueue, failure(nd.RequestRead, 0, nd.DataChecksumError))
	p.ended(nd.DataChecksumError)
}
