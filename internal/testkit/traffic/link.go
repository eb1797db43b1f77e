package traffic

import (
	"context"
	"math/rand/v2"
	"sync/atomic"

	"github.com/softnd/softnd"
	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/testkit/jobaccess"
)

// Link is one side of the connections between two ranks, which follow one another. Each side describes its memory to the other. Most
// requests are correct. A few end their connection: a receive that is too small, a request that uses a grant too late. Bytes behind a
// grant that has ended must not change.
type Link struct {
	*rand.Rand
	Job   *softnd.Job
	Peer  int
	Posts bool // this side posts Sends, Writes and Reads
	Wild  bool // the arena is damaged: any request may fail, the side believes descriptors that are none, and no connection ends well

	Sessions    atomic.Int64          // connections
	Done        atomic.Int64          // requests that have succeeded
	Revoked     atomic.Int64          // grants that a request has ended
	PeerRevoked atomic.Int64          // those among them that a SendAndInvalidate of the peer has ended
	Refused     atomic.Int64          // requests that used a grant too late
	Last        atomic.Pointer[error] // how the last connection ended

	// Valid after Run.
	EndedAt int64 // when the last call and the last request of this side had ended
	End     error // of the last connection, or of the last attempt to connect
	OwnEnd  error // why that connection has ended, if not because the peer died
	Broken  error // a promise was broken
}

// Run connects again and again, until ctx ends or the peer is gone.
func (l *Link) Run(ctx context.Context) {
	for ctx.Err() == nil && l.Broken == nil && !l.peerGone() {
		l.session(ctx)
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

func (l *Link) session(ctx context.Context) {
	s := &session{Link: l, ctx: ctx}
	err := s.open()
	if err == nil {
		l.Sessions.Add(1)
		most := 120
		if s.Wild {
			most = 10_000
		}
		for steps := 10 + s.IntN(most); steps > 0 && s.ep.Err() == nil && !(s.Wild && ctx.Err() != nil); steps-- {
			s.step()
		}
		if !s.Wild {
			err = s.finish()
		}
	}
	s.close()
	l.End, l.OwnEnd, l.EndedAt = err, s.ownCause, linux.HostClock()
	if err != nil {
		l.Last.Store(&err)
	}
}
