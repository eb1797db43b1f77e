package shm

// TWIN c/src/shm/inbox.c.

import (
	"fmt"
	"sync/atomic"

	"github.com/softnd/softnd/internal/testkit/failpoint"
)

// maxMail bounds the list that TakeMail follows. A hostile peer can link a list to itself.
const maxMail = 1 << 16

// Mail is an object whose offset its owner sends to another member. It has a link word, which the
// inbox uses until the receiver takes the mail.
//
// An inbox is a list. Any member adds mail to it with one compare-and-swap. The owner takes the whole
// list with one exchange, so no member sees a partly removed list. A member that dies before its
// compare-and-swap has sent nothing.

// SendMail puts the mail at off into the peer's inbox and wakes the peer. link is the link word of
// the mail. The memory stays the sender's, which must not free it while the receiver may use it.
//
// SendMail fails if the peer has died or left. The mail may be in the peer's inbox even so. The
// sender must not change the memory until [Member.CheckLiveness] has handled the peer's death.
func (p *Peer) SendMail(off Offset, link *atomic.Uint64) error {
	if p.Gone() { // another member may have the record now
		return fmt.Errorf("shm: send mail to %v: %w", p, errGone)
	}
	for {
		head := p.rec.inbox.Load()
		link.Store(head)
		failpoint.Reach(failpoint.MailLinked)
		if p.rec.inbox.CompareAndSwap(head, uint64(off)) { // ORDER mail: pairs with the swap in TakeMail
			break
		}
	}
	failpoint.Reach(failpoint.MailSent)
	if p.Gone() {
		return fmt.Errorf("shm: send mail to %v: %w", p, errGone)
	}
	p.Wake()
	return nil
}

// HasMail reports whether the inbox holds mail. It costs one load.
func (m *Member) HasMail() bool { return m.rec.inbox.Load() != 0 }

// TakeMail takes all mail out of the inbox and returns its offsets, oldest first. linkOf returns the
// link word of the mail at an offset; it must check the offset, which comes from a peer. If linkOf
// fails, or the list is too long ([ErrDamaged]), TakeMail returns the error and the mail found so
// far.
//
// The list passes through the memory of its senders, which may have died. So call TakeMail before
// this member acknowledges a death: before [Member.CheckLiveness], or in its drop. After the
// acknowledgement the dead member's memory is cleared, and mail linked behind its own is lost.
func (m *Member) TakeMail(linkOf func(Offset) (*atomic.Uint64, error)) ([]Offset, error) {
	at := Offset(m.rec.inbox.Swap(0)) // ORDER mail: pairs with the swap in SendMail
	failpoint.Reach(failpoint.MailTaken)
	var list []Offset
	var err error
	for at != 0 {
		var link *atomic.Uint64
		if link, err = linkOf(at); err != nil {
			break
		}
		if list = append(list, at); len(list) > maxMail {
			err = fmt.Errorf("shm: take mail: more than %d entries: %w", maxMail, ErrDamaged)
			break
		}
		at = Offset(link.Load())
	}
	for i, j := 0, len(list)-1; i < j; i, j = i+1, j-1 {
		list[i], list[j] = list[j], list[i]
	}
	return list, err
}
