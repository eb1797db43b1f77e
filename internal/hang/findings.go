package hang

import (
	"fmt"
	"slices"

	"github.com/softnd/softnd/internal/statuspage"
)

// Finding is something that may keep a job from going on.
type Finding struct {
	Cause string
	Steps []string // what it consists of, if of several parts
}

// Findings lists what may keep the job from going on, the likeliest first. What
// cannot be otherwise stands before what can: a stopped rank before a circle of waits.
func (p *Picture) Findings() []Finding {
	return slices.Concat(p.stopped(), p.ended(), p.absent(), p.missedEvents(), p.missingReceives(),
		p.hopeless(), p.deadlock(), p.elsewhere(), p.gone())
}

func (p *Picture) stopped() (found []Finding) {
	for i := range p.ranks {
		if r := &p.ranks[i]; r.stopped() {
			found = append(found, Finding{Cause: fmt.Sprintf("%s is not responding: a signal or a debugger has stopped it%s; wake it with kill -CONT %d",
				p.name(i), p.awaited(i), r.pid)})
		}
	}
	return found
}

// ended finds ranks that have gone although others need something from them.
func (p *Picture) ended() (found []Finding) {
	for i := range p.ranks {
		if who := p.awaited(i); who != "" && p.ranks[i].over() {
			found = append(found, Finding{Cause: p.name(i) + " " + p.ranks[i].how() + who})
		}
	}
	return found
}

// gone finds ranks that have ended early, though nobody is seen to wait for them: who
// looks at memory for what a peer is to write is not seen to wait.
func (p *Picture) gone() (found []Finding) {
	if !slices.ContainsFunc(p.ranks, func(r rank) bool { return !r.over() }) {
		return nil
	}
	for i := range p.ranks {
		if p.awaited(i) == "" && p.ranks[i].over() {
			found = append(found, Finding{Cause: p.name(i) + " " + p.ranks[i].how() + ", while others still run"})
		}
	}
	return found
}

// absent finds ranks that have not come.
func (p *Picture) absent() []Finding {
	var absent []int
	for i := range p.ranks {
		if r := &p.ranks[i]; !r.joined() && r.Ended == "" && !r.stopped() {
			absent = append(absent, i)
		}
	}
	switch {
	case len(absent) == 0:
		return nil
	case !slices.ContainsFunc(p.ranks, func(r rank) bool { return r.joined() }):
		return []Finding{{Cause: "no rank has called softnd.Init: they are no programs of softnd, or something keeps them from getting there"}}
	}
	who := ""
	for _, i := range absent {
		if who == "" {
			who = p.awaited(i)
		}
	}
	return []Finding{{Cause: fmt.Sprintf("%s never arrived: not in softnd.Init%s", ranks(absent), who)}}
}

// missedEvents finds calls that wait for news of results which are there already.
func (p *Picture) missedEvents() (found []Finding) {
	for i := range p.ranks {
		for _, w := range p.waits[i] {
			n := p.ranks[i].results(w.call.Queue)
			if w.call.Op == "notify" && n > 0 {
				found = append(found, Finding{Cause: fmt.Sprintf("rank %d waits in %s, in which there are results already (%d): "+
					"they have ended an earlier one, or are not of the kind that it asks for, so there is no news of them; take results until there are none before each notify",
					i, w.what, n)})
			}
		}
	}
	return found
}

// missingReceives finds messages for which the peer has posted no receive.
func (p *Picture) missingReceives() (found []Finding) {
	for i := range p.ranks {
		for _, e := range p.ranks[i].endpoints() {
			if peer, ok := p.rankOf[e.Peer]; ok && e.ReceiveMissing && e.Cause == "" {
				found = append(found, Finding{Cause: fmt.Sprintf("rank %d has posted no receive on endpoint %d for the %s of rank %d (on its endpoint %d), and is %s",
					peer, e.PeerNumber, e.OldestRequest, i, e.Number, p.where(peer))})
			}
		}
	}
	return found
}

// hopeless finds waits for results that cannot come, of ranks that do nothing else.
func (p *Picture) hopeless() (found []Finding) {
	for i := range p.ranks {
		r := &p.ranks[i]
		if len(p.waits[i]) != 1 || r.computes() || r.stopped() {
			continue
		}
		w := p.waits[i][0]
		if w.call.Queue == 0 || len(w.on) > 0 || w.unclear || r.results(w.call.Queue) > 0 {
			continue
		}
		f := Finding{Cause: fmt.Sprintf("rank %d waits for a result that cannot come (%s): no endpoint of that queue has a receive posted or a request under way", i, w.what)}
		for _, e := range r.endpoints() {
			if e.Cause != "" && (e.RequestQueue == w.call.Queue || e.ReceiveQueue == w.call.Queue) {
				f.Steps = append(f.Steps, fmt.Sprintf("endpoint %d of rank %d failed: %s", e.Number, i, e.Cause))
			}
		}
		f.Steps = append(f.Steps, p.failuresWith(i)...)
		found = append(found, f)
	}
	return found
}

// failuresWith tells how connections with a rank have failed at the other side, which
// often knows more about the reason.
func (p *Picture) failuresWith(i int) (steps []string) {
	for other := range p.ranks {
		for _, e := range p.ranks[other].endpoints() {
			if peer, ok := p.rankOf[e.Peer]; ok && peer == i && e.Cause != "" {
				steps = append(steps, fmt.Sprintf("endpoint %d of rank %d failed: %s", e.Number, other, e.Cause))
			}
		}
	}
	return steps
}

// mostStarts is from how many ranks a circle is looked for: of a large job nobody would
// see more.
const mostStarts = 64

// deadlock finds a circle of waits, and the ranks that wait for a connection which the
// other side does not make. While there are such ranks, more connections may come, so a
// circle of ranks that only wait for messages proves nothing.
func (p *Picture) deadlock() (found []Finding) {
	circle := p.circle()
	for i := range p.ranks {
		if slices.ContainsFunc(circle, func(s step) bool { return s.from == i }) {
			continue
		}
		for _, w := range p.waits[i] {
			if y, ok := p.unanswered(i, w); ok {
				found = append(found, Finding{Cause: fmt.Sprintf("rank %d waits in %s for rank %d, which does not connect with it: rank %d is %s", i, w.what, y, y, p.where(y))})
			}
		}
	}
	certain := slices.ContainsFunc(circle, func(s step) bool { return s.wait.call.Queue == 0 })
	if circle == nil || len(found) > 0 && !certain {
		return found
	}
	f := Finding{Cause: "the ranks wait for each other in a circle"}
	for _, s := range circle {
		f.Steps = append(f.Steps, fmt.Sprintf("rank %d waits for rank %d: %s", s.from, s.to.rank, s.to.what))
	}
	return slices.Insert(found, 0, f)
}

// unanswered reports whether a rank waits for a connection with another rank that has
// joined the job and does something else. It returns that rank.
func (p *Picture) unanswered(i int, w wait) (peer int, ok bool) {
	if !connects(w.call) {
		return 0, false
	}
	peer, ok = p.rankOf[w.call.Peer]
	if !ok {
		return 0, false
	}
	r := &p.ranks[peer]
	if r.over() || r.stopped() || !r.still {
		return 0, false
	}
	answers := func(c statuspage.Call) bool {
		return c.Op == "get connection request" || connects(c) && c.Peer == p.ranks[i].id
	}
	return peer, !slices.ContainsFunc(r.calls(), answers)
}

// connects reports whether a call waits for the other side of a connection.
func connects(c statuspage.Call) bool { return c.Op == "connect" || c.Op == "accept" }

// circle finds the shortest circle of ranks that wait for each other.
func (p *Picture) circle() (best []step) {
	starts := 0
	for i := range p.ranks {
		if !p.locked[i] || starts == mostStarts {
			continue
		}
		starts++
		if c := p.circleFrom(i); c != nil && (best == nil || len(c) < len(best)) {
			best = c
		}
	}
	return best
}

// step is one step of a circle.
type step struct {
	from int
	wait wait
	to   target
}

// circleFrom finds the shortest way from a rank back to itself, through ranks that wait for
// each other whatever the others do.
func (p *Picture) circleFrom(start int) []step {
	came := make(map[int]step) // by which step each rank was reached first
	for queue := []int{start}; len(queue) > 0; queue = queue[1:] {
		for _, w := range p.waits[queue[0]] {
			for _, t := range w.on {
				if _, known := came[t.rank]; known || !p.locked[t.rank] {
					continue
				}
				came[t.rank] = step{queue[0], w, t}
				if t.rank != start {
					queue = append(queue, t.rank)
					continue
				}
				way := []step{came[start]}
				for way[0].from != start {
					way = slices.Insert(way, 0, came[way[0].from])
				}
				return way
			}
		}
	}
	return nil
}

// elsewhere finds ranks for which others wait, and which could come.
func (p *Picture) elsewhere() (found []Finding) {
	for i := range p.ranks {
		r := &p.ranks[i]
		who := p.awaited(i)
		if who == "" || p.stuck[i] || len(p.waits[i]) > 0 && !r.computes() {
			continue
		}
		found = append(found, Finding{Cause: fmt.Sprintf("%s is %s%s; its stacks say more", p.name(i), p.where(i), who)})
	}
	return found
}

// awaited tells which ranks wait for a rank, and for what, "" if none does.
func (p *Picture) awaited(i int) string {
	switch a := p.wanted[i]; len(a.who) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("; rank %d waits for it (%s)", a.who[0], a.what)
	default:
		return fmt.Sprintf("; %s wait for it (%s)", ranks(a.who), a.what)
	}
}

// name names a rank with its process.
func (p *Picture) name(i int) string {
	return fmt.Sprintf("rank %d (%s)", i, p.ranks[i].process())
}

// where tells what a rank does.
func (p *Picture) where(i int) string {
	r := &p.ranks[i]
	switch {
	case r.over():
		return "gone: it " + r.how()
	case !r.joined():
		return "not in the job yet"
	case r.unclear != nil:
		return "somewhere that cannot be told: " + r.unclear.Error()
	case !r.still:
		return "at work"
	case len(r.told.Calls) == 0:
		return "in no call of softnd: it computes, looks at memory, or waits for something else"
	case r.computes():
		return "in " + describe(r.told.Calls[0]) + ", and another goroutine of it runs"
	}
	return "in " + describe(r.told.Calls[0])
}

// endpoints lists the endpoints of a rank that matter now.
func (r *rank) endpoints() []statuspage.Endpoint {
	if !r.still || r.over() {
		return nil
	}
	return r.told.Endpoints
}
