package statuspage

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/softnd/softnd/shm"
)

// Observer reads the status page of a member. It needs no membership of its own: ndrun and ndinfo
// only map the arena.
type Observer struct {
	Peer *shm.Peer // the member

	arena *shm.Arena
	page  *sharedPage
}

// Observe returns the observer of a member, which may be dead.
//
// Errors: those of [shm.Arena.Peer].
func Observe(a *shm.Arena, id shm.MemberID) (*Observer, error) {
	peer, err := a.Peer(id)
	if err != nil {
		return nil, err
	}
	page, err := pageOf(a, id)
	if err != nil {
		return nil, err
	}
	return &Observer{peer, a, page}, nil
}

// LastProgress returns when the member last noted progress, as linux.HostClock counts. It is 0 if
// another member has taken the record, and the page with it. It costs three loads.
func (o *Observer) LastProgress() int64 {
	at := int64(o.page.lastProgress.Load())
	if o.Peer.HasNextOwner() {
		return 0
	}
	return at
}

// Read returns the content of the page. ok is false if the member has not written any, or has made
// progress since it did. Of p then only Manual is valid. If another member has the page, nothing of p is.
//
// Errors: [shm.ErrDamaged] if the length is out of range, or if the page changes during every
// attempt to read it. A member that dies while it writes the page leaves it in that state. Read
// fails with another error if it cannot decode the text.
func (o *Observer) Read() (p Page, ok bool, err error) {
	text, writtenAt, err := o.page.read()
	last := int64(o.page.lastProgress.Load())
	if o.Peer.HasNextOwner() {
		return Page{}, false, nil
	}
	if err != nil {
		return Page{}, false, fmt.Errorf("status page of %v: %w", o.Peer, err)
	}
	if len(text) == 0 {
		return Page{}, false, nil
	}
	if p, err = decode(text); err != nil {
		return Page{}, false, err
	}
	if writtenAt < last {
		return Page{Manual: p.Manual}, false, nil
	}
	return p, true, nil
}

// readTries is how often read reads a page that changes while it is read.
const readTries = 100

// read returns a copy of the text, and when it was written.
func (s *sharedPage) read() (text []byte, writtenAt int64, err error) {
	text = make([]byte, 0, maxText)
	for try := range readTries {
		before := s.seq.Load() // ORDER status-even: pairs with the second addition in write
		if before%2 != 0 {
			time.Sleep(time.Duration(try) * time.Microsecond)
			continue
		}
		writtenAt = int64(s.writtenAt.Load())
		length := s.length.Load()
		if length > maxText {
			return nil, 0, fmt.Errorf("text of %d bytes, want at most %d: %w", length, maxText, shm.ErrDamaged)
		}
		text = text[:0]
		for i := 0; uint64(8*i) < length; i++ {
			text = binary.NativeEndian.AppendUint64(text, s.text[i].Load())
		}
		if s.seq.Load() == before { // ORDER status-odd: pairs with the first addition in write
			return text[:length], writtenAt, nil
		}
	}
	return nil, 0, fmt.Errorf("it changed during each of %d reads: %w", readTries, shm.ErrDamaged)
}

// RequestStacks asks the member to publish its stacks, and wakes it. [Observer.Stacks] takes the
// request number that it returns.
func (o *Observer) RequestStacks() (request uint32) {
	request = o.page.requested.Add(1)
	o.Peer.Wake()
	return request
}

// Stacks returns a copy of the stacks that the member has published for a request, or for a later
// one. If the member has not answered the request yet, ok is false. If the member had no memory for
// its stacks, or another member has the page, they are empty. While it answers another request, ok
// is false.
//
// Errors: [shm.ErrDamaged] if the stacks are longer than [MaxStacks], or not in the member's heap.
func (o *Observer) Stacks(request uint32) (stacks []byte, ok bool, err error) {
	stacks, ok, err = o.readStacks(request)
	if o.Peer.HasNextOwner() { // which answers requests that its record still has
		return nil, true, nil
	}
	return stacks, ok, err
}

// readStacks is Stacks without regard to another member that may have the page.
func (o *Observer) readStacks(request uint32) (stacks []byte, ok bool, err error) {
	s := o.page
	if int32(s.answered.Load()-request) < 0 { // ORDER stacks-answered: pairs with the store in PublishStacks
		return nil, false, nil
	}
	off, n := shm.Offset(s.stacks.Load()), s.stacksLength.Load()
	if n == 0 {
		return nil, s.requested.Load() == s.answered.Load(), nil
	}
	if n > MaxStacks || !o.Peer.Owns(off, n) {
		return nil, true, fmt.Errorf("stacks of %v: %d bytes at offset %#x: %w", o.Peer, n, uint64(off), shm.ErrDamaged)
	}
	stacks = make([]byte, n)
	// Read from the file: the member may free the pages at any time, and a load from a freed page
	// would allocate a new one.
	if _, err := o.arena.File().ReadAt(stacks, int64(off)); err != nil {
		return nil, true, fmt.Errorf("stacks of %v: %w", o.Peer, err)
	}
	if shm.Offset(s.stacks.Load()) != off || s.stacksLength.Load() != n { // freed meanwhile, to answer another request
		return nil, false, nil
	}
	return stacks, true, nil
}
