package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// MaxStatusText is the maximum length of a status page's text, in bytes.
const MaxStatusText = 8 * statusTextWords

// MaxStacks is the maximum length of the stacks that [Peer.Stacks] returns, in bytes.
const MaxStacks = 256 << 10

const (
	statusTextWords  = 1016
	statusPageStride = 64 + MaxStatusText
)

// StatusPage is a copy of a member's status page. The member, the reporter, writes the page for
// observers: processes that map the arena without being members, such as ndrun.
type StatusPage struct {
	Text         []byte // as given to [Member.WriteStatusPage]; nil: the member has not written any
	WrittenAt    int64  // when Text was written, as [Clock] counts
	LastProgress int64  // when the member last noted progress, as [Clock] counts
}

// reset prepares the page for a new reporter.
func (s *statusPage) reset() {
	s.seq.Store((s.seq.Load() + 1) &^ 1) // odd if the previous reporter died while it wrote
	s.length.Store(0)
	s.writtenAt.Store(0)
	s.stacksLength.Store(0)
	s.answered.Store(s.requested.Load())
	s.lastProgress.Store(uint64(Clock()))
}

// NoteProgress records the present time as that of the member's last progress.
func (m *Member) NoteProgress() { m.statusPage.lastProgress.Store(uint64(Clock())) }

// WriteStatusPage replaces the text of the member's status page. It fails if text is longer than
// [MaxStatusText]. Not safe for concurrent use.
func (m *Member) WriteStatusPage(text []byte) error {
	if len(text) > MaxStatusText {
		return fmt.Errorf("shm: write status page: text of %d bytes: want at most %d", len(text), MaxStatusText)
	}
	s := m.statusPage
	s.seq.Add(1) // ORDER status-odd: before the words; pairs with the second load in Peer.StatusPage
	for i := 0; 8*i < len(text); i++ {
		var word [8]byte
		copy(word[:], text[8*i:])
		s.text[i].Store(binary.NativeEndian.Uint64(word[:]))
	}
	s.length.Store(uint64(len(text)))
	s.writtenAt.Store(uint64(Clock()))
	s.seq.Add(1) // ORDER status-even: after the words; pairs with the first load in Peer.StatusPage
	return nil
}

// StacksRequested reports whether an observer waits for the member's stacks. It costs two loads.
func (m *Member) StacksRequested() bool {
	return m.statusPage.requested.Load() != m.statusPage.answered.Load()
}

// PublishStacks answers all requests for the member's stacks so far. It copies stacks into the
// member's heap, where they stay until the next call; stacks may be nil. Not safe for concurrent
// use.
//
// Errors: [NoMemoryError] if the heap has no room. Observers get an empty answer then.
func (m *Member) PublishStacks(stacks []byte) error {
	s := m.statusPage
	request := s.requested.Load()
	s.stacksLength.Store(0)
	var err, shortage error
	if m.stacks != 0 { // the private copy of the offset: a peer may overwrite the shared one
		err = m.heap.Free(m.stacks)
		m.stacks = 0
	}
	if len(stacks) > 0 {
		m.stacks, shortage = m.heap.Alloc(uint64(len(stacks)))
	}
	if m.stacks != 0 {
		copy(m.arena.HeapBytes(m.stacks, uint64(len(stacks))), stacks)
		s.stacks.Store(uint64(m.stacks))
		s.stacksLength.Store(uint64(len(stacks)))
	}
	s.answered.Store(request) // ORDER stacks-answered: after the stacks; pairs with the load in Peer.Stacks
	return errors.Join(err, shortage)
}

// LastProgress returns when the peer last noted progress, as [Clock] counts. It costs one load.
func (p *Peer) LastProgress() int64 {
	return int64(p.arena.statusPageOf(p.id.Slot()).lastProgress.Load())
}

// statusPageTries is how often StatusPage reads a page that changes while it is read.
const statusPageTries = 100

// StatusPage returns a copy of the peer's status page.
//
// Errors: [ErrDamaged] if the length is out of range, or if the page changes during every
// attempt to read it. A member that dies while it writes the page leaves it in that state.
func (p *Peer) StatusPage() (StatusPage, error) {
	s := p.arena.statusPageOf(p.id.Slot())
	text := make([]byte, 0, MaxStatusText)
	for try := range statusPageTries {
		before := s.seq.Load() // ORDER status-even: pairs with the second addition in WriteStatusPage
		if before%2 != 0 {
			time.Sleep(time.Duration(try) * time.Microsecond)
			continue
		}
		read := StatusPage{WrittenAt: int64(s.writtenAt.Load()), LastProgress: p.LastProgress()}
		length := s.length.Load()
		if length > MaxStatusText {
			return read, fmt.Errorf("shm: status page of %v: text of %d bytes, want at most %d: %w", p, length, MaxStatusText, ErrDamaged)
		}
		text = text[:0]
		for i := 0; uint64(8*i) < length; i++ {
			text = binary.NativeEndian.AppendUint64(text, s.text[i].Load())
		}
		if s.seq.Load() == before { // ORDER status-odd: pairs with the first addition in WriteStatusPage
			if length > 0 {
				read.Text = text[:length]
			}
			return read, nil
		}
	}
	return StatusPage{}, fmt.Errorf("shm: status page of %v: it changed during each of %d reads: %w", p, statusPageTries, ErrDamaged)
}

// RequestStacks asks the peer to publish its stacks, and rings it. [Peer.Stacks] takes the
// request number that it returns.
func (p *Peer) RequestStacks() (request uint32) {
	request = p.arena.statusPageOf(p.id.Slot()).requested.Add(1)
	p.Ring()
	return request
}

// Stacks returns a copy of the stacks that the peer has published for a request, or for a later
// one. If the peer has not answered the request yet, ok is false. If the peer had no memory for its
// stacks, they are empty.
//
// Errors: [ErrDamaged] if the stacks are longer than [MaxStacks], or not in the peer's heap.
func (p *Peer) Stacks(request uint32) (stacks []byte, ok bool, err error) {
	s := p.arena.statusPageOf(p.id.Slot())
	if int32(s.answered.Load()-request) < 0 { // ORDER stacks-answered: pairs with the store in PublishStacks
		return nil, false, nil
	}
	off, n := Offset(s.stacks.Load()), s.stacksLength.Load()
	if n == 0 {
		return nil, true, nil
	}
	if n > MaxStacks || !p.Owns(off, n) {
		return nil, true, fmt.Errorf("shm: stacks of %v: %d bytes at offset %#x: %w", p, n, uint64(off), ErrDamaged)
	}
	stacks = make([]byte, n)
	// Read from the file: the peer may free the pages at any time, and a load from a freed page
	// would allocate a new one.
	if _, err := p.arena.file.ReadAt(stacks, int64(off)); err != nil {
		return nil, true, fmt.Errorf("shm: stacks of %v: %w", p, err)
	}
	return stacks, true, nil
}
