package hang

import (
	"fmt"
	"slices"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/statuspage"
	"github.com/softnd/softnd/shm"
)

// wait is one waiting call of a rank.
type wait struct {
	call    statuspage.Call
	what    string   // the call, as text
	targets []target // a barrier needs all of them, a queue any of them
	open    bool     // other targets, which are not known, may end the wait
}

// target is a rank from which a wait needs something.
type target struct {
	rank int
	need string // "a message on endpoint 3"
}

// waiters are the ranks that wait for a rank, and the need of one of them.
type waiters struct {
	ranks []int
	need  string
}

// resolve determines which ranks wait for which.
func (p *Snapshot) resolve() {
	p.rankOf, p.waiters = make(map[shm.MemberID]int), make(map[int]waiters)
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
			if !isListening(call) {
				p.waits[i] = append(p.waits[i], p.resolveWait(i, call, reached))
			}
		}
		for _, w := range p.waits[i] {
			for _, t := range w.targets {
				a := p.waiters[t.rank]
				if n := len(a.ranks); n == 0 || a.ranks[n-1] != i {
					p.waiters[t.rank] = waiters{append(a.ranks, i), t.need}
				}
			}
		}
	}
	p.stuck = p.findStuck(func(r *rank) bool { return r.isGone() || r.isStopped() || !r.hasJoined() })
	p.deadlocked = p.findStuck(func(*rank) bool { return false })
}

// calls returns the waiting calls of a rank.
func (r *rank) calls() []statuspage.Call {
	if !r.idle || r.isGone() {
		return nil
	}
	return r.page.Calls
}

// isListening reports whether a call waits for an event that need not happen.
func isListening(c statuspage.Call) bool { return c.Op == "notify disconnect" || isAccepting(c) }

// isAccepting reports whether a call waits for a connection request of any process. snd_job_accept of a rank in C
// also shows as a call of its own.
func isAccepting(c statuspage.Call) bool {
	return c.Op == "get connection request" || c.Op == "accept" && c.Object == "listener"
}

// mayGetClient reports whether rank i accepts connections, and a rank that is not among the stuck ones may
// connect with it. The results of the new connection may end a wait at any queue of rank i.
func (p *Snapshot) mayGetClient(i int, stuck []bool) bool {
	if !slices.ContainsFunc(p.ranks[i].calls(), isAccepting) {
		return false
	}
	for client := range p.ranks {
		if r := &p.ranks[client]; client != i && !stuck[client] && (!r.isGone() || r.PID == 0 && !r.hasJoined()) { // without a number, it is still to be started
			return true
		}
	}
	return false
}

// resolveWait determines the ranks for which a call of a rank waits.
func (p *Snapshot) resolveWait(of int, call statuspage.Call, reached []uint64) wait {
	w := wait{call: call, what: callText(call)}
	switch {
	case call.Round > 0:
		for i := range p.ranks {
			if i != of && reached[i] < call.Round {
				w.targets = append(w.targets, target{i, w.what})
			}
		}
	case call.Queue > 0:
		p.addQueueTargets(&p.ranks[of], &w)
	default:
		if peer, ok := p.rankOf[call.Peer]; ok {
			w.targets = []target{{peer, w.what}}
			break
		}
		w.open = true
		for _, e := range p.ranks[of].page.Endpoints { // a call that ends the use of memory waits for the peers that use it
			if peer, ok := p.rankOf[e.Peer]; ok && e.PeerCopying {
				w.targets = append(w.targets, target{peer, fmt.Sprintf("the end of its transfer on %s, for %s", name(e), w.what)})
			}
		}
	}
	return w
}

// addQueueTargets adds the ranks that can cause a result at the completion queue of a wait.
func (p *Snapshot) addQueueTargets(r *rank, w *wait) {
	queue := w.call.Queue
	w.open = r.page.Omitted > 0 || r.results(queue) > 0 && w.call.Op == statuspage.OpPoll
	for _, e := range r.page.Endpoints {
		if e.RequestQueue != queue && e.ReceiveQueue != queue {
			continue
		}
		peer, ok := p.rankOf[e.Peer]
		if !ok {
			w.open = w.open || e.Busy || e.Requests+e.Receives > 0
			continue
		}
		switch {
		case e.Busy:
			w.open = true
		case e.Cause != "":
			if p.ranks[peer].isGone() { // if it still runs, the failure itself explains the wait
				w.targets = append(w.targets, target{peer, name(e) + ", which has failed"})
			}
		case e.RequestQueue == queue && e.ReceiveMissing:
			w.targets = append(w.targets, target{peer, fmt.Sprintf("a receive for its %s on %s", e.OldestRequest, name(e))})
		case e.RequestQueue == queue && e.Requests > 0:
			w.targets = append(w.targets, target{peer, fmt.Sprintf("its %s on %s", e.OldestRequest, name(e))})
		case e.ReceiveQueue == queue && e.Receives > 0:
			w.targets = append(w.targets, target{peer, "a message on " + name(e)})
		}
	}
}

// findStuck returns the ranks that cannot continue before another stuck rank does. Ranks for which
// cannot reports true count as stuck. findStuck starts with all waiting ranks, and removes those that
// can continue until none is left to remove.
func (p *Snapshot) findStuck(cannot func(r *rank) bool) []bool {
	stuck := make([]bool, len(p.ranks))
	for i := range p.ranks {
		r := &p.ranks[i]
		stuck[i] = cannot(r) || len(p.waits[i]) > 0 && !r.isComputing() && !r.isStopped()
	}
	for changed := true; changed; {
		changed = false
		for i := range p.ranks {
			if !stuck[i] || cannot(&p.ranks[i]) {
				continue
			}
			mayContinue := func(w wait) bool { return !w.isStuck(stuck) || w.call.Queue > 0 && p.mayGetClient(i, stuck) }
			if slices.ContainsFunc(p.waits[i], mayContinue) {
				stuck[i], changed = false, true
			}
		}
	}
	return stuck
}

// isStuck reports whether a wait cannot end before a stuck rank continues.
func (w *wait) isStuck(stuck []bool) bool {
	if w.open {
		return false
	}
	of := 0
	for _, t := range w.targets {
		if stuck[t.rank] {
			of++
		}
	}
	if w.call.Round > 0 {
		return of > 0
	}
	return of == len(w.targets)
}

// results returns how many results a completion queue holds.
func (r *rank) results(queue uint64) uint64 {
	for _, q := range r.page.Queues {
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
	return "ranks " + linux.FormatList(numbers)
}

// callText returns a call as text.
func callText(c statuspage.Call) string {
	switch {
	case c.Round > 0 && c.Op == "barrier":
		return fmt.Sprintf("barrier %d", c.Round)
	case c.Round > 0:
		return fmt.Sprintf("%s (barrier %d)", c.Op, c.Round)
	case c.Op == statuspage.OpPoll:
		return fmt.Sprintf("empty polls of completion queue %d", c.Queue)
	case c.Queue > 0 && c.Object != "":
		return fmt.Sprintf("%s (%s) at completion queue %d", c.Op, c.Object, c.Queue)
	case c.Queue > 0:
		return fmt.Sprintf("%s at completion queue %d", c.Op, c.Queue)
	case c.Object != "":
		return fmt.Sprintf("%s (%s)", c.Op, c.Object)
	}
	return c.Op
}
