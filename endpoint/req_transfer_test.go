package endpoint

import (
	"fmt"
	"testing"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/window"
)

// Sizes around the limits of a slot's payload, a post (and a bounce buffer), a chunk, and one call of progress on an
// endpoint.
var transferSizes = []int{0, 1, 8, 39, 40, 41, 47, 48, 49, 63, 64, 65, 4 << 10, smallTransfer - 1, smallTransfer, smallTransfer + 1,
	window.ChunkSize - 1, window.ChunkSize, window.ChunkSize + 1, quantum + 5, 2*quantum + 3}

// bigRegion holds the largest of them, at any of the places that tests use.
const bigRegion = 5 * quantum / 2

func TestTransfersOfAllSizes(t *testing.T) {
	t.Parallel()
	onEvery(t, setup{Both: sideOptions{Size: bigRegion}}, transferAllSizes)
	mixed := mixedSetups()
	for i := range mixed {
		mixed[i].Both.Size = bigRegion
	}
	onEach(t, mixed, transferAllSizes)
}

// transferAllSizes moves data both ways with each kind of request, from and to
// places that are aligned to nothing.
func transferAllSizes(t *testing.T, p *pair) {
	context := uint64(0)
	for _, way := range [][2]*side{{p.a, p.b}, {p.b, p.a}} {
		from, to := way[0], way[1]
		for _, n := range transferSizes {
			context++
			seed := context
			src, dst := 1+n%7, 3+n%5
			same := func(what string, x, y uint64) {
				t.Helper()
				if x != y {
					t.Errorf("%s of %d bytes from %s to %s: the data differ", what, n, from.name, to.name)
				}
			}
			from.fill(0, src, n, seed)
			before := to.sum(0, dst+n, 8)
			from.must(order{Do: doWrite, Context: context, Parts: mine(src, n), Far: at(to.memory, dst)})
			from.expect(initiatorQueue, success(nd.RequestWrite, context, n))
			same("write", from.sum(0, src, n), to.sum(0, dst, n))
			same("write: bytes behind the range", before, to.sum(0, dst+n, 8))

			to.fill(0, dst, n, seed+1<<32)
			from.must(order{Do: doRead, Context: context, Parts: mine(src, n), Far: at(to.memory, dst)})
			from.expect(initiatorQueue, success(nd.RequestRead, context, n))
			same("read", from.sum(0, src, n), to.sum(0, dst, n))

			to.fill(0, dst, n+8, seed+2<<32)
			before = to.sum(0, dst+n, 8)
			to.must(order{Do: doReceive, Context: context, Parts: mine(dst, n+8)})
			from.must(order{Do: doSend, Context: context, Parts: mine(src, n)})
			to.expect(receiveQueue, success(nd.RequestReceive, context, n))
			from.expect(initiatorQueue, success(nd.RequestSend, context, n))
			same("send", from.sum(0, src, n), to.sum(0, dst, n))
			same("send: bytes behind the range", before, to.sum(0, dst+n, 8))
		}
	}
}

// lay puts entries of the given lengths into a region, each at an odd distance
// from the one before.
func lay(region, start int, lengths ...int) (parts []part) {
	for _, n := range lengths {
		parts = append(parts, part{Region: region, Off: start, Len: n})
		start += n + 1 + n%3
	}
	return parts
}

// gathered is the sum of what a list of parts holds.
func (s *side) gathered(parts []part) string {
	s.t.Helper()
	r := s.must(order{Do: doGather, Parts: parts})
	return fmt.Sprintf("%d bytes with sum %#x", r.N, r.Sum)
}

func TestScatterGather(t *testing.T) {
	t.Parallel()
	const most = quantum*5/8 + 1 // of the bytes of a call of progress
	// Lists of the same total, cut at different places.
	lists := [][][]int{
		{{3, 5}, {1, 0, 7}, {8}},
		{{40, 9}, {48, 1}, {7, 7, 35}},
		{{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {66}, {33, 33}},
		{{4097, 13, 0, 1}, {1, 4110}, {2055, 2055, 1}},
		{{smallTransfer, 1, smallTransfer + 1}, {1, 2*smallTransfer + 1}, {smallTransfer - 1, 3, smallTransfer}},
		{{window.ChunkSize, 1, window.ChunkSize + 1}, {1, 2*window.ChunkSize + 1}, {window.ChunkSize - 1, 3, window.ChunkSize}},
		// A call of progress ends in the middle of an entry.
		{{most, 1, most, 77}, {77, 2*most + 1}, {1, 2*most + 77}},
	}
	test := func(t *testing.T, p *pair) {
		for i, list := range lists {
			context, n := uint64(i), 0
			src, dst, back := lay(0, 5, list[0]...), lay(0, 2, list[1]...), lay(0, 1, list[2]...)
			for _, l := range list[0] {
				n += l
			}
			p.a.fill(0, 0, bigRegion, context+7)
			want := p.a.gathered(src)

			p.b.must(order{Do: doReceive, Context: context, Parts: dst})
			p.a.must(order{Do: doSend, Context: context, Parts: src})
			p.b.expect(receiveQueue, success(nd.RequestReceive, context, n))
			p.a.expect(initiatorQueue, success(nd.RequestSend, context, n))
			if got := p.b.gathered(dst); got != want {
				t.Errorf("send of %v to %v: got %s, want %s", list[0], list[1], got, want)
			}

			p.b.fill(0, 0, bigRegion, context+9)
			p.a.must(order{Do: doWrite, Context: context, Parts: src, Far: at(p.b.memory, 9)})
			p.a.expect(initiatorQueue, success(nd.RequestWrite, context, n))
			if got := p.b.gathered(mine(9, n)); got != want {
				t.Errorf("write of %v: got %s, want %s", list[0], got, want)
			}

			p.a.must(order{Do: doRead, Context: context, Parts: back, Far: at(p.b.memory, 9)})
			p.a.expect(initiatorQueue, success(nd.RequestRead, context, n))
			if got := p.a.gathered(back); got != want {
				t.Errorf("read to %v: got %s, want %s", list[2], got, want)
			}
		}
	}
	s := setup{Both: sideOptions{Size: bigRegion, SGE: 16}}
	onEvery(t, s, test)
	mixed := mixedSetups()
	for i := range mixed {
		mixed[i].Both = s.Both
	}
	onEach(t, mixed, test)
}

// TestArenaAndPrivateMemoryInOneList uses both in the same request, at both ends.
func TestArenaAndPrivateMemoryInOneList(t *testing.T) {
	for _, executor := range []Executor{Auto, Target} {
		for _, processes := range []bool{false, true} {
			s := setup{Executors: [2]Executor{executor, executor}, Processes: processes}
			t.Run(s.String(), func(t *testing.T) {
				p := newPair(t, s)
				for _, x := range []*side{p.a, p.b} {
					x.must(order{Do: doRegion, Len: 64 << 10, Private: true, Rights: nd.AllowLocalWrite})
					x.fill(1, 0, 64<<10, 3)
				}
				for i, n := range []int{10, 30, 1000, 30_000} {
					context := uint64(i)
					src := append(append(lay(0, 0, n), lay(1, 7, n)...), lay(0, n+50, n)...)
					dst := append(append(lay(0, 3, n/2), lay(1, 7, 2*n)...), lay(0, n+50, n-n/2)...)
					p.a.fill(0, 0, 64<<10, context)
					want := p.a.gathered(src)
					p.b.must(order{Do: doReceive, Context: context, Parts: dst})
					p.a.must(order{Do: doSend, Context: context, Parts: src})
					p.b.expect(receiveQueue, success(nd.RequestReceive, context, 3*n))
					p.a.expect(initiatorQueue, success(nd.RequestSend, context, 3*n))
					if got := p.b.gathered(dst); got != want {
						t.Errorf("send of 3 times %d: got %s, want %s", n, got, want)
					}
					p.a.must(order{Do: doWrite, Context: context, Parts: src, Far: p.b.memory})
					p.a.expect(initiatorQueue, success(nd.RequestWrite, context, 3*n))
					p.b.fill(0, 0, 3*n, context+5)
					p.a.must(order{Do: doRead, Context: context, Parts: src, Far: p.b.memory})
					p.a.expect(initiatorQueue, success(nd.RequestRead, context, 3*n))
					if got, want := p.a.gathered(src), p.b.gathered(mine(0, 3*n)); got != want {
						t.Errorf("read of 3 times %d: got %s, want %s", n, got, want)
					}
				}
			})
		}
	}
}

// TestFullQueuesComplete posts a full queue of each kind before it takes a result.
func TestFullQueuesComplete(t *testing.T) {
	t.Parallel()
	const depth, n = 300, 200 // more than a ring has slots
	onEvery(t, setup{Both: sideOptions{InitiatorDepth: depth, ReceiveDepth: depth}}, func(t *testing.T, p *pair) {
		p.a.fill(0, 0, depth*n, 1)
		var writes, reads, sends, receives []nd.Result
		for i := range uint64(depth) {
			at := int(i) * n
			p.a.must(order{Do: doWrite, Context: i, Parts: mine(at, n), Far: atFar(p.b, at)})
			writes = append(writes, success(nd.RequestWrite, i, n))
			reads = append(reads, success(nd.RequestRead, i, n))
			sends = append(sends, success(nd.RequestSend, i, n))
			receives = append(receives, success(nd.RequestReceive, i, n))
		}
		p.a.refuse(nd.NoMoreEntries, order{Do: doWrite, Parts: mine(0, n), Far: p.b.memory})
		p.a.expect(initiatorQueue, writes...)
		want := p.a.sum(0, 0, depth*n)
		if p.b.sum(0, 0, depth*n) != want {
			t.Error("the writes do not add up")
		}
		p.a.fill(0, 0, depth*n, 2)
		for i := range uint64(depth) {
			at := int(i) * n
			p.a.must(order{Do: doRead, Context: i, Parts: mine(at, n), Far: atFar(p.b, at)})
		}
		p.a.expect(initiatorQueue, reads...)
		if p.a.sum(0, 0, depth*n) != want {
			t.Error("the reads do not add up")
		}
		p.b.fill(0, 0, depth*n, 3)
		for i := range uint64(depth) {
			p.b.must(order{Do: doReceive, Context: i, Parts: mine(int(i)*n, n)})
		}
		p.b.refuse(nd.NoMoreEntries, order{Do: doReceive})
		for i := range uint64(depth) {
			p.a.must(order{Do: doSend, Context: i, Parts: mine(int(i)*n, n)})
		}
		p.b.expect(receiveQueue, receives...)
		p.a.expect(initiatorQueue, sends...)
		if p.b.sum(0, 0, depth*n) != want {
			t.Error("the messages do not add up")
		}
	})
}

func atFar(p *side, off int) nd.WindowDescriptor { return at(p.memory, off) }

// TestFullRingResumes posts more than the ring holds while the peer is stopped, and then continues the peer.
func TestFullRingResumes(t *testing.T) {
	t.Parallel()
	const depth, n = 700, 64
	s := setup{Executors: [2]Executor{Target, Target}, Processes: true, Both: sideOptions{InitiatorDepth: depth, ReceiveDepth: depth}}
	for _, request := range []nd.RequestType{nd.RequestWrite, nd.RequestRead, nd.RequestSend} {
		t.Run(request.String(), func(t *testing.T) {
			p := newPair(t, s)
			var receives, results []nd.Result
			for i := range uint64(depth) {
				receives = append(receives, success(nd.RequestReceive, i, n))
				results = append(results, success(request, i, n))
				if request == nd.RequestSend {
					p.b.must(order{Do: doReceive, Context: i, Parts: mine(int(i)*n, n)})
				}
			}
			p.a.fill(0, 0, depth*n, 1)
			p.b.process.Stop()
			for i := range uint64(depth) {
				at := int(i) * n
				o := order{Context: i, Parts: mine(at, n), Far: atFar(p.b, at)}
				switch request {
				case nd.RequestWrite:
					o.Do = doWrite
				case nd.RequestRead:
					o.Do = doRead
				case nd.RequestSend:
					o.Do = doSend
				}
				p.a.must(o)
			}
			p.a.nothing(initiatorQueue)
			p.b.process.Resume()
			p.a.expect(initiatorQueue, results...)
			if request == nd.RequestSend {
				p.b.expect(receiveQueue, receives...)
			}
			if p.a.sum(0, 0, depth*n) != p.b.sum(0, 0, depth*n) {
				t.Error("the data differ")
			}
		})
	}
}

// TestTransfersInBothDirections keeps both directions busy with all kinds of requests.
func TestTransfersInBothDirections(t *testing.T) {
	const rounds, n = 40, 70_000
	onEvery(t, setup{Both: sideOptions{Size: 1 << 20, OneQueue: true}}, func(t *testing.T, p *pair) {
		for _, x := range []*side{p.a, p.b} {
			x.fill(0, 0, n, 1)
			for i := range uint64(rounds) {
				x.must(order{Do: doReceive, Context: i, Parts: mine(2*n+int(i)*16, n)})
			}
		}
		ended := make(chan []nd.Result, 2)
		for i, x := range []*side{p.a, p.b} {
			y := []*side{p.b, p.a}[i]
			go func() {
				var all []nd.Result
				for i := range uint64(rounds) {
					kind := []verb{doWrite, doSend, doRead}[i%3]
					far := at(y.memory, 4*n)
					if kind == doSend {
						far = nd.WindowDescriptor{}
					}
					if r := x.do(order{Do: kind, Context: i, Parts: mine(0, n-int(i)), Far: far}); r.Status != nd.Success {
						t.Errorf("%s: %s", kind, r.Text)
					}
				}
				r := x.do(order{Do: doWait, N: rounds + (rounds+1)/3})
				if all = r.Results; r.Status != nd.Success {
					t.Errorf("%s: %s", x.name, r.Text)
				}
				ended <- all
			}()
		}
		for range 2 {
			next := map[bool]uint64{}
			for _, r := range <-ended {
				own := r.RequestType.Initiator()
				if r.Status != nd.Success || r.RequestContext != next[own] {
					t.Errorf("result %v, want a success with context %d", r, next[own])
				}
				next[own] = r.RequestContext + 1
			}
		}
	})
}
