package hang

import (
	"fmt"
	"slices"

	"github.com/softnd/softnd/internal/numlist"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/shm"
)

// wait is one call of a rank that does not return.
type wait struct {
	call    statuspage.Call
	what    string   // the call, as a message has it
	on      []target // all are needed at a barrier; any of them would do at a queue
	unclear bool     // there may be others that would do
}

// target is a rank from which a wait needs something.
type target struct {
	rank int
	what string // "a message on endpoint 3"
}

// awaiters are the ranks that wait for one, and what one of them needs.
type awaiters struct {
	who  []int
	what string
}

// resolve works out who waits for whom.
func (p *Picture) resolve() {
	p.rankOf, p.wanted = make(map[shm.MemberID]int), make(map[int]awaiters)
	reached := make([]uint64, len(p.ranks)) // the latest barrier in which each rank waits
	for i := range p.ranks {
		r := &p.ranks[i]
		if r.id != 0 {
			p.rankOf[r.id] = i
		}
		for _, call := range r.calls() {
			reached[i] = max(reached[i], call.Round)
		}
	}
	p.waits = make([][]wait, len(p.ranks))
	for i := range p.ranks {
		for _, call := range p.ranks[i].calls() {
			if !listens(call) {
				p.waits[i] = append(p.waits[i], p.waitIn(i, call, reached))
			}
		}
		for _, w := range p.waits[i] {
			for _, t := range w.on {
				a := p.wanted[t.rank]
				if n := len(a.who); n == 0 || a.who[n-1] != i {
					p.wanted[t.rank] = awaiters{append(a.who, i), t.what}
				}
			}
		}
	}
	p.stuck = p.findStuck(func(r *rank) bool { return r.over() || r.stopped() || !r.joined() })
	p.locked = p.findStuck(func(*rank) bool { return false })
}

// calls lists the calls in which a rank is now.
func (r *rank) calls() []statuspage.Call {
	if !r.still || r.over() {
		return nil
	}
	return r.told.Calls
}

// listens tells whether a call waits for what need not come.
func listens(c statuspage.Call) bool {
	return c.Op == "notify disconnect" || c.Op == "get connection request"
}

// waitIn finds out for whom a rank waits in a call.
func (p *Picture) waitIn(of int, call statuspage.Call, reached []uint64) wait {
	w := wait{call: call, what: describe(call)}
	switch {
	case call.Round > 0:
		for i := range p.ranks {
			if i != of && reached[i] < call.Round {
				w.on = append(w.on, target{i, w.what})
			}
		}
	case call.Queue > 0:
		p.atQueue(&p.ranks[of], &w)
	default:
		if peer, ok := p.rankOf[call.Peer]; ok {
			w.on = []target{{peer, w.what}}
			break
		}
		w.unclear = true
		for _, e := range p.ranks[of].told.Endpoints { // what ends the use of memory waits for those who use it
			if peer, ok := p.rankOf[e.Peer]; ok && e.PeerCopying {
				w.on = append(w.on, target{peer, fmt.Sprintf("the end of its transfer on endpoint %d, for %s", e.Number, w.what)})
			}
		}
	}
	return w
}

// atQueue lists from whom results can come to the completion queue of a wait.
func (p *Picture) atQueue(r *rank, w *wait) {
	queue := w.call.Queue
	w.unclear = r.told.Omitted > 0 || r.results(queue) > 0 && w.call.Op == statuspage.OpPoll
	for _, e := range r.told.Endpoints {
		if e.RequestQueue != queue && e.ReceiveQueue != queue {
			continue
		}
		peer, ok := p.rankOf[e.Peer]
		if !ok {
			w.unclear = w.unclear || e.Busy || e.Requests+e.Receives > 0
			continue
		}
		switch {
		case e.Busy:
			w.unclear = true
		case e.Cause != "":
			if p.ranks[peer].over() { // else the failure itself is what matters
				w.on = append(w.on, target{peer, fmt.Sprintf("endpoint %d, which has failed", e.Number)})
			}
		case e.RequestQueue == queue && e.ReceiveMissing:
			w.on = append(w.on, target{peer, fmt.Sprintf("a receive for its %s on endpoint %d", e.OldestRequest, e.Number)})
		case e.RequestQueue == queue && e.Requests > 0:
			w.on = append(w.on, target{peer, fmt.Sprintf("its %s on endpoint %d", e.OldestRequest, e.Number)})
		case e.ReceiveQueue == queue && e.Receives > 0:
			w.on = append(w.on, target{peer, fmt.Sprintf("a message on endpoint %d", e.Number)})
		}
	}
}

// findStuck finds a set of ranks: none of them can continue before another of them does, or
// before a rank does for which cannot reports true. It starts with the ranks that wait, and
// removes those that can continue until no rank is removed.
func (p *Picture) findStuck(cannot func(r *rank) bool) []bool {
	stuck := make([]bool, len(p.ranks))
	for i := range p.ranks {
		r := &p.ranks[i]
		stuck[i] = cannot(r) || len(p.waits[i]) > 0 && !r.computes() && !r.stopped()
	}
	for changed := true; changed; {
		changed = false
		for i := range p.ranks {
			if !stuck[i] || cannot(&p.ranks[i]) {
				continue
			}
			if slices.ContainsFunc(p.waits[i], func(w wait) bool { return !w.holds(stuck) }) {
				stuck[i], changed = false, true
			}
		}
	}
	return stuck
}

// holds reports whether a wait cannot end before a stuck rank continues.
func (w *wait) holds(stuck []bool) bool {
	if w.unclear {
		return false
	}
	of := 0
	for _, t := range w.on {
		if stuck[t.rank] {
			of++
		}
	}
	if w.call.Round > 0 {
		return of > 0
	}
	return of == len(w.on)
}

// results is how many results lie in a completion queue.
func (r *rank) results(queue uint64) uint64 {
	for _, q := range r.told.Queues {
		if q.Number == queue {
			return q.Results
		}
	}
	return 0
}

func ranks(numbers []int) string {
	if len(numbers) == 1 {
		return fmt.Sprintf("rank %d", numbers[0])
	}
	return "ranks " + numlist.Format(numbers)
}

// describe names a call as a message has it.
func describe(c statuspage.Call) string {
	switch {
	case c.Round > 0 && c.Op == "barrier":
		return fmt.Sprintf("barrier %d", c.Round)
	case c.Round > 0:
		return fmt.Sprintf("%s (barrier %d)", c.Op, c.Round)
	case c.Op == statuspage.OpPoll:
		return fmt.Sprintf("polls of completion queue %d, which find nothing", c.Queue)
	case c.Queue > 0 && c.Object != "":
		return fmt.Sprintf("%s (%s) at completion queue %d", c.Op, c.Object, c.Queue)
	case c.Queue > 0:
		return fmt.Sprintf("%s at completion queue %d", c.Op, c.Queue)
	case c.Object != "":
		return fmt.Sprintf("%s (%s)", c.Op, c.Object)
	}
	return c.Op
}
