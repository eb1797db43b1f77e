package shm

import "time"

// blameLasts is how long a member keeps blaming the same peer. When one peer leaves, others
// often follow because of it: the first is what matters.
const blameLasts = time.Second

// Blame notes, for the launcher, that peer has ended its connection with this member, has
// left or died, or has broken the rules of the connection: should this rank fail now, it is
// because of that. Of several peers within a second the first stays noted. A member without
// a rank notes nothing. Safe for concurrent use.
func (m *Member) Blame(peer MemberID) {
	if m.rank < 0 || m.rank >= m.arena.ranks {
		return
	}
	p, now := m.arena.place(m.rank), Clock()
	last := p.blamedAt.Load()
	if time.Duration(now-int64(last)) < blameLasts || !p.blamedAt.CompareAndSwap(last, uint64(now)) {
		return
	}
	p.blamed.Store(uint64(peer)) // the reader knows that this process has ended, and so sees both words
}

// Blames returns the rank that a rank blamed last, see [Member.Blame], and when, as [Clock]
// counts; ok is false if it blamed none. It is meant for ranks that have ended: any member
// may have written anything, so the time is only good for comparing.
func (a *Arena) Blames(rank int) (peer int, at int64, ok bool) {
	if rank < 0 || rank >= a.ranks {
		return 0, 0, false
	}
	p := a.place(rank)
	id, at := p.blamed.Load(), int64(p.blamedAt.Load())
	if id == 0 || at == 0 {
		return 0, 0, false
	}
	for peer := range a.ranks {
		if a.place(peer).member.Load() == id {
			return peer, at, true
		}
	}
	return 0, 0, false
}
