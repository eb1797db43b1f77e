package hang

import (
	"fmt"
	"slices"
	"strings"

	"github.com/softnd/softnd/internal/statuspage"
)

// Finding is a possible cause of a hang.
type Finding struct {
	Cause string
	Steps []string // its parts, such as the waits of a circle
}

// Findings returns the possible causes, the most likely first. Facts such as a stopped rank come
// before conclusions such as a circle of waits.
func (p *Snapshot) Findings() []Finding {
	return slices.Concat(p.findNotStarted(), p.findStopped(), p.findEnded(), p.findAbsent(), p.findLostNotifies(), p.findMissingReceives(),
		p.findImpossibleResults(), p.findDeadlock(), p.findBusy(), p.findUnawaitedEnds())
}

// findNotStarted finds ranks that have not been started, if no rank runs.
func (p *Snapshot) findNotStarted() (found []Finding) {
	if slices.ContainsFunc(p.ranks, func(r rank) bool { return r.Ended == "" }) {
		return nil
	}
	for i := range p.ranks {
		if p.ranks[i].PID == 0 {
			found = append(found, Finding{Cause: p.name(i) + " " + p.ranks[i].ending() + ", and no rank runs"})
		}
	}
	if len(found) == len(p.ranks) {
		return []Finding{{Cause: "no rank has been started yet: a busy machine is slow to start processes; give the job more time"}}
	}
	return found
}

func (p *Snapshot) findStopped() (found []Finding) {
	for i := range p.ranks {
		// After its end, another process may have its number. The launcher has its number until then.
		if r := &p.ranks[i]; r.isStopped() && r.Ended == "" && (!r.left || r.PID == r.pid) {
			found = append(found, Finding{Cause: fmt.Sprintf("%s is not responding: a signal or a debugger has stopped it%s: continue it with kill -CONT %d",
				p.name(i), p.awaited(i), r.pid)})
		}
	}
	return found
}

// findEnded finds ranks that have ended or left while others wait for them.
func (p *Snapshot) findEnded() (found []Finding) {
	for i := range p.ranks {
		if who := p.awaited(i); who != "" && p.ranks[i].isGone() {
			found = append(found, Finding{Cause: p.name(i) + " " + p.ranks[i].ending() + who})
		}
	}
	return found
}

// findUnawaitedEnds finds ranks that have ended or left early and that no rank is known to wait for.
// A rank that polls memory for a Write of a peer makes no call, so its wait is not known.
func (p *Snapshot) findUnawaitedEnds() (found []Finding) {
	inJob := slices.ContainsFunc(p.ranks, func(r rank) bool { return !r.isGone() })
	runs := slices.ContainsFunc(p.ranks, func(r rank) bool { return r.Ended == "" })
	ended := slices.ContainsFunc(p.ranks, func(r rank) bool { return r.Ended != "" })
	if !inJob && (!runs || !ended) { // all have ended, or all have left
		return nil
	}
	for i := range p.ranks {
		r := &p.ranks[i]
		if p.awaited(i) != "" || !r.isGone() {
			continue
		}
		cause := p.name(i) + " " + r.ending()
		if inJob || r.Ended != "" {
			cause += ", while others still run"
		}
		found = append(found, Finding{Cause: cause})
	}
	return found
}

// absent returns the ranks that run and have not joined.
func (p *Snapshot) absent() (absent []int) {
	for i := range p.ranks {
		if r := &p.ranks[i]; !r.hasJoined() && r.Ended == "" && !r.isStopped() {
			absent = append(absent, i)
		}
	}
	return absent
}

// findAbsent finds ranks that have not called softnd.Init.
func (p *Snapshot) findAbsent() []Finding {
	absent := p.absent()
	switch {
	case len(absent) == 0:
		return nil
	case !slices.ContainsFunc(p.ranks, func(r rank) bool { return r.hasJoined() }):
		return []Finding{{Cause: "no rank has called softnd.Init: the programs do not use softnd, or block before that call"}}
	}
	who := ""
	for _, i := range absent {
		if who == "" {
			who = p.awaited(i)
		}
	}
	return []Finding{{Cause: fmt.Sprintf("%s never arrived: not in softnd.Init%s", ranks(absent), who)}}
}

// findLostNotifies finds calls that wait for a notification at a queue that already holds results.
func (p *Snapshot) findLostNotifies() (found []Finding) {
	for i := range p.ranks {
		for _, w := range p.waits[i] {
			n := p.ranks[i].results(w.call.Queue)
			if w.call.Op == "notify" && n > 0 {
				found = append(found, Finding{Cause: fmt.Sprintf("rank %d waits in %s, which already holds results (%d): "+
					"they have completed an earlier notify, or are not of the requested kind; before each notify, poll until the queue is empty",
					i, w.what, n)})
			}
		}
	}
	return found
}

// findMissingReceives finds Sends for which the peer has posted no Receive.
func (p *Snapshot) findMissingReceives() (found []Finding) {
	for i := range p.ranks {
		for _, e := range p.ranks[i].endpoints() {
			if peer, ok := p.rankOf[e.Peer]; ok && e.ReceiveMissing && e.Cause == "" {
				if p.isSlow(peer) { // it has not come to that yet
					if p.awaited(peer) == "" {
						found = append(found, Finding{Cause: p.slow(peer) + fmt.Sprintf("; the %s of rank %d waits for its receive", e.OldestRequest, i)})
					}
					continue
				}
				found = append(found, Finding{Cause: fmt.Sprintf("rank %d has posted no receive on %s for the %s of rank %d (on its %s), and is %s",
					peer, peerName(e), e.OldestRequest, i, name(e), p.where(peer))})
			}
		}
	}
	return found
}

// findImpossibleResults finds ranks whose only wait is for a result that cannot come.
func (p *Snapshot) findImpossibleResults() (found []Finding) {
	for i := range p.ranks {
		r := &p.ranks[i]
		if len(p.waits[i]) != 1 || r.isComputing() || r.isStopped() {
			continue
		}
		w := p.waits[i][0]
		if w.call.Queue == 0 || len(w.targets) > 0 || w.open || r.results(w.call.Queue) > 0 || p.mayGetClient(i, p.deadlocked) {
			continue
		}
		f := Finding{Cause: fmt.Sprintf("rank %d waits for a result that cannot come (%s): no endpoint of that queue has a posted receive or an outstanding request", i, w.what)}
		for _, e := range r.endpoints() {
			if e.Cause != "" && (e.RequestQueue == w.call.Queue || e.ReceiveQueue == w.call.Queue) {
				f.Steps = append(f.Steps, fmt.Sprintf("%s of rank %d failed: %s", name(e), i, e.Cause))
			}
		}
		f.Steps = append(f.Steps, p.failuresWith(i)...)
		found = append(found, f)
	}
	return found
}

// failuresWith returns the failures of other ranks' endpoints connected to a rank. The other side
// often knows more about the reason.
func (p *Snapshot) failuresWith(i int) (steps []string) {
	for other := range p.ranks {
		for _, e := range p.ranks[other].endpoints() {
			if peer, ok := p.rankOf[e.Peer]; ok && peer == i && e.Cause != "" {
				steps = append(steps, fmt.Sprintf("%s of rank %d failed: %s", name(e), other, e.Cause))
			}
		}
	}
	return steps
}

// maxStarts is the number of ranks from which circle starts a search. In a large job more searches
// take long and find no shorter circle that would tell the user more.
const maxStarts = 64

// findDeadlock finds a circle of waits, and ranks that wait for a connection that the other side does
// not make. While there are such ranks, a new connection may bring a message. So a circle of ranks
// that only wait for messages is not reported then.
func (p *Snapshot) findDeadlock() (found []Finding) {
	circle := p.circle()
	for i := range p.ranks {
		if slices.ContainsFunc(circle, func(s step) bool { return s.from == i }) {
			continue
		}
		for _, w := range p.waits[i] {
			if y, ok := p.isUnanswered(i, w); ok {
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
		f.Steps = append(f.Steps, fmt.Sprintf("rank %d waits for rank %d: %s", s.from, s.to.rank, s.to.need))
	}
	return slices.Insert(found, 0, f)
}

// isUnanswered reports whether rank i waits for a connection with a rank that has joined the job and
// does something else, and returns that rank.
func (p *Snapshot) isUnanswered(i int, w wait) (peer int, ok bool) {
	if !isConnecting(w.call) {
		return 0, false
	}
	peer, ok = p.rankOf[w.call.Peer]
	if !ok {
		return 0, false
	}
	r := &p.ranks[peer]
	if r.isGone() || r.isStopped() || !r.idle {
		return 0, false
	}
	answers := func(c statuspage.Call) bool {
		return isAccepting(c) || isConnecting(c) && c.Peer == p.ranks[i].id
	}
	return peer, !slices.ContainsFunc(r.calls(), answers)
}

// isConnecting reports whether a call waits for the other side of a connection.
func isConnecting(c statuspage.Call) bool { return c.Op == "connect" || c.Op == "accept" }

// circle returns the shortest circle of ranks that wait for each other, nil if there is none.
func (p *Snapshot) circle() (best []step) {
	starts := 0
	for i := range p.ranks {
		if !p.deadlocked[i] || starts == maxStarts {
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

// circleFrom returns the shortest path of waits from a rank back to itself, through deadlocked ranks
// only.
func (p *Snapshot) circleFrom(start int) []step {
	came := make(map[int]step) // the step that reached each rank first
	for queue := []int{start}; len(queue) > 0; queue = queue[1:] {
		for _, w := range p.waits[queue[0]] {
			for _, t := range w.targets {
				if _, known := came[t.rank]; known || !p.deadlocked[t.rank] {
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

// findBusy finds ranks that others wait for and that do not wait themselves.
func (p *Snapshot) findBusy() (found []Finding) {
	for i := range p.ranks {
		r := &p.ranks[i]
		who := p.awaited(i)
		if who == "" || p.stuck[i] || !r.isComputing() && p.isWaiting(i) {
			continue
		}
		if p.isSlow(i) {
			found = append(found, Finding{Cause: p.slow(i) + who + p.waitedFor(i)})
			continue
		}
		stacks := "see its stacks"
		if len(r.stacks) == 0 {
			stacks = fmt.Sprintf("see its stack with gdb -p %d", r.pid)
		}
		found = append(found, Finding{Cause: fmt.Sprintf("%s is %s%s: %s", p.name(i), p.where(i), who, stacks)})
	}
	return found
}

// isSlow reports whether a rank computes: it uses processor time, and does not only wait in calls.
func (p *Snapshot) isSlow(i int) bool {
	r := &p.ranks[i]
	return r.busy && !r.isGone() && !r.isStopped() && (!p.isWaiting(i) || r.isComputing())
}

// isWaiting reports whether a rank waits, for others or for the next client.
func (p *Snapshot) isWaiting(i int) bool {
	return len(p.waits[i]) > 0 || p.mayGetClient(i, p.deadlocked)
}

// slow names a rank for which isSlow is true.
func (p *Snapshot) slow(i int) string {
	return fmt.Sprintf("%s is slow: it computes, or polls memory, and has used %v of processor time", p.name(i), p.ranks[i].cpu)
}

// waitedFor returns how long others have waited for a rank.
func (p *Snapshot) waitedFor(i int) string {
	since := p.at
	for other := range p.waits {
		for _, w := range p.waits[other] {
			if slices.ContainsFunc(w.targets, func(t target) bool { return t.rank == i }) {
				since = min(since, w.call.Since)
			}
		}
	}
	return " for " + p.since(since)
}

// Moves returns lines about a job that makes progress. They name ranks that compute while others wait for them. They also have the
// processor time of the ranks in the job, and name those that have not joined. If ok is false, no rank is in the job, or some ranks cannot
// continue, and the job hangs in part.
func (p *Snapshot) Moves() (lines []string, ok bool) {
	if len(p.findStopped())+len(p.findEnded())+len(p.findLostNotifies())+len(p.findDeadlock()) > 0 {
		return nil, false
	}
	for i := range p.ranks {
		if who := p.awaited(i); who != "" && p.isSlow(i) {
			lines = append(lines, p.slow(i)+who+p.waitedFor(i))
		}
	}
	if absent := p.absent(); len(absent) > 0 {
		lines = append(lines, "not in softnd.Init yet: "+ranks(absent))
	}
	var times []string
	for i := range p.ranks {
		if r := &p.ranks[i]; r.hasJoined() && !r.isGone() {
			times = append(times, fmt.Sprintf("rank %d %v", i, r.cpu))
		}
	}
	if len(times) == 0 {
		return nil, false
	}
	more := ""
	if n := len(times) - maxTimes; n > 0 {
		times, more = times[:maxTimes], fmt.Sprintf(", and %d more", n)
	}
	return append(lines, "processor time: "+strings.Join(times, ", ")+more), true
}

// maxTimes is the number of ranks whose processor time is reported.
const maxTimes = 32

// awaited returns text that names the ranks that wait for a rank, and their need; "" if none does.
func (p *Snapshot) awaited(i int) string {
	switch a := p.waiters[i]; len(a.ranks) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("; rank %d waits for it (%s)", a.ranks[0], a.need)
	default:
		return fmt.Sprintf("; %s wait for it (%s)", ranks(a.ranks), a.need)
	}
}

// name returns the number and the process of a rank.
func (p *Snapshot) name(i int) string {
	return fmt.Sprintf("rank %d (%s)", i, p.ranks[i].process())
}

// where describes what a rank does.
func (p *Snapshot) where(i int) string {
	r := &p.ranks[i]
	switch {
	case r.isGone():
		return "gone: it " + r.ending()
	case !r.hasJoined():
		return "not in the job yet"
	case r.pageErr != nil:
		return "somewhere that cannot be read: " + r.pageErr.Error()
	case !r.idle && !r.isOutside():
		return "running"
	case len(r.page.Calls) == 0:
		return "in no call of softnd: it computes, polls memory, or waits for something else"
	case r.isComputing():
		return "in " + callText(r.page.Calls[0]) + ", and another of its goroutines runs"
	}
	return "in " + callText(r.page.Calls[0])
}

// endpoints returns the endpoints on the status page of an idle rank.
func (r *rank) endpoints() []statuspage.Endpoint {
	if !r.idle || r.isGone() {
		return nil
	}
	return r.page.Endpoints
}
