// Package eventlog passes the events of a provider to the handler of its program.
package eventlog

// TWIN c/src/endpoint/event.c.

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/softnd/softnd/internal/goruntime"
	"github.com/softnd/softnd/shm"
)

const (
	// MaxEvents limits the events that wait for the handler. Further events are counted and dropped.
	MaxEvents = 1024
	// closeGrace is how long Close waits for the handler.
	closeGrace = time.Second
)

// Log passes events to a handler. Its methods add events with an endpoint's or a
// queue's lock held, but never call the handler: a goroutine of its own does, without any lock. So a
// handler may block and may call softnd. An event contains only private memory, because the arena may be
// unmapped when the handler gets it. A nil Log drops all events.
type Log struct {
	handler slog.Handler
	wake    chan struct{} // has an element if there may be something to do
	ended   chan struct{} // closed when all events are delivered after close

	mu      sync.Mutex // held for moments only; no other lock is taken under it
	queue   []slog.Record
	dropped int                  // events since the last delivery
	deaths  map[int]shm.MemberID // by member slot: the last peer there whose death is in the log
	closed  bool
}

// New returns the log of a handler.
func New(h slog.Handler) *Log {
	l := &Log{handler: h, wake: make(chan struct{}, 1), ended: make(chan struct{}), deaths: make(map[int]shm.MemberID)}
	go l.deliver()
	return l
}

// Add adds an event. It never blocks.
func (l *Log) Add(level slog.Level, message string, attrs ...slog.Attr) {
	r := slog.NewRecord(time.Now(), level, message, 0)
	r.AddAttrs(attrs...)
	l.mu.Lock()
	switch {
	case l.closed:
	case len(l.queue) == MaxEvents:
		l.dropped++
	default:
		l.queue = append(l.queue, r)
	}
	l.mu.Unlock()
	l.signal()
}

func (l *Log) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// deliver calls the handler for each event, in order, until close was called and no event is left.
func (l *Log) deliver() {
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

// Close drops later events, and waits for the handler, at most closeGrace. The caller holds no lock.
func (l *Log) Close() {
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

// QueueOverran adds the event that a result did not fit into the completion queue with a number.
func (l *Log) QueueOverran(number uint64, depth int) {
	if l != nil {
		l.Add(slog.LevelError, "completion queue overran", slog.Uint64("queue", number), slog.Int("depth", depth))
	}
}

// PeerDied adds the event that a peer died, once for each peer.
func (l *Log) PeerDied(peer *shm.Peer) {
	l.mu.Lock()
	known := l.deaths[peer.ID().Slot()] == peer.ID()
	l.deaths[peer.ID().Slot()] = peer.ID()
	l.mu.Unlock()
	if !known {
		l.Add(slog.LevelWarn, "peer died", slog.String("peer", peer.Name()))
	}
}
