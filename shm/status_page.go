package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// TestimonySize is the longest text in bytes that a member can tell of itself.
const TestimonySize = 8 * testimonyWords

const (
	testimonyWords  = 1016
	testimonyStride = 64 + TestimonySize
)

// Statement is what a member has told of itself, for onlookers: processes that
// look at the arena without being members.
type Statement struct {
	Text  []byte // as given to [Member.Tell]; nil: it has told nothing yet
	Told  int64  // when it did, as [Clock] counts
	Moved int64  // when it last saw that something of its own went on
}

// Clock is the time in nanoseconds that all processes of this host agree upon.
// It stands still while the machine sleeps.
func Clock() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail: the clock is there, and t is memory
	return t.Nano()
}

// reset readies a testimony for a new owner.
func (c *testimony) reset() {
	c.seq.Store((c.seq.Load() + 1) &^ 1) // the last owner may have died while it wrote
	c.length.Store(0)
	c.told.Store(0)
	c.stacksLength.Store(0)
	c.answered.Store(c.asked.Load())
	c.moved.Store(uint64(Clock()))
}

// Moved notes that something of the member's own has gone on.
func (m *Member) Moved() { m.testimony.moved.Store(uint64(Clock())) }

// Tell replaces what the member tells of itself. What is longer than
// [TestimonySize] is refused. To be called by one goroutine at a time.
func (m *Member) Tell(text []byte) error {
	if len(text) > TestimonySize {
		return fmt.Errorf("shm: testimony of %d bytes: want at most %d", len(text), TestimonySize)
	}
	c := m.testimony
	c.seq.Add(1) // ORDER testimony-odd: before the words; pairs with the second load in Statement
	for i := 0; 8*i < len(text); i++ {
		var word [8]byte
		copy(word[:], text[8*i:])
		c.text[i].Store(binary.NativeEndian.Uint64(word[:]))
	}
	c.length.Store(uint64(len(text)))
	c.told.Store(uint64(Clock()))
	c.seq.Add(1) // ORDER testimony-even: after the words; pairs with the first load in Statement
	return nil
}

// Asked tells whether an onlooker waits for an answer. It is two loads.
func (m *Member) Asked() bool { return m.testimony.asked.Load() != m.testimony.answered.Load() }

// Answer gives onlookers the member's stacks. They lie in the member's heap until
// the next answer, which may be nil. To be called by one goroutine at a time.
//
// Errors: [ErrShortage] when there is no room; the onlooker gets an empty answer then.
func (m *Member) Answer(stacks []byte) error {
	c := m.testimony
	question := c.asked.Load()
	c.stacksLength.Store(0)
	var err, shortage error
	if m.answer != 0 { // our own copy: a peer may scribble over the word, and name something else
		err = m.heap.Free(m.answer)
		m.answer = 0
	}
	if len(stacks) > 0 {
		m.answer, shortage = m.heap.Alloc(uint64(len(stacks)))
	}
	if m.answer != 0 {
		copy(m.arena.HeapBytes(m.answer, uint64(len(stacks))), stacks)
		c.stacks.Store(uint64(m.answer))
		c.stacksLength.Store(uint64(len(stacks)))
	}
	c.answered.Store(question) // ORDER testimony-answered: after the stacks; pairs with the load in Answer
	return errors.Join(err, shortage)
}

// MemberOf returns the member that holds a rank, dead ones included; ok is
// false while there has been none.
func (a *Arena) MemberOf(rank int) (id MemberID, ok bool) {
	if rank < 0 || rank >= a.ranks {
		return 0, false
	}
	id = MemberID(a.place(rank).member.Load()) // ORDER place-taken: pairs with the swap in Group
	return id, id != 0
}

// Arrivals returns a number that goes up with every rank that reaches a barrier.
func (a *Arena) Arrivals() (n uint64) {
	n = a.header().arrived.Load()
	for rank := range a.ranks {
		n += a.place(rank).round.Load()
	}
	return n
}

// PID returns the process number of the peer; ok is false if it means nothing here.
func (p *Peer) PID() (pid int, ok bool) {
	ns := p.rec.pidNS.Load()
	return int(p.rec.pid.Load()), ns != 0 && ns == pidNamespace()
}

// LastMoved returns when the peer last saw that something of its own went on, as
// [Clock] counts. It is one load.
func (p *Peer) LastMoved() int64 { return int64(p.arena.testimony(p.id.Slot()).moved.Load()) }

// statementTries is how often a statement is read that changes meanwhile.
const statementTries = 100

// Statement returns what the peer has told of itself.
//
// Errors: [ErrDamaged] when that is too long, or keeps changing: a member that
// dies while it writes leaves it so.
func (p *Peer) Statement() (Statement, error) {
	c := p.arena.testimony(p.id.Slot())
	text := make([]byte, 0, TestimonySize)
	for try := range statementTries {
		before := c.seq.Load() // ORDER testimony-even: pairs with the second addition in Tell
		if before%2 != 0 {
			time.Sleep(time.Duration(try) * time.Microsecond)
			continue
		}
		s := Statement{Told: int64(c.told.Load()), Moved: p.LastMoved()}
		length := c.length.Load()
		if length > TestimonySize {
			return s, fmt.Errorf("shm: testimony of %v of %d bytes: %w", p, length, ErrDamaged)
		}
		text = text[:0]
		for i := 0; uint64(8*i) < length; i++ {
			text = binary.NativeEndian.AppendUint64(text, c.text[i].Load())
		}
		if c.seq.Load() == before { // ORDER testimony-odd: pairs with the first addition in Tell
			if length > 0 {
				s.Text = text[:length]
			}
			return s, nil
		}
	}
	return Statement{}, fmt.Errorf("shm: testimony of %v, which changes while it is read: %w", p, ErrDamaged)
}

// Ask asks the peer for its stacks, see [Peer.Answer], and rings.
func (p *Peer) Ask() (question uint32) {
	question = p.arena.testimony(p.id.Slot()).asked.Add(1)
	p.Ring()
	return question
}

// Answer returns the peer's answer to a question; ok is false while there is none.
// It is empty if the peer had no memory for it.
//
// Errors: [ErrDamaged] when the answer does not lie in the peer's heap.
func (p *Peer) Answer(question uint32) (stacks []byte, ok bool, err error) {
	c := p.arena.testimony(p.id.Slot())
	if int32(c.answered.Load()-question) < 0 { // ORDER testimony-answered: pairs with the store in Member.Answer
		return nil, false, nil
	}
	off, n := Offset(c.stacks.Load()), c.stacksLength.Load()
	if n == 0 {
		return nil, true, nil
	}
	if n > AnswerSize || !p.Owns(off, n) {
		return nil, true, fmt.Errorf("shm: answer of %v, %d bytes at offset %#x: %w", p, n, uint64(off), ErrDamaged)
	}
	stacks = make([]byte, n)
	// Read from the file: the peer may give the pages back at any time, and a look at
	// them would make new ones.
	if _, err := p.arena.file.ReadAt(stacks, int64(off)); err != nil {
		return nil, true, fmt.Errorf("shm: answer of %v: %w", p, err)
	}
	return stacks, true, nil
}

// AnswerSize is the longest answer in bytes that an onlooker reads.
const AnswerSize = 256 << 10
