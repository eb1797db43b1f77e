//go:build linux

package ndcheck_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/softnd/softnd/nd"
)

// unusual are correct programs that take their knowledge from other places than the results of their requests.
var unusual = map[string][2]func(s *side){
	// The peer answers into the source of a Write, and its message arrives before the result of the Write is taken.
	"an exchange in place": {
		func(s *side) {
			s.must(s.ep.Receive(1, nd.SGL{}))
			all, err := s.job.ExchangeWindows(s.ctx, s.bind(0, 64, nd.AllowWrite).Descriptor())
			s.must(err)
			s.received()
			s.mr.Bytes()[0] = 7
			s.must(nd.WriteTo(s.ep, 1, s.sge(0, 64), all[1], 0))
			s.done()
			s.barrier()
			s.close()
		},
		func(s *side) {
			all, err := s.job.ExchangeWindows(s.ctx, s.bind(0, 64, nd.AllowWrite).Descriptor())
			s.must(err)
			s.must(nd.WriteTo(s.ep, 1, s.sge(0, 64), all[0], 0))
			s.must(s.ep.Send(2, nd.SGL{}, 0))
			for s.mr.Bytes()[0] != 7 && s.ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			s.done()
			s.done()
			s.barrier()
			s.close()
		}},
	// The answer to a message comes over another connection.
	"an answer elsewhere": {
		func(s *side) {
			ep := s.second()
			s.must(s.ep.Receive(1, s.sge(0, 64)))
			s.barrier()
			s.received()
			s.must(ep.Send(2, nd.SGL{}, 0))
			s.done()
			s.barrier()
			s.must(ep.Close())
			s.close()
		},
		func(s *side) {
			ep := s.second()
			s.must(ep.Receive(1, nd.SGL{}))
			s.barrier()
			s.must(s.ep.Send(2, s.sge(64, 64), 0))
			s.received()
			s.mr.Bytes()[64]++
			s.done()
			s.barrier()
			s.must(ep.Close())
			s.close()
		}},
	// The peer connects again after the message has arrived.
	"a connection instead of an answer": {
		func(s *side) {
			s.must(s.ep.Receive(1, s.sge(0, 64)))
			s.barrier()
			s.received()
			s.second()
			s.barrier()
		},
		func(s *side) {
			s.barrier()
			s.must(s.ep.Send(2, s.sge(64, 64), 0))
			s.second()
			s.mr.Bytes()[64]++
			s.done()
			s.barrier()
		}},
	// The owner writes to bytes that a Read has taken, as the message behind the Read tells it.
	"a fenced message": {
		func(s *side) {
			s.must(s.ep.Receive(1, nd.SGL{}))
			all, err := s.job.ExchangeWindows(s.ctx, s.bind(0, 64, nd.AllowRead|nd.AllowWrite).Descriptor())
			s.must(err)
			ep := s.loopback()
			s.received()
			s.must(nd.WriteTo(ep, 1, s.sge(64, 64), all[0], 0))
			s.done()
			s.barrier()
			s.must(ep.Close())
			s.close()
		},
		func(s *side) {
			d := s.get()
			s.must(nd.ReadFrom(s.ep, 1, s.sge(0, 64), d, 0))
			s.must(s.ep.Send(2, nd.SGL{}, nd.ReadFence))
			s.barrier()
			s.done()
			s.done()
			s.close()
		}},
	// The answer to a fenced message says that the Read before it is complete, so its buffer may get the next message.
	"an answer to a fence": {
		func(s *side) {
			s.must(s.ep.Receive(1, nd.SGL{}))
			s.must(s.ep.Receive(1, s.sge(128, 64)))
			s.give(s.bind(0, 64, nd.AllowRead).Descriptor())
			s.received()
			s.must(s.ep.Send(2, nd.SGL{}, 0))
			s.received()
			s.must(s.ep.Send(3, s.sge(64, 64), 0))
			s.done()
			s.done()
			s.close()
		},
		func(s *side) {
			s.must(s.ep.Receive(1, nd.SGL{}))
			d := s.get()
			s.must(nd.ReadFrom(s.ep, 2, s.sge(0, 64), d, 0))
			s.must(s.ep.Send(3, nd.SGL{}, nd.ReadFence))
			s.received()
			s.must(s.ep.Send(5, s.sge(0, 64), 0))
			s.must(s.ep.Receive(4, s.sge(0, 64)))
			s.received()
			for range 3 {
				s.done()
			}
			s.close()
		}},
	// The peer answers when it has taken the message, and the answer may come to the same buffer.
	"an answer into the source": {
		func(s *side) {
			s.mr.Bytes()[64] = 9 // so that the answer changes the source
			s.must(s.ep.Receive(1, s.sge(0, 64)))
			s.barrier()
			s.received()
			s.must(s.ep.Send(2, s.sge(64, 64), 0))
			s.done()
			s.close()
		},
		func(s *side) {
			s.barrier()
			s.must(s.ep.Send(1, s.sge(0, 64), 0))
			s.must(s.ep.Receive(2, s.sge(0, 64)))
			s.received()
			s.done()
			s.close()
		}},
	"an answer into the source, from a shared receive queue": {
		func(s *side) {
			ep := s.second()
			s.mr.Bytes()[64] = 9
			s.must(ep.Receive(1, s.sge(0, 64)))
			s.barrier()
			s.received()
			s.must(ep.Send(2, s.sge(64, 64), 0))
			s.done()
			s.barrier()
			s.must(ep.Close())
			s.close()
		},
		func(s *side) {
			shared, err := s.job.Adapter().CreateSharedReceiveQueue(s.ctx, nd.SharedReceiveQueueConfig{})
			s.must(err)
			ep, err := s.job.Connect(s.ctx, 0, nd.EndpointConfig{ReceiveCQ: s.recv, InitiatorCQ: s.init, SharedReceive: shared})
			s.must(err)
			s.barrier()
			s.must(ep.Send(1, s.sge(0, 64), 0))
			s.must(shared.Receive(2, s.sge(0, 64)))
			s.received()
			s.done()
			s.barrier()
			s.must(ep.Close())
			s.must(shared.Close())
			s.close()
		}},
	// A Read stores after the Write before it has taken its bytes.
	"a Read into the source of a Write": {
		func(s *side) {
			s.mr.Bytes()[64] = 9
			s.give(s.bind(0, 128, nd.AllowRead|nd.AllowWrite).Descriptor())
			s.close()
		},
		func(s *side) {
			d := s.get()
			to, err := d.Slice(0, 64)
			s.must(err)
			from, err := d.Slice(64, 64)
			s.must(err)
			s.must(nd.WriteTo(s.ep, 1, s.sge(0, 64), to, 0))
			s.must(nd.ReadFrom(s.ep, 2, s.sge(0, 64), from, 0))
			s.poll(0) // the Read is executed before the checker sees the result of the Write
			s.done()
			s.done()
			s.close()
		}},
	// The provider refuses to deregister memory of a bound window.
	"a refused deregistration": {
		func(s *side) { s.give(s.bind(0, 64, nd.AllowWrite).Descriptor()); s.close() },
		func(s *side) {
			d := s.get()
			w := s.bind(64, 64, nd.AllowRead)
			s.must(nd.WriteTo(s.ep, 1, s.sge(0, 64), d, 0))
			if err := s.mr.Deregister(s.ctx); !errors.Is(err, nd.DeviceBusy) {
				s.must(fmt.Errorf("deregister memory of a bound window: %v", err))
			}
			s.done()
			s.must(w.Close(s.ctx))
			s.close()
		}},
	// The owner revokes the access, and hears of the Writes later.
	"revoked, then told": {
		func(s *side) {
			s.must(s.ep.Receive(1, nd.SGL{}))
			w := s.bind(0, 64, nd.AllowWrite)
			s.give(w.Descriptor())
			for s.mr.Bytes()[63] == 0 && s.ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(20 * time.Millisecond)
			s.must(w.Close(s.ctx))
			s.received()
			s.close()
		},
		func(s *side) {
			d := s.get()
			s.mr.Bytes()[63] = 1
			s.must(nd.WriteTo(s.ep, 1, s.sge(0, 64), d, 0))
			s.done()
			time.Sleep(100 * time.Millisecond)
			s.must(s.ep.Send(2, nd.SGL{}, 0))
			s.done()
			s.close()
		}},
	// After the end of a connection, its buffers are free, although its results are still in the queue.
	"buffers of an ended connection": {
		func(s *side) {
			s.must(s.ep.Receive(1, s.sge(0, 64)))
			ep := s.second()
			s.must(ep.Receive(2, s.sge(64, 64)))
			s.barrier()
			s.received()
			s.received()
			s.barrier()
			s.must(ep.Close())
			s.close()
		},
		func(s *side) {
			ep := s.second()
			s.must(s.ep.Receive(1, s.sge(64, 64)))
			s.barrier()
			s.must(s.ep.Send(2, s.sge(0, 64), 0))
			time.Sleep(50 * time.Millisecond) // until the message has arrived
			s.must(s.ep.Flush(s.ctx))
			clear(s.mr.Bytes())
			s.mr.Bytes()[0], s.mr.Bytes()[64] = 1, 1
			s.must(ep.Send(3, s.sge(64, 64), 0))
			s.done()
			s.done()
			s.result(s.recv)
			s.barrier()
			s.must(ep.Close())
			s.close()
		}},
	// A barrier may have told the program that the first Write is complete.
	"two Writes and a barrier": {
		func(s *side) { s.give(s.bind(0, 64, nd.AllowWrite).Descriptor()); s.second(); s.barrier(); s.barrier() },
		func(s *side) {
			d := s.get()
			ep := s.second()
			s.must(nd.WriteTo(s.ep, 1, s.sge(0, 64), d, 0))
			s.barrier()
			s.must(nd.WriteTo(ep, 2, s.sge(0, 64), d, 0))
			s.done()
			s.done()
			s.barrier()
		}},
	// A flag that the peer writes may have told it.
	"two Writes and a flag": {
		func(s *side) {
			all, err := s.job.ExchangeWindows(s.ctx, s.bind(0, 64, nd.AllowWrite).Descriptor())
			s.must(err)
			s.second()
			for s.mr.Bytes()[63] != 7 && s.ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			s.mr.Bytes()[64] = 7
			s.must(nd.WriteTo(s.ep, 1, s.sge(64, 64), all[1], 0))
			s.done()
			s.barrier()
		},
		func(s *side) {
			all, err := s.job.ExchangeWindows(s.ctx, s.bind(64, 64, nd.AllowWrite).Descriptor())
			s.must(err)
			ep := s.second()
			s.mr.Bytes()[63] = 7
			s.must(nd.WriteTo(s.ep, 1, s.sge(0, 64), all[0], 0))
			for s.mr.Bytes()[64] != 7 && s.ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			s.must(nd.WriteTo(ep, 2, s.sge(0, 64), all[0], 0))
			s.done()
			s.done()
			s.barrier()
		}},
	// The message has arrived before the connection ends, and the program does not know it yet.
	"a message before the end": {
		func(s *side) { s.barrier(); s.must(s.ep.Send(1, s.sge(0, 16), 0)); s.barrier(); s.barrier() },
		func(s *side) {
			s.must(s.ep.Receive(1, s.sge(64, 64)))
			s.barrier()
			s.must(s.recv.Notify(s.ctx, nd.NotifyAny))
			s.must(s.ep.Flush(s.ctx))
			s.mr.Bytes()[127] = 1
			s.received()
			s.barrier()
			s.barrier()
		}},
	// A message without bytes does not concern its buffer.
	"no bytes": {
		func(s *side) { s.barrier(); s.must(s.ep.Send(1, nd.SGL{}, 0)); s.done(); s.close() },
		func(s *side) {
			s.must(s.ep.Receive(1, s.sge(64, 64)))
			s.mr.Bytes()[64] = 1
			s.barrier()
			s.received()
			s.close()
		}},
	// The peer ends its connection. Its memory is then granted to a connection with another process.
	"the next peer": {
		func(s *side) {
			s.bind(0, 64, nd.AllowWrite)
			s.barrier()
			for s.ep.Err() == nil && s.ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			s.ep = s.loopback()
			s.bind(0, 64, nd.AllowWrite)
			s.close()
		},
		func(s *side) { s.barrier(); s.must(s.ep.Close()); s.ep = s.loopback(); s.close() }},
	// The peer has closed its side, so requests in flight are no mistake of this one.
	"a peer that ends": {
		func(s *side) { s.barrier(); s.must(s.ep.Close()); s.barrier(); s.barrier() },
		func(s *side) {
			s.must(s.ep.Send(1, s.sge(0, 64), 0))
			s.must(s.ep.Send(2, s.sge(0, 64), 0))
			s.barrier()
			s.barrier()
			for s.ep.Err() == nil && s.ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			s.must(s.ep.Close())
			s.must(s.init.Close())
			s.barrier()
		}},
	// A program that gives up may close its objects in any order.
	"a canceled wait": {
		func(s *side) { s.barrier(); s.barrier() },
		func(s *side) {
			s.must(s.ep.Send(1, s.sge(0, 64), 0))
			s.barrier()
			ctx, cancel := context.WithTimeout(s.ctx, 10*time.Millisecond)
			defer cancel()
			if _, err := s.init.Wait(ctx, make([]nd.Result, 1)); err == nil {
				s.must(errors.New("the Send has a result"))
			}
			s.must(s.ep.Send(2, nd.SGL{}, nd.Defer))
			s.must(s.ep.Close())
			s.must(s.init.Close())
			s.barrier()
		}},
	// Another goroutine takes the result of a Bind, and the window is invalidated before Bind has returned to its caller.
	"results of another goroutine": {
		func(s *side) { s.barrier() },
		func(s *side) {
			w, err := s.job.Adapter().CreateMemoryWindow(s.ctx)
			s.must(err)
			for range 300 {
				taken := make(chan error)
				go func() {
					var r [1]nd.Result
					_, err := s.init.Wait(s.ctx, r[:])
					if err == nil {
						err = s.ep.Invalidate(0, w, 0)
					}
					taken <- err
				}()
				s.must(s.ep.Bind(0, s.mr, w, s.mr.Bytes(), nd.AllowWrite))
				s.must(<-taken)
				s.done()
			}
			s.barrier()
			s.must(w.Close(s.ctx))
		}},
	// A library that sets ReadFence on every message, and Reads come later.
	"fences first": {
		func(s *side) {
			s.must(s.ep.Receive(1, nd.SGL{}))
			s.give(s.bind(0, 64, nd.AllowRead).Descriptor())
			s.received()
			s.close()
		},
		func(s *side) {
			d := s.get()
			s.must(s.ep.Send(2, nd.SGL{}, nd.ReadFence))
			s.done()
			s.must(nd.ReadFrom(s.ep, 1, s.sge(0, 64), d, 0))
			s.done()
			s.close()
		}},
	// The region gives every peer the right to read, and the window gives one the right to write.
	"a window with another right": {
		func(s *side) {
			s.open(nd.AllowRemoteRead | nd.AllowLocalWrite)
			s.bind(0, 64, nd.AllowWrite)
			s.barrier()
			s.close()
		},
		func(s *side) { s.barrier(); s.close() }},
}

func TestUnusualPrograms(t *testing.T) {
	for name, roles := range unusual {
		t.Run(name, func(t *testing.T) {
			for _, f := range watch(t, nd.EndpointConfig{}, 64, roles[0], roles[1]) {
				t.Error(f)
			}
		})
	}
}

// A peer that may write to the memory of the process can be the reason for a change. It is not if it is watched, and has not
// written.
func TestChangesByPeers(t *testing.T) {
	roles := []func(s *side){
		func(s *side) { s.must(s.ep.Receive(1, s.sge(0, 64))); s.barrier(); s.received(); s.barrier() },
		func(s *side) {
			s.bind(0, 64, nd.AllowWrite)
			s.barrier()
			s.must(s.ep.Send(1, s.sge(0, 64), 0))
			s.mr.Bytes()[5]++
			s.done()
			s.barrier()
		},
	}
	if found := watch(t, nd.EndpointConfig{}, 64, roles[0], roles[1]); len(found) != 1 || found[0].Rule.ID != "N201" {
		t.Errorf("with a journal: %v", found)
	}
	if found := watchWith(t, nil, nd.EndpointConfig{}, 64, roles); len(found) != 0 {
		t.Errorf("without: %v", found)
	}
}

// useAll makes requests of each kind, one after the other, until one of them fails.
func (s *side) useAll() {
	s.must(s.ep.Receive(1, s.sge(64, 64)))
	d := s.get()
	w, err := s.job.Adapter().CreateMemoryWindow(s.ctx)
	s.must(err)
	for _, post := range []func() error{
		func() error { return nd.WriteTo(s.ep, 1, s.sge(0, 64), d, 0) },
		func() error { return s.ep.Bind(2, s.mr, w, s.mr.Bytes(), nd.AllowRead) },
		func() error { return nd.ReadFrom(s.ep, 3, s.sge(0, 64), d, 0) },
		func() error { return s.ep.Invalidate(4, w, 0) },
		func() error { return s.ep.Send(5, s.sge(0, 64), 0) },
	} {
		if post() != nil || s.result(s.init).Status != nd.Success {
			break
		}
	}
	s.result(s.recv)
	s.barrier()
}
