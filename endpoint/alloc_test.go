package endpoint

import (
	"errors"
	"fmt"
	"testing"

	"github.com/softnd/softnd/nd"
)

// TestPostAndPollAllocateNothing checks each executor and each kind of memory.
func TestPostAndPollAllocateNothing(t *testing.T) {
	for _, executor := range []Executor{Auto, Target} {
		for _, private := range []bool{false, true} {
			s := setup{Executors: [2]Executor{executor, executor}, Private: [2]bool{private, private}, Both: sideOptions{InlineSize: maxInline}}
			t.Run(s.String(), func(t *testing.T) {
				p := newPair(t, s)
				for _, n := range []int{0, 8, 48, 1000, 4096, 100_000} {
					newHotPath(p, n).measure(t)
				}
			})
		}
	}
}

// hotPath is what a program would hold on to.
type hotPath struct {
	a, b     *side
	from, to nd.Endpoint
	n        int
	source   nd.SGL
	sink     nd.SGL
	far      nd.WindowDescriptor
	window   nd.MemoryWindow
	bound    []byte
	results  [4]nd.Result
	err      error
}

func newHotPath(p *pair, n int) *hotPath {
	a, b := p.a, p.b
	entries := func(s *side) nd.SGL {
		m := s.regionAt(0)
		return nd.List(nd.SGE{Buffer: m.cut(1, n/2), Token: m.mr.LocalToken()}, nd.SGE{Buffer: m.cut(n, n-n/2), Token: m.mr.LocalToken()})
	}
	return &hotPath{
		a: a, b: b, from: a.endpointAt(0), to: b.endpointAt(0), n: n, source: entries(a), sink: entries(b), far: p.b.memory,
		window: a.windowAt(p.a.newWindow()), bound: a.regionAt(0).cut(0, max(n, 1)),
	}
}

func (h *hotPath) measure(t *testing.T) {
	t.Helper()
	for name, f := range h.paths() {
		runs := 200
		if h.n > 4096 || name == "full queue" || testing.Short() {
			runs = 20
		}
		f() // first, so that one-time allocations are not counted
		if allocs := testing.AllocsPerRun(runs, f); allocs != 0 {
			t.Errorf("%s of %d bytes: %v allocations", name, h.n, allocs)
		}
		if h.err != nil {
			t.Fatalf("%s of %d bytes: %v (%v)", name, h.n, h.err, h.from.Err())
		}
	}
}

// paths are what a program does all the time. Each ends with nothing outstanding.
func (h *hotPath) paths() map[string]func() {
	inline := nd.Inline
	if h.n > maxInline {
		inline = 0
	}
	return map[string]func(){
		"inline write": func() {
			h.post(h.from.Write(1, h.source, h.far.Address, h.far.Token, inline))
			h.take(initiatorQueue, h.a)
		},
		"inline send and receive": func() {
			h.post(h.to.Receive(1, h.sink))
			h.post(h.from.Send(1, h.source, inline))
			h.take(receiveQueue, h.b)
			h.take(initiatorQueue, h.a)
		},
		"write": func() {
			h.post(h.from.Write(1, h.source, h.far.Address, h.far.Token, 0))
			h.take(initiatorQueue, h.a)
		},
		"silent write": func() {
			h.post(h.from.Write(1, h.source, h.far.Address, h.far.Token, nd.SilentSuccess))
			h.post(h.from.Write(1, h.source, h.far.Address, h.far.Token, 0))
			h.take(initiatorQueue, h.a)
		},
		"read": func() {
			h.post(h.from.Read(1, h.source, h.far.Address, h.far.Token, 0))
			h.take(initiatorQueue, h.a)
		},
		"send and receive": func() {
			h.post(h.to.Receive(1, h.sink))
			h.post(h.from.Send(1, h.source, 0))
			h.take(receiveQueue, h.b)
			h.take(initiatorQueue, h.a)
		},
		"full queue": func() {
			for range defaultQueueDepth {
				h.post(h.from.Write(1, nd.One(h.source.First), h.far.Address, h.far.Token, 0))
			}
			if h.from.Write(1, nd.One(h.source.First), h.far.Address, h.far.Token, 0) == nil {
				h.err = errors.New("more outstanding than the queue is deep")
			}
			for range defaultQueueDepth {
				h.take(initiatorQueue, h.a)
			}
		},
		"write of one entry": func() {
			h.post(h.from.Write(1, nd.One(h.entry(h.a)), h.far.Address, h.far.Token, 0))
			h.take(initiatorQueue, h.a)
		},
		"read of one entry": func() {
			h.post(h.from.Read(1, nd.One(h.entry(h.a)), h.far.Address, h.far.Token, 0))
			h.take(initiatorQueue, h.a)
		},
		"send and receive of one entry": func() {
			h.post(h.to.Receive(1, nd.One(h.entry(h.b))))
			h.post(h.from.Send(1, nd.One(h.entry(h.a)), 0))
			h.take(receiveQueue, h.b)
			h.take(initiatorQueue, h.a)
		},
		"send with a number": func() {
			h.post(h.to.Receive(1, nd.One(h.entry(h.b))))
			h.post(h.from.SendImmediate(1, nd.One(h.entry(h.a)), 5, 0))
			h.take(receiveQueue, h.b)
			h.take(initiatorQueue, h.a)
		},
		"write with a number": func() {
			h.post(h.to.Receive(1, nd.SGL{}))
			h.post(h.from.WriteImmediate(1, nd.One(h.entry(h.a)), h.far.Address, h.far.Token, 5, 0))
			h.take(receiveQueue, h.b)
			h.take(initiatorQueue, h.a)
		},
		"send and invalidate": func() {
			h.post(h.from.Bind(1, h.a.regionAt(0).mr, h.window, h.bound, nd.AllowRead))
			h.take(initiatorQueue, h.a)
			h.post(h.from.Receive(1, nd.One(h.entry(h.a))))
			h.post(h.to.SendAndInvalidate(1, nd.One(h.entry(h.b)), h.window.RemoteToken(), 0))
			h.take(receiveQueue, h.a)
			h.take(initiatorQueue, h.b)
		},
		"messages ahead of their polls": func() {
			for range 16 {
				h.post(h.to.Receive(1, nd.One(h.entry(h.b))))
			}
			for range 16 {
				h.post(h.from.Send(1, nd.One(h.entry(h.a)), 0))
			}
			for range 16 {
				h.take(initiatorQueue, h.a)
				h.take(receiveQueue, h.b)
			}
		},
		"bind and invalidate": func() {
			h.post(h.from.Bind(1, h.a.regionAt(0).mr, h.window, h.bound, nd.AllowRead|nd.AllowWrite))
			h.post(h.from.Invalidate(2, h.window, 0))
			h.take(initiatorQueue, h.a)
			h.take(initiatorQueue, h.a)
		},
		"empty polls": func() {
			for _, s := range []*side{h.a, h.b} {
				for _, q := range s.queues {
					if q.Poll(h.results[:]) != 0 {
						h.err = errors.New("a result of nothing")
					}
				}
			}
		},
	}
}

// entry returns an entry of a side's memory. With it, a post has a literal list, as many programs write it.
func (h *hotPath) entry(s *side) nd.SGE {
	m := s.regionAt(0)
	return nd.SGE{Buffer: m.cut(8, h.n), Token: m.mr.LocalToken()}
}

func (h *hotPath) post(err error) {
	if err != nil {
		h.err = err
	}
}

// take polls both sides until the one in question has a result.
func (h *hotPath) take(q queue, of *side) {
	for h.err == nil {
		if of.queues[q].Poll(h.results[:1]) == 1 {
			if s := h.results[0].Status; s != nd.Success {
				h.err = fmt.Errorf("result: %w", s)
			}
			return
		}
		for _, s := range []*side{h.a, h.b} {
			s.queues[initiatorQueue].Poll(nil)
		}
	}
}
