package shm

import (
	"fmt"
	"sync/atomic"
)

// maxMail bounds one collection, so that a peer cannot keep us busy with a
// list that ends in itself.
const maxMail = 1 << 16

// A piece of mail is an object that its owner hands to another member by
// offset. It has a link word, free for the inbox to use while it is under way.
//
// An inbox is a list that any member may put mail on, with one
// compare-and-swap, and whose owner takes all of it at once, so no entry is
// ever seen half removed. A member that dies before its swap has sent nothing.

// Send puts the mail at off into the peer's inbox and rings. link is the link
// word of that mail. The memory stays the sender's, who must not free it while
// the receiver may use it.
//
// Errors: [ErrGone]. When the peer goes in this very moment the mail may lie
// in its inbox nevertheless, so the memory must stay untouched until the death
// has been handled ([Member.Sweep]).
func (p *Peer) Send(off Offset, link *atomic.Uint64) error {
	if p.Gone() { // the record may be another member's by now
		return fmt.Errorf("shm: mail to %v: %w", p, ErrGone)
	}
	for {
		head := p.rec.inbox.Load()
		link.Store(head)
		if p.rec.inbox.CompareAndSwap(head, uint64(off)) { // ORDER mail: pairs with the swap in Collect
			break
		}
	}
	if p.Gone() {
		return fmt.Errorf("shm: mail to %v: %w", p, ErrGone)
	}
	p.Ring()
	return nil
}

// HasMail tells whether Collect would return anything. It is one load.
func (m *Member) HasMail() bool { return m.rec.inbox.Load() != 0 }

// Collect takes all mail, oldest first. linkOf returns the link word of the
// mail at an offset, which comes from a peer and must be checked; an error
// from it ends the list, and what was found up to there is returned.
//
// The list runs through the senders' memory, dead senders' included. So the
// inbox must be collected before a death is acknowledged, that is, in or
// before the letGo of [Member.Sweep]: once acknowledged, the dead member's
// memory is cleared, and mail of others that lies behind its own is lost.
func (m *Member) Collect(linkOf func(Offset) (*atomic.Uint64, error)) ([]Offset, error) {
	at := Offset(m.rec.inbox.Swap(0)) // ORDER mail: pairs with the swap in Send
	var list []Offset
	var err error
	for at != 0 {
		var link *atomic.Uint64
		if link, err = linkOf(at); err != nil {
			break
		}
		if list = append(list, at); len(list) > maxMail {
			err = fmt.Errorf("shm: inbox with more than %d entries: %w", maxMail, ErrDamaged)
			break
		}
		at = Offset(link.Load())
	}
	for i, j := 0, len(list)-1; i < j; i, j = i+1, j-1 {
		list[i], list[j] = list[j], list[i]
	}
	return list, err
}
