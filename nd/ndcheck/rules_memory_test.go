//go:build linux

package ndcheck_test

import (
	"github.com/softnd/softnd/nd"
)

// memoryPrograms are about tokens (N1) and buffers (N2).
var memoryPrograms = []program{
	{rule: "N101", other: 0,
		broken: [2]func(s *side){
			func(s *side) {
				w := s.bind(0, 64, nd.AllowWrite)
				s.give(w.Descriptor())
				s.must(s.ep.Invalidate(2, w, 0))
				s.done()
				s.barrier()
			},
			func(s *side) {
				d := s.get()
				s.barrier()
				s.must(nd.WriteTo(s.ep, 1, s.sge(0, 8), d, 0))
				s.result(s.init)
			}},
		clean: [2]func(s *side){
			func(s *side) {
				w := s.bind(0, 64, nd.AllowWrite)
				s.give(w.Descriptor())
				s.barrier()
				s.must(s.ep.Invalidate(2, w, 0))
				s.done()
				s.close()
			},
			func(s *side) {
				d := s.get()
				s.must(nd.WriteTo(s.ep, 1, s.sge(0, 8), d, 0))
				s.done()
				s.barrier()
				s.close()
			}}},
	{rule: "N102", other: 0,
		broken: [2]func(s *side){
			func(s *side) { s.give(s.bind(0, 64, nd.AllowWrite).Descriptor()); s.barrier() },
			func(s *side) {
				d := s.get()
				s.must(s.ep.Write(1, s.sge(0, 8), d.Address+60, d.Token, 0))
				s.result(s.init)
				s.barrier()
			}},
		clean: [2]func(s *side){
			func(s *side) { s.give(s.bind(0, 64, nd.AllowWrite).Descriptor()); s.barrier(); s.close() },
			func(s *side) {
				d := s.get()
				s.must(s.ep.Write(1, s.sge(0, 8), d.Address+56, d.Token, 0))
				s.done()
				s.barrier()
				s.close()
			}}},
	{rule: "N103", other: 0,
		broken: [2]func(s *side){
			func(s *side) { s.give(s.bind(0, 64, nd.AllowRead).Descriptor()); s.barrier() },
			func(s *side) {
				d := s.get()
				s.must(nd.WriteTo(s.ep, 1, s.sge(0, 8), d, 0))
				s.result(s.init)
				s.barrier()
			}},
		clean: [2]func(s *side){
			func(s *side) { s.give(s.bind(0, 64, nd.AllowRead).Descriptor()); s.barrier(); s.close() },
			func(s *side) {
				d := s.get()
				s.must(nd.ReadFrom(s.ep, 1, s.sge(0, 8), d, 0))
				s.done()
				s.barrier()
				s.close()
			}}},
	{rule: "N104", other: 0,
		broken: [2]func(s *side){
			func(s *side) {
				s.give(nd.WindowDescriptor{Address: s.mr.Address(), Length: memory, Token: s.mr.LocalToken()})
				s.barrier()
			},
			func(s *side) {
				d := s.get()
				s.must(nd.ReadFrom(s.ep, 1, s.sge(0, 8), d, 0))
				s.result(s.init)
				s.barrier()
			}},
		clean: [2]func(s *side){
			func(s *side) { s.give(s.bind(0, memory, nd.AllowRead).Descriptor()); s.barrier(); s.close() },
			func(s *side) {
				d := s.get()
				s.must(nd.ReadFrom(s.ep, 1, s.sge(0, 8), d, 0))
				s.done()
				s.barrier()
				s.close()
			}}},
	{rule: "N105", other: -1,
		broken: [2]func(s *side){
			func(s *side) { s.give(s.bind(0, 64, nd.AllowWrite).Descriptor()); s.barrier() },
			func(s *side) {
				d := s.get()
				d.Token ^= 0x55500000
				s.must(nd.WriteTo(s.ep, 1, s.sge(0, 8), d, 0))
				s.result(s.init)
				s.barrier()
			}},
		clean: [2]func(s *side){
			func(s *side) {
				b, err := s.bind(0, 64, nd.AllowWrite).Descriptor().MarshalBinary()
				s.must(err)
				_, err = s.job.Exchange(s.ctx, b)
				s.must(err)
				s.barrier()
				s.close()
			},
			func(s *side) {
				all, err := s.job.Exchange(s.ctx, make([]byte, 20))
				s.must(err)
				var d nd.WindowDescriptor
				s.must(d.UnmarshalBinary(all[0]))
				s.must(nd.WriteTo(s.ep, 1, s.sge(0, 8), d, 0))
				s.done()
				s.barrier()
				s.close()
			}}},
	{rule: "N106", other: 0,
		broken: [2]func(s *side){
			func(s *side) {
				w := s.bind(0, 64, nd.AllowWrite|nd.ThisEndpointOnly)
				s.give(w.Descriptor())
				s.second()
				s.barrier()
			},
			func(s *side) {
				d := s.get()
				ep := s.second()
				s.must(nd.WriteTo(ep, 1, s.sge(0, 8), d, 0))
				s.result(s.init)
				s.barrier()
			}},
		clean: [2]func(s *side){
			func(s *side) {
				w := s.bind(0, 64, nd.AllowWrite|nd.ThisEndpointOnly)
				s.give(w.Descriptor())
				ep := s.second()
				s.barrier()
				s.must(ep.Close())
				s.close()
			},
			func(s *side) {
				d := s.get()
				ep := s.second()
				s.must(nd.WriteTo(s.ep, 1, s.sge(0, 8), d, 0))
				s.done()
				s.barrier()
				s.must(ep.Close())
				s.close()
			}}},
	{rule: "N107", other: 0,
		broken: [2]func(s *side){
			func(s *side) {
				w := s.bind(0, 64, nd.AllowWrite)
				s.give(w.Descriptor())
				s.barrier()
				s.must(s.ep.Invalidate(2, w, 0))
				s.done()
				s.must(s.ep.Receive(1, nd.SGL{})) // now the Send completes, and the Write begins
				s.barrier()
			},
			func(s *side) {
				d := s.get()
				s.must(s.ep.Send(1, nd.SGL{}, 0))
				s.must(nd.WriteTo(s.ep, 2, s.sge(0, 8), d, 0))
				s.barrier()
				s.done()
				s.result(s.init)
				s.barrier()
			}},
		clean: [2]func(s *side){
			func(s *side) {
				w := s.bind(0, 64, nd.AllowWrite)
				s.give(w.Descriptor())
				s.must(s.ep.Receive(1, nd.SGL{}))
				s.received()
				s.must(s.ep.Invalidate(2, w, 0))
				s.done()
				s.close()
			},
			func(s *side) {
				d := s.get()
				s.must(nd.WriteTo(s.ep, 2, s.sge(0, 8), d, 0))
				s.must(s.ep.Send(1, nd.SGL{}, 0))
				s.done()
				s.done()
				s.close()
			}}},
	{rule: "N201", other: -1,
		broken: [2]func(s *side){
			func(s *side) {
				s.must(s.ep.Receive(1, s.sge(0, 64)))
				s.barrier()
				s.received()
				s.barrier()
			},
			func(s *side) {
				s.barrier()
				s.must(s.ep.Send(1, s.sge(0, 64), 0))
				s.mr.Bytes()[5]++
				s.done()
				s.barrier()
			}},
		clean: [2]func(s *side){
			func(s *side) { s.must(s.ep.Receive(1, s.sge(0, 64))); s.barrier(); s.received(); s.close() },
			func(s *side) {
				s.barrier()
				s.must(s.ep.Send(1, s.sge(0, 64), 0))
				s.mr.Bytes()[64]++
				s.done()
				s.mr.Bytes()[5]++
				s.close()
			}}},
	{rule: "N202", other: 0,
		broken: [2]func(s *side){
			func(s *side) {
				s.must(s.ep.Receive(1, s.sge(0, 64)))
				s.must(s.ep.Receive(2, s.sge(32, 64)))
				s.barrier()
				s.received()
				s.barrier()
			},
			func(s *side) { s.barrier(); s.must(s.ep.Send(1, s.sge(0, 64), 0)); s.done(); s.barrier() }},
		clean: [2]func(s *side){
			func(s *side) {
				s.must(s.ep.Receive(1, s.sge(0, 64)))
				s.must(s.ep.Receive(2, s.sge(64, 64)))
				s.barrier()
				s.received()
				s.received()
				s.close()
			},
			func(s *side) {
				s.barrier()
				s.must(s.ep.Send(1, s.sge(0, 64), 0))
				s.done()
				s.must(s.ep.Send(2, s.sge(0, 1), 0))
				s.done()
				s.close()
			}}},
	{rule: "N203", other: -1,
		broken: [2]func(s *side){
			func(s *side) {
				s.must(s.ep.Receive(1, s.sge(0, 64)))
				s.mr.Bytes()[40] = 7
				s.barrier()
				s.received()
				s.barrier()
			},
			func(s *side) { s.barrier(); s.must(s.ep.Send(1, s.sge(0, 16), 0)); s.done(); s.barrier() }},
		clean: [2]func(s *side){
			func(s *side) {
				s.must(s.ep.Receive(1, s.sge(0, 64)))
				s.mr.Bytes()[64] = 7
				s.barrier()
				s.received()
				s.mr.Bytes()[40] = 7
				s.close()
			},
			func(s *side) { s.barrier(); s.must(s.ep.Send(1, s.sge(0, 16), 0)); s.done(); s.close() }}},
	{rule: "N204", other: 1,
		broken: [2]func(s *side){
			func(s *side) {
				s.must(s.ep.Receive(1, s.sge(64, 64)))
				s.give(s.bind(0, 64, nd.AllowRead).Descriptor())
				s.received()
				s.barrier()
			},
			func(s *side) {
				d := s.get()
				s.must(nd.ReadFrom(s.ep, 1, s.sge(0, 64), d, 0))
				s.must(s.ep.Send(2, s.sge(0, 64), 0))
				s.done()
				s.done()
				s.barrier()
			}},
		clean: [2]func(s *side){
			func(s *side) {
				s.mr.Bytes()[5] = 7 // so that the Read changes the source of the Send
				s.must(s.ep.Receive(1, s.sge(64, 64)))
				s.give(s.bind(0, 64, nd.AllowRead).Descriptor())
				s.received()
				s.close()
			},
			func(s *side) {
				d := s.get()
				s.must(nd.ReadFrom(s.ep, 1, s.sge(0, 64), d, 0))
				s.must(s.ep.Send(2, s.sge(0, 64), nd.ReadFence))
				s.done()
				s.done()
				s.close()
			}}},
	{rule: "N205", other: 1,
		broken: [2]func(s *side){
			func(s *side) { s.must(s.ep.Receive(1, nd.SGL{})); s.barrier() },
			func(s *side) {
				s.barrier()
				other, err := s.job.Adapter().Allocate(s.ctx, 64, 0)
				s.must(err)
				s.must(s.ep.Send(1, nd.One(nd.SGE{Buffer: other.Bytes(), Token: s.mr.LocalToken()}), 0))
				s.result(s.init)
			}},
		clean: [2]func(s *side){
			func(s *side) { s.must(s.ep.Receive(1, s.sge(0, 64))); s.barrier(); s.received(); s.close() },
			func(s *side) {
				s.barrier()
				s.must(s.ep.Send(1, nd.One(nd.SGE{Buffer: s.mr.Bytes()[memory-64:], Token: s.mr.LocalToken()}), 0))
				s.done()
				s.close()
			}}},
}
