package endpoint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/softnd/softnd/internal/goruntime"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

const (
	// maxEvents limits the events that wait for the handler. Further events are counted and dropped.
	maxEvents = 1024
	// closeGrace is how long Provider.Close waits for the handler.
	closeGrace = time.Second
	// defaultWaitLimit is how long a request waits before that is an event, if Sends wait without limit.
	defaultWaitLimit = defaultReceiveTimeout
)

// Values of the attribute "by".
const (
	bySelf = "self"
	byPeer = "peer"
)

// eventLog passes events to a handler. Its methods add events with an endpoint's or a
// queue's lock held, but never call the handler: a goroutine of its own does, without any lock. So a
// handler may block and may call softnd. An event contains only private memory, because the arena may be
// unmapped when the handler gets it. A nil eventLog drops all events.
type eventLog struct {
	handler slog.Handler
	wake    chan struct{} // has an element if there may be something to do
	ended   chan struct{} // closed when all events are delivered after close

	mu      sync.Mutex // held for moments only; no other lock is taken under it
	queue   []slog.Record
	dropped int                  // events since the last delivery
	deaths  map[int]shm.MemberID // by member slot: the last peer there whose death is in the log
	closed  bool
}

func newEventLog(h slog.Handler) *eventLog {
	l := &eventLog{handler: h, wake: make(chan struct{}, 1), ended: make(chan struct{}), deaths: make(map[int]shm.MemberID)}
	go l.deliver()
	return l
}

// add adds an event. It never blocks.
func (l *eventLog) add(level slog.Level, message string, attrs ...slog.Attr) {
	r := slog.NewRecord(time.Now(), level, message, 0)
	r.AddAttrs(attrs...)
	l.mu.Lock()
	switch {
	case l.closed:
	case len(l.queue) == maxEvents:
		l.dropped++
	default:
		l.queue = append(l.queue, r)
	}
	l.mu.Unlock()
	l.signal()
}

func (l *eventLog) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// deliver calls the handler for each event, in order, until close was called and no event is left.
func (l *eventLog) deliver() {
	goruntime.SetLabel("event log")
	defer close(l.ended)
	ctx := context.Background()
	for range l.wake {
		l.mu.Lock()
		queue, dropped, closed := l.queue, l.dropped, l.closed
		l.queue, l.dropped = nil, 0
		l.mu.Unlock()
		if dropped > 0 {
			r := slog.NewRecord(time.Now(), slog.LevelWarn, "events dropped", 0)
			r.AddAttrs(slog.Int("count", dropped))
			queue = append(queue, r)
		}
		for _, r := range queue {
			if l.handler.Enabled(ctx, r.Level) {
				_ = l.handler.Handle(ctx, r) // there is no other place to report the error
			}
		}
		if closed {
			return
		}
	}
}

// close drops later events, and waits for the handler, at most closeGrace. The caller holds no lock.
func (l *eventLog) close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.signal()
	select {
	case <-l.ended:
	case <-time.After(closeGrace):
	}
}

// queueOverran adds the event that a result did not fit into a completion queue. The caller holds q.mu.
func (l *eventLog) queueOverran(q *completionQueue) {
	if l != nil {
		l.add(slog.LevelError, "completion queue overran", slog.Uint64("queue", q.number), slog.Int("depth", len(q.entries)))
	}
}

// peerDied adds the event that a peer died, once for each peer.
func (l *eventLog) peerDied(peer *shm.Peer) {
	l.mu.Lock()
	known := l.deaths[peer.ID().Slot()] == peer.ID()
	l.deaths[peer.ID().Slot()] = peer.ID()
	l.mu.Unlock()
	if !known {
		l.add(slog.LevelWarn, "peer died", slog.String("peer", peer.Name()))
	}
}

// attrs returns the attributes that all events of an endpoint have. The caller holds ep.mu, as for the
// other methods of this file.
func (ep *queuePair) attrs(more ...slog.Attr) []slog.Attr {
	return append([]slog.Attr{slog.Uint64("endpoint", ep.number), slog.String("peer", ep.conn.peerName)}, more...)
}

func (ep *queuePair) logConnected() {
	if l := ep.provider.events; l != nil {
		l.add(slog.LevelInfo, "connected", ep.attrs(slog.Bool("active", ep.conn.side == active))...)
	}
}

func (ep *queuePair) logDisconnected(by string) {
	if l := ep.provider.events; l != nil {
		l.add(slog.LevelInfo, "disconnected", ep.attrs(slog.String("by", by))...)
	}
}

// logOwnEnd adds the event that this side has ended the connection for a reason. The state was another
// before. If the program has closed or flushed the endpoint, the end is no failure.
func (ep *queuePair) logOwnEnd(was qpState, reason error) {
	var why *nd.OpError
	if errors.As(reason, &why) && (why.Op == "close" || why.Op == "flush") {
		if was == connected {
			ep.logDisconnected(bySelf)
		}
		return
	}
	ep.logFailed(slog.LevelError, bySelf, reason)
}

// logPeerClosed adds the event that the peer has closed the connection in order, unless an event has
// announced its end.
func (ep *queuePair) logPeerClosed(was qpState) {
	if was == connected {
		ep.logDisconnected(byPeer)
	}
}

// logPeerFailed adds the event that the peer has ended the connection otherwise, or has died.
func (ep *queuePair) logPeerFailed() {
	if c, l := ep.conn, ep.provider.events; l != nil && ep.life.wasConnected && c.isPeerGone() && c.state() == connEstablished {
		l.peerDied(c.peer) // a process that leaves the job has ended its connections before
	}
	ep.logFailed(slog.LevelWarn, byPeer, ep.life.cause)
}

// logFailed adds the event that the connection has failed.
func (ep *queuePair) logFailed(level slog.Level, by string, cause error) {
	l := ep.provider.events
	if l == nil || !ep.life.wasConnected {
		return
	}
	if cause == nil {
		cause = ep.opError("serve", nd.ConnectionAborted, "the connection ended", "")
	}
	l.add(level, "connection failed", ep.attrs(slog.String("by", by), slog.String("status", nd.StatusOf(cause).String()), slog.String("cause", cause.Error()))...)
}

// logWaiting adds an event for each oldest request of an endpoint that has waited longer than the
// receive time-out.
func (p *Provider) logWaiting() {
	if p.events == nil {
		return
	}
	limit := p.options.ReceiveTimeout
	if limit == NoLimit || limit == AtOnce {
		limit = defaultWaitLimit
	}
	now := time.Now()
	for _, ep := range *p.endpoints.Load() {
		if ep.uncompleted.Load() != 0 && ep.mu.TryLock() {
			ep.logWaitingLocked(now, limit)
			ep.mu.Unlock()
		}
	}
}

func (ep *queuePair) logWaitingLocked(now time.Time, limit time.Duration) {
	w := &ep.waiting
	number := ep.sq.completed
	if number == ep.req.submitted || ep.state() != connected {
		w.since = time.Time{}
		return
	}
	if w.since.IsZero() || w.number != number {
		*w = waitObserver{number: number, since: now}
		return
	}
	waited := now.Sub(w.since)
	if w.reported || waited < limit {
		return
	}
	w.reported = true
	r := ep.requestAt(number)
	ep.provider.events.add(slog.LevelWarn, "request waits", ep.attrs(slog.String("request", r.OpName()), slog.Uint64("context", r.context),
		slog.String("for", ep.awaited(r)), slog.Duration("waited", waited.Round(time.Millisecond)))...)
}

// awaited says what the oldest request waits for.
func (ep *queuePair) awaited(r *request) string {
	switch {
	case ep.req.next != ep.sq.completed && ep.conn.peerHasSRQ && r.Kind == nd.RequestSend:
		return "the peer to take a receive from its shared queue"
	case ep.req.next != ep.sq.completed:
		return "the peer to process it"
	}
	for cause := range stallCauses {
		if r.stalls == 1<<cause {
			return stallText[cause]
		}
	}
	if r.stalls == 0 {
		return fmt.Sprintf("the transfer of %d bytes", r.Total)
	}
	return "several causes, see the endpoint's Stalls"
}
