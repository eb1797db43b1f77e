package endpoint

// TWIN c/src/endpoint/progress_statuspage.c.

import (
	"cmp"
	"runtime"
	"slices"
	"time"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/statuspage"
)

// republishInterval is how long the published status of a process without progress is valid.
// Calls may begin and end without progress.
const republishInterval = time.Second

// initialStackSize is the size in bytes of the first buffer for the stacks that observers get.
const initialStackSize = 32 << 10

// How long a queue counts as polled after a poll, and how long an answer is kept.
const (
	pollLifetime   = 2 * time.Second
	answerLifetime = 10 * time.Second
)

// reporter is the state with which the housekeeper publishes the progress of the process, at most
// ten times a second. Only the housekeeper's goroutine uses it.
type reporter struct {
	progressMark uint64             // changes when the process makes progress
	progressAt   int64              // linux.HostClock at that time
	publishedAt  time.Time          // when the status was published since then; zero: not published
	samples      uint64             // number of calls of sample
	polled       []*completionQueue // queues polled recently

	answeredAt time.Time // zero: no answer is published
}

// updateStatusPage tells observers that the process has made progress. If it has made none since
// the last call, it publishes what the process waits for. It answers a pending question.
func (p *Provider) updateStatusPage() {
	r := &p.housekeeper.reporter
	// Any process can ask repeatedly, and an answer stops all goroutines.
	asked := p.status.StacksRequested() && time.Since(r.answeredAt) >= busyInterval
	switch mark := r.sample(p); {
	case mark != r.progressMark:
		r.progressMark, r.progressAt, r.publishedAt = mark, linux.HostClock(), time.Time{}
		p.status.NoteProgress()
	case r.publishedAt.IsZero() || asked || time.Since(r.publishedAt) >= republishInterval:
		r.publishedAt = time.Now()
		p.status.Write(p.statusPage())
	}
	switch {
	case asked:
		_ = p.status.PublishStacks(stacks()) // the answer is empty if there is no memory for it
		r.answeredAt = time.Now()
	case !r.answeredAt.IsZero() && time.Since(r.answeredAt) > answerLifetime:
		_ = p.status.FreeStacks()
		r.answeredAt = time.Time{}
	}
}

// sample computes progressMark, and notes which completion queues were polled. It takes no lock,
// because the program may hold the endpoints' locks.
func (r *reporter) sample(p *Provider) (mark uint64) {
	note := func(n uint64) { mark = mark*31 + n }
	clear(r.polled) // the array must not keep closed queues
	r.polled = r.polled[:0]
	now := time.Now()
	r.samples++
	note(p.waiters.Completed())
	for _, ep := range *p.endpoints.Load() {
		note(uint64(ep.stateWord.Load()))
		note(ep.sq.slots.Freed.Load())
		note(ep.rq.slots.Freed.Load())
		note(ep.localQP.Released.Load())
		note(uint64(ep.req.chunks.Load()))
		for _, q := range []*completionQueue{ep.sq.cq, ep.rq.cq} {
			note(q.ring.Tail.Load())
			if polls := q.polls.Load(); polls != q.reportedPolls {
				q.reportedPolls, q.reportedPollsAt = polls, now
			}
			if now.Sub(q.reportedPollsAt) < pollLifetime && q.reportedIn != r.samples {
				q.reportedIn = r.samples
				r.polled = append(r.polled, q)
			}
		}
	}
	return mark
}

// statusPage collects the status of the process.
func (p *Provider) statusPage() (page statuspage.Page) {
	page.Calls = p.waiters.Calls()
	for _, q := range p.housekeeper.reporter.polled {
		if !slices.ContainsFunc(page.Calls, func(c statuspage.Call) bool { return c.Queue == q.number }) {
			page.Calls = append(page.Calls, statuspage.Call{Op: statuspage.OpPoll, Queue: q.number, Since: p.housekeeper.reporter.progressAt})
		}
	}
	queues := make(map[*completionQueue]bool)
	for _, ep := range *p.endpoints.Load() {
		queues[ep.sq.cq], queues[ep.rq.cq] = true, true
		if e, busy := ep.statusEntry(); busy {
			page.Endpoints = append(page.Endpoints, e)
		}
	}
	for q := range queues {
		if n := q.ring.Tail.Load() - q.ring.Head.Load(); n > 0 {
			page.Queues = append(page.Queues, statuspage.Queue{Number: q.number, Results: n})
		}
	}
	slices.SortFunc(page.Queues, func(a, b statuspage.Queue) int { return cmp.Compare(a.Number, b.Number) })
	// The entries that explain most come first, because the rest may not fit.
	slices.SortStableFunc(page.Endpoints, func(a, b statuspage.Endpoint) int { return diagnosticRank(b) - diagnosticRank(a) })
	return page
}

// diagnosticRank is higher the more an endpoint explains.
func diagnosticRank(e statuspage.Endpoint) int {
	switch {
	case e.Requests > 0:
		return 2
	case e.Cause != "":
		return 1
	}
	return 0
}

// tryLockBriefly reports whether try succeeded within about a millisecond. Progress holds locks
// for less; a lock that is held longer may never be unlocked.
func tryLockBriefly(try func() bool) bool {
	for range 20 {
		if try() {
			return true
		}
		time.Sleep(50 * time.Microsecond)
	}
	return false
}

// statusEntry returns the endpoint's part of the status page. busy is false if there is nothing
// to report.
func (ep *queuePair) statusEntry() (e statuspage.Endpoint, busy bool) {
	e = statuspage.Endpoint{Number: ep.number, Busy: true, RequestQueue: ep.sq.cq.number, ReceiveQueue: ep.rq.cq.number}
	if !tryLockBriefly(ep.mu.TryLock) {
		return e, true
	}
	defer ep.mu.Unlock()
	if ep.srq != nil {
		if !tryLockBriefly(ep.srq.mu.TryLock) {
			return e, true
		}
		defer ep.srq.mu.Unlock()
	}
	e.Busy = false
	e.State = ep.state().String()
	if c := ep.conn; c != nil {
		e.Peer = c.record.Peer.ID()
		if c.attached {
			e.PeerNumber = c.far.Endpoint
		}
	}
	if e.Requests = ep.sq.posted - ep.sq.completed; e.Requests > 0 {
		r := ep.requestAt(ep.sq.completed)
		e.OldestRequest, e.ReceiveMissing = r.OpName(), r.stalls&(1<<stallReceive) != 0 && !r.hasReceive
	}
	if e.Receives = ep.rq.posted - ep.rq.completed; ep.srq != nil {
		e.Receives = ep.srq.outstanding()
	}
	if ep.state() == cm.QPFailed && ep.life.cause != nil {
		e.Cause = ep.life.cause.Error()
	}
	switch ep.state() {
	case cm.QPConnected, cm.QPPeerDisconnected, cm.QPDisconnecting:
		e.PeerCopying = ep.conn.attached && ep.conn.hazard.Load() != 0
		return e, e.Requests > 0 || e.Receives > 0 || e.PeerCopying
	case cm.QPFailed:
		return e, true
	}
	return e, false
}

// stacks returns the stacks of all goroutines of the process.
func stacks() []byte {
	for size := initialStackSize; ; size *= 2 {
		b := make([]byte, size)
		if n := runtime.Stack(b, true); n < size || size >= statuspage.MaxStacks {
			return b[:n]
		}
	}
}
