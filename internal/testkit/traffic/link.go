package traffic

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/testkit/jobaccess"
	"github.com/softnd/softnd/nd"
)

// Link is one side of the connections between two ranks, which follow one another. Messages, Writes and Reads carry hashes of all bytes.
// Each side grants the other access to its memory, and ends it: in agreement, or while the other uses it, which ends the connection. Bytes
// behind an access that has ended must not change.
type Link struct {
	*rand.Rand
	Job    *softnd.Job
	Peer   int
	Posts  bool            // this side posts Sends, Writes, Reads and atomics
	Errs   bool            // a receive may be too small, and a request use an access that has ended: the connection ends then
	Wild   bool            // the arena is damaged, or the peer in C: any request may fail, nothing is checked, and any message may be a descriptor
	Steps  int             // most steps of a connection
	Shared *SharedReceives // nil, or a queue that some connections take their receives from

	Counts
	Last atomic.Pointer[error] // how the last connection ended that this side has not ended

	// Valid after Run.
	EndedAt int64 // when the last call and the last request of this side had ended
	End     error // of the last connection, or of the last attempt to connect; nil if this side has ended it
	OwnEnd  error // why that connection has ended, if not because the peer died
	Broken  error // a promise was broken

	private [][]byte // private memory of the last session, which must stay as it is
}

// SharedReceives is a shared receive queue with the memory of its receives.
type SharedReceives struct {
	queue  nd.SharedReceiveQueue
	memory nd.MemoryRegion
}

const sharedReceives = 48

// NewSharedReceives creates a queue, and posts its receives.
func NewSharedReceives(ctx context.Context, a nd.Adapter) (r *SharedReceives, err error) {
	r = new(SharedReceives)
	if r.memory, err = a.Allocate(ctx, sharedReceives*largestMessage, nd.AllowLocalWrite); err != nil {
		return nil, err
	}
	if r.queue, err = a.CreateSharedReceiveQueue(ctx, nd.SharedReceiveQueueConfig{Depth: sharedReceives}); err != nil {
		return nil, err
	}
	for i := range uint64(sharedReceives) {
		err = errors.Join(err, r.queue.Receive(i, r.letter(i)))
	}
	return r, err
}

func (r *SharedReceives) letter(i uint64) nd.SGL {
	return nd.One(nd.SGEOf(r.memory, int(i)*largestMessage, largestMessage))
}

// Close closes the queue.
func (r *SharedReceives) Close(ctx context.Context) error {
	return errors.Join(r.queue.Close(), r.memory.Close(ctx))
}

// Run connects again and again, until ctx ends, the peer is gone, or a promise is broken.
func (l *Link) Run(ctx context.Context) {
	for ctx.Err() == nil && l.Broken == nil && !l.peerGone() {
		s := &session{Link: l, ctx: ctx}
		l.End, l.OwnEnd = nil, nil
		l.try(s.run)
		l.try(s.close)
		l.EndedAt = linux.HostClock()
		if err := l.End; err != nil {
			l.Last.Store(&err)
		}
	}
}

func (l *Link) peerGone() bool {
	arena := jobaccess.Of(l.Job).Arena
	id, ok := arena.MemberOf(l.Peer)
	if !ok {
		return false
	}
	p, err := arena.Peer(id)
	return err == nil && p.Gone()
}

// breach is the panic that ends a session.
type breach struct{ error }

// try calls f, and notes the promise that it has found broken.
func (l *Link) try(f func()) {
	defer func() {
		switch b := recover().(type) {
		case nil:
		case breach:
			if !l.Wild && l.Broken == nil {
				l.Broken = fmt.Errorf("link of ranks %d and %d: %w\n%s", l.Job.Rank(), l.Peer, b.error, debug.Stack())
			}
		default:
			panic(b)
		}
	}()
	f()
}

// fail ends the session if a promise was broken.
func (l *Link) fail(err error) {
	if err != nil {
		panic(breach{err})
	}
}

// run connects and makes random steps.
func (s *session) run() {
	s.fail(s.open())
	if s.End = s.connect(); s.End != nil {
		time.Sleep(5 * time.Millisecond) // the peer may be dead
		return
	}
	s.count(Sessions)
	for range 10 + s.IntN(s.Steps) {
		if s.step(); s.ended() || s.ctx.Err() != nil {
			break
		}
	}
	if !s.Wild {
		s.finish()
	}
}
