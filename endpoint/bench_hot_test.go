package endpoint

import (
	"testing"

	"github.com/softnd/softnd/nd"
)

// BenchmarkHotPath measures the cost of the calls themselves, without another core: one
// goroutine drives both sides.
func BenchmarkHotPath(b *testing.B) {
	p := newPair(b, setup{})
	x, y := p.a, p.b
	m := x.regionAt(0)
	here := nd.One(nd.SGE{Buffer: m.cut(0, 8), Token: m.mr.LocalToken()})
	there := nd.One(nd.SGE{Buffer: y.regionAt(0).cut(0, 64), Token: y.regionAt(0).mr.LocalToken()})
	var results [64]nd.Result
	take := func(s *side, q queue, n int) {
		for n > 0 {
			got := s.queues[q].Poll(results[:])
			for i := range results[:got] {
				if results[i].Status != nd.Success {
					b.Fatal(results[i])
				}
			}
			n -= got
		}
	}
	check := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	from, to, far := x.endpointAt(0), y.endpointAt(0), p.b.memory
	b.Run("Write8", func(b *testing.B) {
		for b.Loop() {
			check(from.Write(1, here, far.Address, far.Token, 0))
			take(x, initiatorQueue, 1)
		}
	})
	b.Run("Write8x16", func(b *testing.B) {
		for b.Loop() {
			for range 16 {
				check(from.Write(1, here, far.Address, far.Token, 0))
			}
			take(x, initiatorQueue, 16)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/16, "ns/write")
	})
	b.Run("Read8", func(b *testing.B) {
		for b.Loop() {
			check(from.Read(1, here, far.Address, far.Token, 0))
			take(x, initiatorQueue, 1)
		}
	})
	b.Run("Receive8Send8x16", func(b *testing.B) {
		for b.Loop() {
			for range 16 {
				check(to.Receive(1, there))
			}
			for range 16 {
				check(from.Send(1, here, 0))
			}
			take(x, initiatorQueue, 16)
			take(y, receiveQueue, 16)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/16, "ns/message")
	})
	w, err := x.adapter.CreateMemoryWindow(b.Context())
	check(err)
	b.Run("BindInvalidate", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			check(from.Bind(1, m.mr, w, here.First.Buffer, nd.AllowWrite))
			check(from.Invalidate(2, w, 0))
			take(x, initiatorQueue, 2)
		}
	})
	check(w.Close(x.ctx))
	b.Run("EmptyPoll", func(b *testing.B) {
		for b.Loop() {
			x.queues[initiatorQueue].Poll(results[:])
		}
	})
}
