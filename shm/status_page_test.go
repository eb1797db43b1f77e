package shm

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// witness is a member with a rank, and the same as an onlooker sees it, through a
// mapping of its own.
func witness(t *testing.T) (*Member, *Peer) {
	t.Helper()
	a := newArena(t, 2)
	m := join(t, a, 1)
	if _, err := m.Group(); err != nil {
		t.Fatal(err)
	}
	b := again(t, a)
	id, ok := b.MemberOf(1)
	if !ok || id != m.ID() {
		t.Fatalf("member of rank 1: %v, %v", id, ok)
	}
	p, err := b.Peer(id)
	if err != nil {
		t.Fatal(err)
	}
	return m, p
}

func TestTestimony(t *testing.T) {
	m, p := witness(t)
	if s, err := p.Statement(); err != nil || s.Text != nil || s.Told != 0 || s.Moved == 0 {
		t.Errorf("before it has told anything: %+v, %v", s, err)
	}
	for _, n := range []int{1, 7, 8, 9, 100, TestimonySize, 3} {
		want := strings.Repeat("x", n-1) + "y"
		if err := m.Tell([]byte(want)); err != nil {
			t.Fatal(err)
		}
		s, err := p.Statement()
		if err != nil || string(s.Text) != want || s.Told < s.Moved {
			t.Errorf("%d bytes: %+v, %v", n, s, err)
		}
	}
	m.Moved()
	if s, err := p.Statement(); err != nil || s.Moved < s.Told || s.Moved != p.LastMoved() {
		t.Errorf("after it has moved: %+v, %v", s, err)
	}
	if err := m.Tell(make([]byte, TestimonySize+1)); err == nil {
		t.Error("no error for a text that is too long")
	}
	if s, err := p.Statement(); err != nil || string(s.Text) != "xxy" {
		t.Errorf("after a refusal: %q, %v", s.Text, err)
	}
}

// An onlooker sees a text as a whole or, seldom, an error.
func TestTestimonyIsWhole(t *testing.T) {
	m, p := witness(t)
	done := make(chan struct{})
	var teller sync.WaitGroup
	teller.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
				if err := m.Tell(bytes.Repeat([]byte{byte(i)}, 1+i%999)); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for changes, last := 0, byte(0); changes < 2000; {
		s, err := p.Statement()
		if err != nil || len(s.Text) == 0 {
			continue // it changed all the time, or has not begun
		}
		for i, c := range s.Text {
			if c != s.Text[0] {
				t.Fatalf("byte %d of %d is %d, the first is %d", i, len(s.Text), c, s.Text[0])
			}
		}
		if s.Text[0] != last {
			changes, last = changes+1, s.Text[0]
		}
	}
	close(done)
	teller.Wait()
}

// What a member leaves half told says so, and its successor begins anew.
func TestTestimonyOfTheDead(t *testing.T) {
	m, p := witness(t)
	if err := m.Tell([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	m.testimony.seq.Add(1)
	if _, err := p.Statement(); !errors.Is(err, ErrDamaged) {
		t.Errorf("half told: %v", err)
	}
	m.testimony.reset()
	if s, err := p.Statement(); err != nil || s.Text != nil {
		t.Errorf("after a new beginning: %+v, %v", s, err)
	}
	m.testimony.length.Store(TestimonySize + 1)
	if _, err := p.Statement(); !errors.Is(err, ErrDamaged) {
		t.Errorf("longer than there is room: %v", err)
	}
}

func TestAnswers(t *testing.T) {
	m, p := witness(t)
	if m.Asked() {
		t.Error("asked before anybody has asked")
	}
	for i := range 3 {
		q := p.Ask()
		if !m.Asked() {
			t.Error("not asked")
		}
		if b, ok, err := p.Answer(q); ok || err != nil {
			t.Errorf("before the answer: %q, %v, %v", b, ok, err)
		}
		want := fmt.Sprint("stacks ", i)
		if err := m.Answer([]byte(want)); err != nil {
			t.Fatal(err)
		}
		if b, ok, err := p.Answer(q); !ok || err != nil || string(b) != want || m.Asked() {
			t.Errorf("answer: %q, %v, %v", b, ok, err)
		}
	}
	other, err := m.Heap().Alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	m.testimony.stacks.Store(uint64(other)) // a peer scribbles
	if err := m.Answer([]byte("stacks")); err != nil {
		t.Error(err)
	}
	if err := m.Heap().Free(other); err != nil {
		t.Errorf("what a peer has named in place of the last answer was freed with it: %v", err)
	}
	m.testimony.stacks.Store(uint64(m.arena.geo.heap) + 1<<20) // nobody's
	if b, ok, err := p.Answer(1); !ok || !errors.Is(err, ErrDamaged) {
		t.Errorf("an answer in memory of nobody: %q, %v, %v", b, ok, err)
	}
	m.testimony.stacksLength.Store(1 << 62)
	if b, ok, err := p.Answer(1); !ok || !errors.Is(err, ErrDamaged) {
		t.Errorf("an endless answer: %q, %v, %v", b, ok, err)
	}
}

// Where there is no memory for the stacks, the answer is empty, and comes.
func TestAnswerWithoutMemory(t *testing.T) {
	m, p := witness(t)
	q := p.Ask()
	if err := m.Answer(make([]byte, m.arena.Size())); !errors.Is(err, ErrShortage) {
		t.Errorf("error %v", err)
	}
	if b, ok, err := p.Answer(q); !ok || err != nil || b != nil {
		t.Errorf("answer: %d bytes, %v, %v", len(b), ok, err)
	}
}
