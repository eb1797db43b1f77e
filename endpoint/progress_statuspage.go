package endpoint

import (
	"cmp"
	"runtime"
	"slices"
	"time"

	"github.com/softnd/softnd/internal/testimony"
	"github.com/softnd/softnd/shm"
)

// tellAgain is how long what a process that stands still has told of itself stays
// good: calls may come and go without anything having moved.
const tellAgain = time.Second

// stackSize is where the room for the stacks that onlookers get begins, in bytes.
const stackSize = 32 << 10

// How long a queue that has been polled counts as polled, and how long an answer is kept.
const (
	pollsLast   = 2 * time.Second
	answersLast = 10 * time.Second
)

// witness is what the patrol keeps in order to tell onlookers, ten times a second at
// the most, where the process is. It is that goroutine's own.
type witness struct {
	seen   uint64             // a mark that changes when something of the process goes on
	moved  int64              // shm.Clock when it did
	told   time.Time          // since then nothing has; zero: nothing has been told
	polled []*CompletionQueue // not long ago

	answered time.Time // zero: there is no answer to be forgotten
}

// testify tells onlookers that something has gone on or, if nothing has since the
// last time, what the process waits for. It answers whoever has asked.
func (p *Provider) testify() {
	w := &p.patrol.witness
	// Any process can ask again and again, and all goroutines stop for an answer.
	asked := p.member.Asked() && time.Since(w.answered) >= patrolOften
	switch mark := w.look(p); {
	case mark != w.seen:
		w.seen, w.moved, w.told = mark, shm.Clock(), time.Time{}
		p.member.Moved()
	case w.told.IsZero() || asked || time.Since(w.told) >= tellAgain:
		w.told = time.Now()
		_ = p.member.Tell(p.testimony().Bytes()) // never too long
	}
	switch {
	case asked:
		_ = p.member.Answer(stacks()) // where there is no memory, the answer is empty
		w.answered = time.Now()
	case !w.answered.IsZero() && time.Since(w.answered) > answersLast:
		_ = p.member.Answer(nil) // its memory is the program's
		w.answered = time.Time{}
	}
}

// look makes the mark, and notes which completion queues have been polled. It takes
// no lock, because the program may be at its endpoints.
func (w *witness) look(p *Provider) (mark uint64) {
	note := func(n uint64) { mark = mark*31 + n }
	w.polled = w.polled[:0]
	now := time.Now()
	note(p.sleep.ended.Load())
	for _, ep := range *p.live.Load() {
		note(uint64(ep.now.Load()))
		note(ep.taken.taken.Load())
		note(ep.receivesTaken.taken.Load())
		note(ep.half.consumed.Load())
		note(uint64(ep.parts.Load()))
		for _, q := range []*CompletionQueue{ep.initiatorCQ, ep.receiveCQ} {
			note(q.tail.Load())
			if polls := q.polls.Load(); polls != q.pollsSeen {
				q.pollsSeen, q.pollsAt = polls, now
			}
			if now.Sub(q.pollsAt) < pollsLast && !slices.Contains(w.polled, q) {
				w.polled = append(w.polled, q)
			}
		}
	}
	return mark
}

// testimony is what the process has to tell.
func (p *Provider) testimony() (t testimony.Testimony) {
	t.Calls = p.sleep.calling()
	for _, q := range p.patrol.witness.polled {
		if !slices.ContainsFunc(t.Calls, func(c testimony.Call) bool { return c.Queue == q.number }) {
			t.Calls = append(t.Calls, testimony.Call{Op: testimony.OpPoll, Queue: q.number, Since: p.patrol.witness.moved})
		}
	}
	queues := make(map[*CompletionQueue]bool)
	for _, ep := range *p.live.Load() {
		queues[ep.initiatorCQ], queues[ep.receiveCQ] = true, true
		if e, busy := ep.testimony(); busy {
			t.Endpoints = append(t.Endpoints, e)
		}
	}
	for q := range queues {
		if n := q.tail.Load() - q.head.Load(); n > 0 {
			t.Queues = append(t.Queues, testimony.Queue{Number: q.number, Results: n})
		}
	}
	slices.SortFunc(t.Queues, func(a, b testimony.Queue) int { return cmp.Compare(a.Number, b.Number) })
	// What explains most stands first: there may be no room for the rest.
	slices.SortStableFunc(t.Endpoints, func(a, b testimony.Endpoint) int { return rank(b) - rank(a) })
	return t
}

// rank is higher the more an endpoint explains.
func rank(e testimony.Endpoint) int {
	switch {
	case e.Requests > 0:
		return 2
	case e.Cause != "":
		return 1
	}
	return 0
}

// lockSoon reports whether a lock could be taken within about a millisecond. Progress holds
// locks for less; a lock that is held for longer may never be free.
func lockSoon(try func() bool) bool {
	for range 20 {
		if try() {
			return true
		}
		time.Sleep(50 * time.Microsecond)
	}
	return false
}

// testimony is the endpoint's part in it; busy is false if there is nothing to tell.
func (ep *Endpoint) testimony() (e testimony.Endpoint, busy bool) {
	e = testimony.Endpoint{Number: ep.number, Unknown: true, Initiator: ep.initiatorCQ.number, Receive: ep.receiveCQ.number}
	if !lockSoon(ep.mu.TryLock) {
		return e, true
	}
	defer ep.mu.Unlock()
	if ep.shared != nil {
		if !lockSoon(ep.shared.mu.TryLock) {
			return e, true
		}
		defer ep.shared.mu.Unlock()
	}
	e.Unknown = false
	e.State = ep.state().String()
	if c := ep.conn; c != nil {
		e.Peer = c.peer.ID()
		if c.joined {
			e.PeerNumber = c.ref.Endpoint
		}
	}
	if e.Requests = ep.tail - ep.done; e.Requests > 0 {
		r := &ep.requests[ep.done&uint64(len(ep.requests)-1)]
		e.Oldest, e.NoReceive = opName(r), !r.deadline.IsZero() && !r.started
	}
	if e.Receives = ep.posted - ep.delivered; ep.shared != nil {
		e.Receives = ep.shared.outstanding()
	}
	if ep.state() == failed && ep.cause != nil {
		e.Cause = ep.cause.Error()
	}
	switch ep.state() {
	case connected, peerGone, closing:
		e.Touched = ep.conn.joined && ep.conn.hazard.InUse()
		return e, e.Requests > 0 || e.Receives > 0 || e.Touched
	case failed:
		return e, true
	}
	return e, false
}

// stacks are those of all goroutines of the process.
func stacks() []byte {
	for size := stackSize; ; size *= 2 {
		b := make([]byte, size)
		if n := runtime.Stack(b, true); n < size || size >= shm.AnswerSize {
			return b[:n]
		}
	}
}
