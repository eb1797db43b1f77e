//go:build linux

package ndcheck_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/softnd/softnd/nd"
)

// requestPrograms are about the other rules: from conflicts of accesses (N3) to limits of cards (N8).
var requestPrograms = []program{
	{rule: "N301", other: 1,
		broken: [2]func(s *side){ // both write to the memory of rank 0, rank 0 over a connection with itself
			func(s *side) { s.give(s.bind(0, 64, nd.AllowWrite).Descriptor()); s.second(); s.barrier() },
			func(s *side) {
				d := s.get()
				ep := s.second()
				s.must(nd.WriteTo(s.ep, 1, s.sge(0, 8), d, 0))
				s.must(nd.WriteTo(ep, 2, s.sge(0, 8), d, 0))
				s.done()
				s.done()
				s.barrier()
			}},
		clean: [2]func(s *side){
			func(s *side) { s.give(s.bind(0, 64, nd.AllowWrite).Descriptor()); s.second(); s.barrier() },
			func(s *side) {
				d := s.get()
				ep := s.second()
				s.must(nd.WriteTo(s.ep, 1, s.sge(0, 8), d, 0))
				s.done()
				s.must(nd.WriteTo(ep, 2, s.sge(0, 8), d, 0))
				s.done()
				s.barrier()
			}}},
	{rule: "N302", other: 1,
		broken: [2]func(s *side){
			func(s *side) {
				s.give(s.bind(0, 64, nd.AllowRead|nd.AllowWrite).Descriptor())
				s.second()
				s.barrier()
			},
			func(s *side) {
				d := s.get()
				ep := s.second()
				s.must(nd.WriteTo(s.ep, 1, s.sge(0, 64), d, 0))
				s.must(nd.ReadFrom(ep, 2, s.sge(64, 8), d, 0))
				s.done()
				s.done()
				s.barrier()
			}},
		clean: [2]func(s *side){
			func(s *side) { s.give(s.bind(0, 64, nd.AllowRead|nd.AllowWrite).Descriptor()); s.barrier(); s.close() },
			func(s *side) {
				d := s.get()
				s.must(nd.WriteTo(s.ep, 1, s.sge(0, 64), d, 0))
				s.must(nd.ReadFrom(s.ep, 2, s.sge(64, 8), d, 0))
				s.done()
				s.done()
				s.barrier()
				s.close()
			}}},
	{rule: "N303", other: -1,
		broken: [2]func(s *side){
			func(s *side) {
				w := s.bind(0, 64, nd.AllowWrite)
				s.give(w.Descriptor())
				s.tell() // so that it learns nothing by give after the Write
				s.hear() // the writer has its result
				s.must(w.Close(s.ctx))
				s.tell()
			},
			func(s *side) {
				d := s.get()
				s.hear()
				s.mr.Bytes()[63] = 1
				s.must(nd.WriteTo(s.ep, 1, s.sge(0, 64), d, 0))
				s.done()
				s.tell()
				s.hear()
			}},
		clean: [2]func(s *side){
			func(s *side) {
				s.must(s.ep.Receive(1, nd.SGL{}))
				w := s.bind(0, 64, nd.AllowWrite)
				s.give(w.Descriptor())
				s.received()
				s.must(w.Close(s.ctx))
				s.close()
			},
			func(s *side) {
				d := s.get()
				s.must(nd.WriteTo(s.ep, 1, s.sge(0, 64), d, 0))
				s.done()
				s.must(s.ep.Send(2, nd.SGL{}, 0))
				s.done()
				s.close()
			}}},
	{rule: "N304", other: 1,
		broken: [2]func(s *side){
			func(s *side) { s.give(s.bind(0, 64, nd.AllowRead|nd.AllowWrite).Descriptor()); s.barrier() },
			func(s *side) {
				d := s.get()
				s.must(s.ep.Read(1, s.sge(64, 64), d.Address, d.Token, 0))
				s.must(s.ep.Write(2, s.sge(0, 8), d.Address+56, d.Token, 0))
				s.done()
				s.done()
				s.barrier()
			}},
		clean: [2]func(s *side){
			func(s *side) {
				s.give(s.bind(0, 64, nd.AllowRead|nd.AllowWrite).Descriptor())
				s.must(s.ep.Receive(1, nd.SGL{}))
				s.received()
				s.close()
			},
			func(s *side) {
				d := s.get()
				s.must(s.ep.Read(1, s.sge(64, 32), d.Address, d.Token, 0))
				s.must(s.ep.Write(2, s.sge(0, 32), d.Address+32, d.Token, 0))
				s.must(s.ep.Write(2, s.sge(0, 32), d.Address, d.Token, nd.ReadFence))
				s.must(s.ep.SendAndInvalidate(3, nd.SGL{}, d.Token, nd.ReadFence))
				for range 4 {
					s.done()
				}
				s.close()
			}}},
	{rule: "N305", other: 1,
		broken: [2]func(s *side){
			func(s *side) {
				s.give(s.bind(0, 64, nd.AllowWrite|nd.AllowAtomic).Descriptor())
				s.second()
				s.barrier()
			},
			func(s *side) {
				d := s.get()
				ep := s.second()
				s.must(s.ep.FetchAndAdd(1, s.sge(8, 8).First, d.Address, d.Token, 1, 0))
				s.must(nd.WriteTo(ep, 2, s.sge(0, 8), d, 0))
				s.done()
				s.done()
				s.barrier()
			}},
		clean: [2]func(s *side){ // atomics beside each other, and a Write that follows one on the same endpoint
			func(s *side) {
				s.give(s.bind(0, 64, nd.AllowWrite|nd.AllowAtomic).Descriptor())
				s.second()
				s.must(s.ep.Receive(1, s.sge(128, 8)))
				s.must(s.ep.Receive(2, s.sge(136, 8)))
				s.barrier()
				s.received()
				s.received()
			},
			func(s *side) {
				d := s.get()
				ep := s.second()
				s.barrier()
				s.must(s.ep.Swap(1, s.sge(8, 8).First, d.Address, d.Token, 1, 0))
				s.must(ep.CompareAndSwap(2, s.sge(16, 8).First, d.Address, d.Token, 1, 2, 0))
				s.must(s.ep.WriteImmediate(3, s.sge(0, 8), d.Address+8, d.Token, 5, 0))
				s.must(s.ep.SendImmediate(4, s.sge(8, 8), 6, nd.ReadFence))
				for range 4 {
					s.done()
				}
			}}},
	{rule: "N401", other: 0,
		broken: [2]func(s *side){
			func(s *side) {
				s.bind(0, 64, nd.AllowWrite)
				s.ep = s.connect(2)
				s.bind(32, 64, nd.AllowRead)
				s.barrier()
			},
			func(s *side) { s.barrier() }},
		clean: [2]func(s *side){
			func(s *side) {
				s.bind(0, 64, nd.AllowWrite)
				s.bind(0, 64, nd.AllowWrite)
				first := s.ep
				s.ep = s.connect(2)
				s.bind(64, 64, nd.AllowWrite)
				s.ep = first
				s.ep = s.second()
				s.bind(0, 64, nd.AllowWrite) // for the same peer
				s.barrier()
			},
			func(s *side) { s.second(); s.barrier() }},
		third: func(s *side) { s.connect(0); s.barrier() }},
	{rule: "N402", other: 1,
		broken: [2]func(s *side){
			func(s *side) { s.barrier(); s.barrier() },
			func(s *side) {
				s.barrier()
				s.must(s.ep.Send(1, s.sge(0, 64), 0)) // it waits for a Receive
				s.must(s.mr.Close(s.ctx))
				s.must(s.ep.Flush(s.ctx))
				s.result(s.init)
				s.barrier()
			}},
		clean: [2]func(s *side){
			func(s *side) { s.must(s.ep.Receive(1, s.sge(0, 64))); s.barrier(); s.received(); s.close() },
			func(s *side) { s.barrier(); s.must(s.ep.Send(1, s.sge(0, 64), 0)); s.done(); s.close() }}},
	{rule: "N403", other: 0,
		broken: [2]func(s *side){
			func(s *side) { s.open(nd.AllowRemoteWrite); s.bind(0, 64, nd.AllowWrite); s.barrier() },
			func(s *side) { s.barrier() }},
		clean: [2]func(s *side){
			func(s *side) { s.open(nd.AllowLocalWrite); s.bind(0, 64, nd.AllowWrite); s.barrier(); s.close() },
			func(s *side) { s.open(nd.AllowRemoteWrite); s.barrier(); s.close() }}},
	{rule: "N404", other: -1,
		broken: [2]func(s *side){
			func(s *side) {
				w := s.bind(0, 64, nd.AllowWrite)
				s.must(s.ep.Bind(1, s.mr, w, s.mr.Bytes(), nd.AllowRead))
				s.result(s.init)
				s.barrier()
			},
			func(s *side) { s.barrier() }},
		clean: [2]func(s *side){
			func(s *side) {
				w := s.bind(0, 64, nd.AllowWrite)
				s.must(s.ep.Invalidate(1, w, 0))
				s.must(s.ep.Bind(2, s.mr, w, s.mr.Bytes(), nd.AllowRead))
				s.done()
				s.done()
				s.close()
			},
			func(s *side) { s.close() }}},
	{rule: "N501", other: -1,
		broken: [2]func(s *side){
			func(s *side) { s.barrier() },
			func(s *side) {
				w, err := s.job.Adapter().CreateMemoryWindow(s.ctx)
				s.must(err)
				s.must(s.ep.Bind(1, s.mr, w, s.mr.Bytes(), nd.AllowRead))
				s.must(s.init.Close())
				s.barrier()
			}},
		clean: [2]func(s *side){
			func(s *side) { s.must(s.ep.Receive(1, nd.SGL{})); s.barrier(); s.received(); s.barrier(); s.close() },
			func(s *side) {
				s.barrier()
				s.must(s.ep.Send(1, nd.SGL{}, 0))
				s.barrier()                       // which says that the message has arrived
				s.must(s.ep.Receive(2, nd.SGL{})) // canceled by the end
				s.close()
			}}},
	{rule: "N502", other: 1, depth: 4,
		broken: [2]func(s *side){
			func(s *side) {
				for i := range 4 {
					s.must(s.ep.Receive(uint64(i), nd.SGL{}))
				}
				s.barrier()
				for range 4 {
					s.received()
				}
				s.barrier()
			},
			func(s *side) {
				s.barrier()
				for i := range 4 {
					s.must(s.ep.Send(uint64(i), nd.SGL{}, 0))
				}
				s.must(nd.SendInline(s.ep, 5, nil, 0))
				s.ep.Flush(s.ctx)
				s.barrier()
			}},
		clean: [2]func(s *side){
			func(s *side) {
				for i := range 4 {
					s.must(s.ep.Receive(uint64(i), nd.SGL{}))
				}
				s.barrier()
				for range 4 {
					s.received()
				}
				s.close()
			},
			func(s *side) {
				s.barrier()
				for i := range 4 {
					s.must(s.ep.Send(uint64(i), nd.SGL{}, 0))
				}
				for range 4 {
					s.done()
				}
				s.close()
			}}},
	{rule: "N503", other: -1,
		broken: [2]func(s *side){
			func(s *side) { s.barrier(); s.barrier() },
			func(s *side) { s.barrier(); s.must(s.ep.Send(1, nd.SGL{}, 0)); s.result(s.init); s.barrier() }},
		clean: [2]func(s *side){
			func(s *side) {
				s.barrier()
				time.Sleep(20 * time.Millisecond)
				s.must(s.ep.Receive(1, nd.SGL{}))
				s.received()
				s.close()
			},
			func(s *side) { s.barrier(); s.must(s.ep.Send(1, nd.SGL{}, 0)); s.done(); s.close() }}},
	{rule: "N504", other: -1, cfg: nd.EndpointConfig{InitiatorDepth: 4},
		broken: [2]func(s *side){
			func(s *side) { s.barrier(); s.barrier() },
			func(s *side) {
				s.barrier()
				var err error
				for i := 0; err == nil && i < 100; i++ {
					err = s.ep.Send(uint64(i), nd.SGL{}, nd.SilentSuccess)
				}
				if !errors.Is(err, nd.NoMoreEntries) {
					s.must(fmt.Errorf("the queue is not full: %w", err))
				}
				s.barrier()
			}},
		clean: [2]func(s *side){
			func(s *side) {
				for i := range 8 {
					s.must(s.ep.Receive(uint64(i), nd.SGL{}))
				}
				s.barrier()
				for range 8 {
					s.received()
				}
				s.close()
			},
			func(s *side) {
				s.barrier()
				for i := range 8 {
					flags := nd.SilentSuccess
					if i%4 == 3 {
						flags = 0
					}
					s.must(s.ep.Send(uint64(i), nd.SGL{}, flags))
					if flags == 0 {
						s.done()
					}
				}
				s.close()
			}}},
	{rule: "N505", other: 1,
		broken: [2]func(s *side){
			func(s *side) { s.must(s.ep.Receive(1, nd.SGL{})); s.barrier(); s.barrier() },
			func(s *side) {
				s.barrier()
				s.must(s.ep.Send(1, nd.SGL{}, nd.Defer))
				s.barrier()
				s.must(s.ep.Close())
			}},
		clean: [2]func(s *side){
			func(s *side) { s.must(s.ep.Receive(1, nd.SGL{})); s.barrier(); s.received(); s.close() },
			func(s *side) {
				s.barrier()
				s.must(s.ep.Write(1, nd.SGL{}, 0, 0, nd.Defer))
				s.must(s.ep.Send(2, nd.SGL{}, 0))
				s.done()
				s.done()
				s.close()
			}}},
	{rule: "N506", other: -1, cfg: nd.EndpointConfig{InitiatorDepth: 4},
		broken: [2]func(s *side){
			func(s *side) { s.barrier() },
			func(s *side) {
				s.must(s.ep.Flush(s.ctx))
				s.must(s.ep.Receive(1, nd.SGL{}))
				s.result(s.recv)
				for i := range 5 {
					_ = s.recv.Poll(make([]nd.Result, 1))
					_ = s.ep.Send(uint64(i), nd.SGL{}, 0)
				}
				s.barrier()
			}},
		clean: [2]func(s *side){
			func(s *side) { s.barrier() },
			func(s *side) {
				s.must(s.ep.Flush(s.ctx))
				s.must(s.ep.Receive(1, nd.SGL{}))
				s.result(s.recv)
				for i := range 5 { // as if it had not read all of its results yet
					_ = s.ep.Send(uint64(i), nd.SGL{}, 0)
				}
				_ = s.init.Poll(make([]nd.Result, 4))
				_ = s.recv.Poll(make([]nd.Result, 1))
				_ = s.ep.Send(6, nd.SGL{}, 0) // as if another goroutine still read them
				s.must(s.ep.Close())
				s.barrier()
			}}},
	{rule: "N507", other: -1,
		broken: [2]func(s *side){
			func(s *side) { s.must(s.ep.Receive(1, s.sge(0, 8))); s.barrier(); s.result(s.recv); s.barrier() },
			func(s *side) { s.barrier(); s.must(s.ep.Send(1, s.sge(0, 9), 0)); s.result(s.init); s.barrier() }},
		clean: [2]func(s *side){
			func(s *side) { s.must(s.ep.Receive(1, s.sge(0, 8))); s.barrier(); s.received(); s.close() },
			func(s *side) { s.barrier(); s.must(s.ep.Send(1, s.sge(0, 8), 0)); s.done(); s.close() }}},
	{rule: "N601", other: -1,
		broken: [2]func(s *side){
			func(s *side) { s.must(s.job.Adapter().Close(s.ctx)); s.must(s.job.Close()) },
			func(s *side) {}},
		clean: [2]func(s *side){
			func(s *side) { s.must(s.job.Adapter().Close(s.ctx)); s.close(); s.must(s.job.Close()) },
			func(s *side) { s.close() }}},
	{rule: "N602", other: 1,
		broken: [2]func(s *side){
			func(s *side) { s.barrier() },
			func(s *side) { s.must(s.ep.Send(1, nd.SGL{}, 0)); s.must(s.ep.Close()); s.barrier() }},
		clean: [2]func(s *side){
			func(s *side) { s.barrier() },
			func(s *side) {
				s.must(s.ep.Send(1, nd.SGL{}, 0))
				s.must(s.ep.Flush(s.ctx))
				s.must(s.ep.Close())
				s.barrier()
			}}},
	{rule: "N602", other: 1, also: "N601",
		broken: [2]func(s *side){
			func(s *side) { s.barrier() },
			func(s *side) {
				s.must(s.ep.Send(1, nd.SGL{}, 0))
				s.must(s.job.Adapter().Close(s.ctx))
				s.barrier()
				s.must(s.job.Close())
			}},
		clean: [2]func(s *side){
			func(s *side) { s.barrier() },
			func(s *side) {
				s.must(s.ep.Send(1, nd.SGL{}, 0))
				s.must(s.ep.Flush(s.ctx))
				s.must(s.job.Adapter().Close(s.ctx))
				s.barrier()
				s.must(s.job.Close())
			}}},
	{rule: "N701", other: -1,
		broken: [2]func(s *side){
			func(s *side) { s.must(s.ep.Receive(1, nd.SGL{})); s.barrier(); s.received(); s.barrier() },
			func(s *side) { s.barrier(); s.must(s.ep.Send(1, nd.SGL{}, nd.ReadFence)); s.done(); s.barrier() }},
		clean: [2]func(s *side){
			func(s *side) {
				s.must(s.ep.Receive(1, nd.SGL{}))
				s.give(s.bind(0, 64, nd.AllowRead).Descriptor())
				s.received()
				s.close()
			},
			func(s *side) {
				d := s.get()
				s.must(nd.ReadFrom(s.ep, 1, s.sge(0, 64), d, 0))
				s.must(s.ep.Send(2, nd.SGL{}, nd.ReadFence))
				s.done()
				s.done()
				s.close()
			}}},
	{rule: "N702", other: -1, cfg: nd.EndpointConfig{InlineSize: 512}, also: "N801",
		broken: [2]func(s *side){
			func(s *side) { s.must(s.ep.Receive(1, s.sge(0, 1024))); s.barrier(); s.received(); s.close() },
			func(s *side) {
				s.barrier()
				s.must(nd.SendInline(s.ep, 1, make([]byte, s.inlineThreshold()+1), 0))
				s.done()
				s.close()
			}},
		clean: [2]func(s *side){
			func(s *side) { s.must(s.ep.Receive(1, s.sge(0, 1024))); s.barrier(); s.received(); s.close() },
			func(s *side) {
				s.barrier()
				s.must(nd.SendInline(s.ep, 1, make([]byte, s.inlineThreshold()), 0))
				s.done()
				s.close()
			}}},
	{rule: "N801", other: -1,
		broken: [2]func(s *side){
			func(s *side) { s.thirdWith(14) },
			func(s *side) {}},
		clean: [2]func(s *side){
			func(s *side) { s.thirdWith(13) },
			func(s *side) {}}},
	{rule: "N802", other: 1,
		broken: [2]func(s *side){
			func(s *side) { s.serveSends(100) },
			func(s *side) { s.sendFresh(100, 1) }},
		clean: [2]func(s *side){
			func(s *side) { s.serveSends(100) },
			func(s *side) { s.sendFresh(50, 2) }}},
	{rule: "N803", other: -1, cfg: nd.EndpointConfig{InitiatorDepth: 4},
		broken: [2]func(s *side){
			func(s *side) { s.give(s.bind(0, 64, nd.AllowWrite).Descriptor()); s.barrier(); s.close() },
			func(s *side) { s.writeSilently(s.get(), 6); s.barrier(); s.close() }},
		clean: [2]func(s *side){
			func(s *side) { s.give(s.bind(0, 64, nd.AllowWrite).Descriptor()); s.barrier(); s.close() },
			func(s *side) { s.writeSilently(s.get(), 4); s.barrier(); s.close() }}},
}
