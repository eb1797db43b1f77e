//go:build linux

package ndcheck_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndcheck"
	"github.com/softnd/softnd/softndtest"
)

// side is one rank of a test: connected to the other, with a queue for each direction and some memory.
type side struct {
	t    *testing.T
	ctx  context.Context
	job  *softnd.Job
	ep   nd.Endpoint
	recv nd.CompletionQueue
	init nd.CompletionQueue
	mr   nd.MemoryRegion

	aside chan struct{} // between all sides; the checker does not know it
}

const memory = 4096

// must ends the rank with an error of a call.
func (s *side) must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

type failure struct{ err error }

func (s *side) sge(offset, n int) []nd.SGE { return []nd.SGE{nd.SGEOf(s.mr, offset, n)} }

// result takes the next result of a queue.
func (s *side) result(q nd.CompletionQueue) nd.Result {
	var r [1]nd.Result
	_, err := q.Wait(s.ctx, r[:])
	s.must(err)
	return r[0]
}

// done takes the next result of the initiator queue, which must be a success.
func (s *side) done() {
	if r := s.result(s.init); r.Status != nd.Success {
		s.must(r.Err(s.ep))
	}
}

func (s *side) received() nd.Result {
	r := s.result(s.recv)
	if r.Status != nd.Success {
		s.must(r.Err(s.ep))
	}
	return r
}

// tell lets a side that calls hear go on.
func (s *side) tell() {
	select {
	case s.aside <- struct{}{}:
	case <-s.ctx.Done():
		s.must(s.ctx.Err())
	}
}

func (s *side) hear() {
	select {
	case <-s.aside:
	case <-s.ctx.Done():
		s.must(s.ctx.Err())
	}
}

func (s *side) barrier() { s.must(s.job.Barrier(s.ctx)) }

// bind binds a window on the endpoint, and returns it.
func (s *side) bind(offset, n int, flags nd.OpFlags) nd.MemoryWindow {
	w, err := s.job.Adapter().CreateMemoryWindow(s.ctx)
	s.must(err)
	s.must(s.ep.Bind(1, s.mr, w, s.mr.Bytes()[offset:offset+n], flags))
	s.done()
	return w
}

// give passes a descriptor to the other side.
func (s *side) give(d nd.WindowDescriptor) {
	_, err := s.job.ExchangeWindows(s.ctx, d)
	s.must(err)
}

func (s *side) get() nd.WindowDescriptor {
	all, err := s.job.ExchangeWindows(s.ctx, nd.WindowDescriptor{})
	s.must(err)
	return all[1-s.job.Rank()]
}

// close ends the connection properly.
func (s *side) close() {
	s.barrier()
	s.must(s.ep.Close())
	s.must(s.recv.Close())
	s.must(s.init.Close())
	s.must(s.mr.Close())
}

// watch runs the roles as ranks with the checker, and returns its findings. Each role gets its side; a role that ends
// early leaves the rest to the end of the job. Ranks 0 and 1 are connected.
func watch(t *testing.T, cfg nd.EndpointConfig, depth int, first, second func(s *side), more ...softnd.Option) []ndcheck.Finding {
	t.Helper()
	return watchAll(t, cfg, depth, []func(s *side){first, second}, more...)
}

// watchAll is watch for any number of roles.
func watchAll(t *testing.T, cfg nd.EndpointConfig, depth int, roles []func(s *side), more ...softnd.Option) []ndcheck.Finding {
	t.Helper()
	journal, err := ndcheck.NewJournal(make([]byte, ndcheck.JournalSize), nil)
	if err != nil {
		t.Fatal(err)
	}
	return watchWith(t, journal, cfg, depth, roles, more...)
}

// watchWith is watchAll with a journal, nil = each rank has its own.
func watchWith(t *testing.T, journal *ndcheck.Journal, cfg nd.EndpointConfig, depth int, roles []func(s *side), more ...softnd.Option) []ndcheck.Finding {
	t.Helper()
	var mu sync.Mutex
	var found []ndcheck.Finding
	aside := make(chan struct{})
	options := softnd.WithChecker(ndcheck.Options{Journal: journal, Report: func(f ndcheck.Finding) {
		mu.Lock()
		defer mu.Unlock()
		found = append(found, f)
	}})
	t.Run("ranks", func(t *testing.T) { // whose end closes the jobs
		softndtest.Run(t, len(roles), func(ctx context.Context, job *softnd.Job) (err error) {
			ctx, cancel := context.WithTimeout(ctx, time.Minute) // a watchdog
			defer cancel()
			defer func() {
				switch f := recover().(type) {
				case nil:
				case failure:
					err = f.err
				default:
					panic(f)
				}
			}()
			s := &side{t: t, ctx: ctx, job: job, aside: aside}
			a := job.Adapter()
			s.recv, err = a.CreateCompletionQueue(ctx, depth)
			s.must(err)
			s.init, err = a.CreateCompletionQueue(ctx, depth)
			s.must(err)
			s.mr, err = a.Allocate(ctx, memory, nd.AllowLocalWrite)
			s.must(err)
			cfg := cfg
			cfg.Receive, cfg.Initiator = s.recv, s.init
			if job.Rank() < 2 {
				s.ep, err = job.Connect(ctx, 1-job.Rank(), cfg)
				s.must(err)
			}
			roles[job.Rank()](s)
			return nil
		}, append(more, options, softnd.WithReceiveTimeout(time.Second))...)
	})
	mu.Lock()
	defer mu.Unlock()
	return found
}

// programs has, for each rule, a program that breaks it and one that comes close to it.
var programs = []struct {
	rule   string
	other  int // rank that the finding names as the other, -1 = none
	cfg    nd.EndpointConfig
	depth  int    // of the queues; 0 = 64
	also   string // a rule that both programs break besides
	broken [2]func(s *side)
	clean  [2]func(s *side)
	third  func(s *side) // rank 2 of both programs, nil = none
}{
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
				s.must(s.ep.Receive(1, nil)) // now the Send completes, and the Write begins
				s.barrier()
			},
			func(s *side) {
				d := s.get()
				s.must(s.ep.Send(1, nil, 0))
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
				s.must(s.ep.Receive(1, nil))
				s.received()
				s.must(s.ep.Invalidate(2, w, 0))
				s.done()
				s.close()
			},
			func(s *side) {
				d := s.get()
				s.must(nd.WriteTo(s.ep, 2, s.sge(0, 8), d, 0))
				s.must(s.ep.Send(1, nil, 0))
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
			func(s *side) { s.must(s.ep.Receive(1, nil)); s.barrier() },
			func(s *side) {
				s.barrier()
				other, err := s.job.Adapter().Allocate(s.ctx, 64, 0)
				s.must(err)
				s.must(s.ep.Send(1, []nd.SGE{{Buffer: other.Bytes(), Token: s.mr.LocalToken()}}, 0))
				s.result(s.init)
			}},
		clean: [2]func(s *side){
			func(s *side) { s.must(s.ep.Receive(1, s.sge(0, 64))); s.barrier(); s.received(); s.close() },
			func(s *side) {
				s.barrier()
				s.must(s.ep.Send(1, []nd.SGE{{Buffer: s.mr.Bytes()[memory-64:], Token: s.mr.LocalToken()}}, 0))
				s.done()
				s.close()
			}}},
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
				s.hear() // the writer has its result
				s.must(w.Close())
				s.tell()
			},
			func(s *side) {
				d := s.get()
				s.mr.Bytes()[63] = 1
				s.must(nd.WriteTo(s.ep, 1, s.sge(0, 64), d, 0))
				s.done()
				s.tell()
				s.hear()
			}},
		clean: [2]func(s *side){
			func(s *side) {
				s.must(s.ep.Receive(1, nil))
				w := s.bind(0, 64, nd.AllowWrite)
				s.give(w.Descriptor())
				s.received()
				s.must(w.Close())
				s.close()
			},
			func(s *side) {
				d := s.get()
				s.must(nd.WriteTo(s.ep, 1, s.sge(0, 64), d, 0))
				s.done()
				s.must(s.ep.Send(2, nil, 0))
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
				s.must(s.ep.Receive(1, nil))
				s.received()
				s.close()
			},
			func(s *side) {
				d := s.get()
				s.must(s.ep.Read(1, s.sge(64, 32), d.Address, d.Token, 0))
				s.must(s.ep.Write(2, s.sge(0, 32), d.Address+32, d.Token, 0))
				s.must(s.ep.Write(2, s.sge(0, 32), d.Address, d.Token, nd.ReadFence))
				s.must(s.ep.SendAndInvalidate(3, nil, d.Token, nd.ReadFence))
				for range 4 {
					s.done()
				}
				s.close()
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
				s.must(s.mr.Close())
				s.must(s.ep.Flush())
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
			func(s *side) { s.must(s.ep.Receive(1, nil)); s.barrier(); s.received(); s.barrier(); s.close() },
			func(s *side) {
				s.barrier()
				s.must(s.ep.Send(1, nil, 0))
				s.barrier()                  // which says that the message has arrived
				s.must(s.ep.Receive(2, nil)) // canceled by the end
				s.close()
			}}},
	{rule: "N502", other: 1, depth: 4,
		broken: [2]func(s *side){
			func(s *side) {
				for i := range 4 {
					s.must(s.ep.Receive(uint64(i), nil))
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
					s.must(s.ep.Send(uint64(i), nil, 0))
				}
				s.must(nd.SendInline(s.ep, 5, nil, 0))
				s.ep.Flush()
				s.barrier()
			}},
		clean: [2]func(s *side){
			func(s *side) {
				for i := range 4 {
					s.must(s.ep.Receive(uint64(i), nil))
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
					s.must(s.ep.Send(uint64(i), nil, 0))
				}
				for range 4 {
					s.done()
				}
				s.close()
			}}},
	{rule: "N503", other: -1,
		broken: [2]func(s *side){
			func(s *side) { s.barrier(); s.barrier() },
			func(s *side) { s.barrier(); s.must(s.ep.Send(1, nil, 0)); s.result(s.init); s.barrier() }},
		clean: [2]func(s *side){
			func(s *side) {
				s.barrier()
				time.Sleep(20 * time.Millisecond)
				s.must(s.ep.Receive(1, nil))
				s.received()
				s.close()
			},
			func(s *side) { s.barrier(); s.must(s.ep.Send(1, nil, 0)); s.done(); s.close() }}},
	{rule: "N504", other: -1, cfg: nd.EndpointConfig{InitiatorDepth: 4},
		broken: [2]func(s *side){
			func(s *side) { s.barrier(); s.barrier() },
			func(s *side) {
				s.barrier()
				var err error
				for i := 0; err == nil && i < 100; i++ {
					err = s.ep.Send(uint64(i), nil, nd.SilentSuccess)
				}
				if !errors.Is(err, nd.NoMoreEntries) {
					s.must(fmt.Errorf("the queue is not full: %w", err))
				}
				s.barrier()
			}},
		clean: [2]func(s *side){
			func(s *side) {
				for i := range 8 {
					s.must(s.ep.Receive(uint64(i), nil))
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
					s.must(s.ep.Send(uint64(i), nil, flags))
					if flags == 0 {
						s.done()
					}
				}
				s.close()
			}}},
	{rule: "N505", other: 1,
		broken: [2]func(s *side){
			func(s *side) { s.must(s.ep.Receive(1, nil)); s.barrier(); s.barrier() },
			func(s *side) {
				s.barrier()
				s.must(s.ep.Send(1, nil, nd.Defer))
				s.barrier()
				s.must(s.ep.Close())
			}},
		clean: [2]func(s *side){
			func(s *side) { s.must(s.ep.Receive(1, nil)); s.barrier(); s.received(); s.close() },
			func(s *side) {
				s.barrier()
				s.must(s.ep.Send(1, nil, nd.Defer))
				s.ep.SubmitRequestBatch()
				s.done()
				s.close()
			}}},
	{rule: "N506", other: -1, cfg: nd.EndpointConfig{InitiatorDepth: 4},
		broken: [2]func(s *side){
			func(s *side) { s.barrier() },
			func(s *side) {
				s.must(s.ep.Flush())
				s.must(s.ep.Receive(1, nil))
				s.result(s.recv)
				for i := range 5 {
					_ = s.recv.Poll(make([]nd.Result, 1))
					_ = s.ep.Send(uint64(i), nil, 0)
				}
				s.barrier()
			}},
		clean: [2]func(s *side){
			func(s *side) { s.barrier() },
			func(s *side) {
				s.must(s.ep.Flush())
				s.must(s.ep.Receive(1, nil))
				s.result(s.recv)
				for i := range 5 { // as if it had not read all of its results yet
					_ = s.ep.Send(uint64(i), nil, 0)
				}
				_ = s.init.Poll(make([]nd.Result, 4))
				_ = s.recv.Poll(make([]nd.Result, 1))
				_ = s.ep.Send(6, nil, 0) // as if another goroutine still read them
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
			func(s *side) { s.must(s.job.Adapter().Close()); s.must(s.job.Close()) },
			func(s *side) {}},
		clean: [2]func(s *side){
			func(s *side) { s.must(s.job.Adapter().Close()); s.close(); s.must(s.job.Close()) },
			func(s *side) { s.close() }}},
	{rule: "N602", other: 1,
		broken: [2]func(s *side){
			func(s *side) { s.barrier() },
			func(s *side) { s.must(s.ep.Send(1, nil, 0)); s.must(s.ep.Close()); s.barrier() }},
		clean: [2]func(s *side){
			func(s *side) { s.barrier() },
			func(s *side) {
				s.must(s.ep.Send(1, nil, 0))
				s.must(s.ep.Flush())
				s.must(s.ep.Close())
				s.barrier()
			}}},
	{rule: "N701", other: -1,
		broken: [2]func(s *side){
			func(s *side) { s.must(s.ep.Receive(1, nil)); s.barrier(); s.received(); s.barrier() },
			func(s *side) { s.barrier(); s.must(s.ep.Send(1, nil, nd.ReadFence)); s.done(); s.barrier() }},
		clean: [2]func(s *side){
			func(s *side) {
				s.must(s.ep.Receive(1, nil))
				s.give(s.bind(0, 64, nd.AllowRead).Descriptor())
				s.received()
				s.close()
			},
			func(s *side) {
				d := s.get()
				s.must(nd.ReadFrom(s.ep, 1, s.sge(0, 64), d, 0))
				s.must(s.ep.Send(2, nil, nd.ReadFence))
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

// writeSilently posts Writes of which every n-th has a result.
func (s *side) writeSilently(d nd.WindowDescriptor, n int) {
	for i := 1; i <= 4*n; {
		flags := nd.SilentSuccess
		if i%n == 0 {
			flags = 0
		}
		err := s.ep.Write(0, s.sge(0, 8), d.Address, d.Token, flags)
		if errors.Is(err, nd.NoMoreEntries) {
			continue // the Writes before it are executed soon
		}
		s.must(err)
		if flags == 0 {
			s.done()
		}
		i++
	}
}

// second makes another connection of the two ranks, with the same queues.
func (s *side) second() nd.Endpoint { return s.connect(1 - s.job.Rank()) }

func (s *side) connect(peer int) nd.Endpoint {
	ep, err := s.job.Connect(s.ctx, peer, nd.EndpointConfig{Receive: s.recv, Initiator: s.init})
	s.must(err)
	return ep
}

// open replaces the region by one with other rights.
func (s *side) open(flags nd.RegionFlags) {
	s.must(s.mr.Close())
	var err error
	s.mr, err = s.job.Adapter().Allocate(s.ctx, memory, flags)
	s.must(err)
}

func (s *side) inlineThreshold() int {
	info, err := s.job.Adapter().Query(nd.InfoVersion2)
	s.must(err)
	return int(info.InlineRequestThreshold)
}

func (s *side) thirdWith(entries int) {
	ep, err := s.job.Adapter().CreateEndpoint(s.ctx, nd.EndpointConfig{Receive: s.recv, Initiator: s.init, MaxInitiatorSGE: entries})
	s.must(err)
	s.must(ep.Close())
}

func (s *side) serveSends(n int) {
	for i := range 32 {
		s.must(s.ep.Receive(uint64(i), s.sge(0, 8)[:0]))
	}
	s.barrier()
	for range n {
		s.received()
		s.must(s.ep.Receive(0, nil))
	}
	s.close()
}

// sendFresh sends empty messages with an entry of a region that serves a number of them.
func (s *side) sendFresh(regions, each int) {
	s.barrier()
	for range regions {
		mr, err := s.job.Adapter().Register(s.ctx, make([]byte, 64), 0)
		s.must(err)
		for range each {
			s.must(s.ep.Send(1, []nd.SGE{nd.SGEOf(mr, 0, 0)}, 0))
			s.done()
		}
		s.must(mr.Close())
	}
	s.close()
}

// except returns the findings that are not of a rule.
func except(rule string, found []ndcheck.Finding) []ndcheck.Finding {
	return slices.DeleteFunc(found, func(f ndcheck.Finding) bool { return f.Rule.ID == rule })
}

// Three ranks connect in a circle, in the wrong order.
func TestConnectCycle(t *testing.T) {
	var mu sync.Mutex
	var found []ndcheck.Finding
	var stop context.CancelFunc // of the ranks
	journal, _ := ndcheck.NewJournal(make([]byte, ndcheck.JournalSize), nil)
	check := softnd.WithChecker(ndcheck.Options{Journal: journal, Report: func(f ndcheck.Finding) {
		mu.Lock()
		defer mu.Unlock()
		if found = append(found, f); len(found) == 3 {
			stop()
		}
	}})
	for _, tc := range []struct {
		order func(rank int) int // the peer of the first connect
		want  int
	}{
		{func(rank int) int { return (rank + 2) % 3 }, 3},
		{func(rank int) int { return []int{1, 0, 0}[rank] }, 0},
	} {
		complete, cancel := context.WithCancel(t.Context())
		mu.Lock()
		found, stop = nil, cancel
		mu.Unlock()
		softndtest.Run(t, 3, func(ctx context.Context, job *softnd.Job) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(complete, cancel)()
			q, err := job.Adapter().CreateCompletionQueue(ctx, 8)
			if err != nil {
				return err
			}
			first := tc.order(job.Rank())
			for _, peer := range []int{first, 3 - job.Rank() - first} {
				if _, err = job.Connect(ctx, peer, nd.EndpointConfig{Receive: q, Initiator: q}); err != nil {
					break
				}
			}
			if tc.want == 0 {
				return err
			}
			if !errors.Is(err, nd.Canceled) {
				return fmt.Errorf("the ranks are connected: %v", err)
			}
			return nil
		}, check)
		cancel()
		mu.Lock()
		if len(found) != tc.want {
			t.Errorf("%d findings, want %d: %v", len(found), tc.want, found)
		}
		for _, f := range found {
			if f.Rule.ID != "N603" || !strings.HasPrefix(f.Site, "nd/ndcheck/rules_test.go:") || f.OtherRank != (f.Rank+2)%3 {
				t.Error(f)
			}
		}
		mu.Unlock()
	}
}

func TestRules(t *testing.T) {
	tested := map[string]bool{"N603": true, "N703": true, "N901": true, "N902": true} // TestConnectCycle, TestWaitForSilence, TestExpect, TestSightLost
	for _, p := range programs {
		tested[p.rule] = true
		if p.depth == 0 {
			p.depth = 64
		}
		var third []func(s *side)
		if p.third != nil {
			third = append(third, p.third)
		}
		t.Run(p.rule, func(t *testing.T) {
			t.Run("broken", func(t *testing.T) {
				found := except(p.also, watchAll(t, p.cfg, p.depth, append(p.broken[:2:2], third...)))
				if len(found) != 1 || found[0].Rule.ID != p.rule {
					t.Fatalf("%d findings, want one of %s:\n%v", len(found), p.rule, found)
				}
				f := found[0]
				if !strings.HasPrefix(f.Site, "nd/ndcheck/rules_test.go:") {
					t.Errorf("the finding is at %q", f.Site)
				}
				if p.other >= 0 && (f.OtherRank != p.other || !strings.HasPrefix(f.OtherSite, "nd/ndcheck/rules_test.go:")) || p.other < 0 && f.Other != "" {
					t.Errorf("the other act is of rank %d at %q: %q", f.OtherRank, f.OtherSite, f.Other)
				}
				t.Log(f)
			})
			t.Run("clean", func(t *testing.T) {
				if found := except(p.also, watchAll(t, p.cfg, p.depth, append(p.clean[:2:2], third...))); len(found) != 0 {
					t.Errorf("%d findings:\n%v", len(found), found)
				}
			})
		})
	}
	for _, r := range ndcheck.Rules() {
		if !tested[r.ID] {
			t.Errorf("rule %s has no test", r.ID)
		}
	}
}
