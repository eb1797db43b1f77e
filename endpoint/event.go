package endpoint

// TWIN c/src/endpoint/event.c.

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/softnd/softnd/endpoint/internal/cm"
	"github.com/softnd/softnd/nd"
)

// defaultWaitLimit is how long a request waits before that is an event, if Sends wait without limit.
const defaultWaitLimit = defaultReceiveTimeout

// Values of the attribute "by".
const (
	bySelf = "self"
	byPeer = "peer"
)

// attrs returns the attributes that all events of an endpoint have. The caller holds ep.mu, as for the
// other methods of this file.
func (ep *queuePair) attrs(more ...slog.Attr) []slog.Attr {
	return append([]slog.Attr{slog.Uint64("endpoint", ep.number), slog.String("peer", ep.conn.peerName)}, more...)
}

func (ep *queuePair) logConnected() {
	if l := ep.provider.events; l != nil {
		l.Add(slog.LevelInfo, "connected", ep.attrs(slog.Bool("active", ep.conn.record.Side == cm.Active))...)
	}
}

func (ep *queuePair) logDisconnected(by string) {
	if l := ep.provider.events; l != nil {
		l.Add(slog.LevelInfo, "disconnected", ep.attrs(slog.String("by", by))...)
	}
}

// logOwnEnd adds the event that this side has ended the connection for a reason. The state was another
// before. If the program has closed or flushed the endpoint, the end is no failure.
func (ep *queuePair) logOwnEnd(was cm.QPState, reason error) {
	var why *nd.OpError
	if errors.As(reason, &why) && (why.Op == "close" || why.Op == "flush") {
		if was == cm.QPConnected {
			ep.logDisconnected(bySelf)
		}
		return
	}
	ep.logFailed(slog.LevelError, bySelf, reason)
}

// logPeerClosed adds the event that the peer has closed the connection in order, unless an event has
// announced its end.
func (ep *queuePair) logPeerClosed(was cm.QPState) {
	if was == cm.QPConnected {
		ep.logDisconnected(byPeer)
	}
}

// logPeerFailed adds the event that the peer has ended the connection otherwise, or has died.
func (ep *queuePair) logPeerFailed() {
	if c, l := ep.conn, ep.provider.events; l != nil && ep.life.wasConnected && c.record.IsPeerGone() && c.state() == cm.ConnEstablished {
		l.PeerDied(c.record.Peer) // a process that leaves the job has ended its connections before
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
	l.Add(level, "connection failed", ep.attrs(slog.String("by", by), slog.String("status", nd.StatusOf(cause).String()), slog.String("cause", cause.Error()))...)
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
	if number == ep.req.submitted || ep.state() != cm.QPConnected {
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
	ep.provider.events.Add(slog.LevelWarn, "request waits", ep.attrs(slog.String("request", r.OpName()), slog.Uint64("context", r.context),
		slog.String("for", ep.awaited(r)), slog.Duration("waited", waited.Round(time.Millisecond)))...)
}

// awaited says what the oldest request waits for.
func (ep *queuePair) awaited(r *request) string {
	switch {
	case ep.req.next != ep.sq.completed && ep.conn.peerHasSRQ && r.takesReceive():
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
