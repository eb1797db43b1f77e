package shm

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// reporter joins as rank 1. It returns the member, and the peer by which an observer with a
// mapping of its own sees it.
func reporter(t *testing.T) (*Member, *Peer) {
	t.Helper()
	a := newArena(t, 2)
	m := join(t, a, 1)
	if _, err := m.JoinGroup(); err != nil {
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

func TestStatusPageIsRead(t *testing.T) {
	m, p := reporter(t)
	if s, err := p.StatusPage(); err != nil || s.Text != nil || s.WrittenAt != 0 || s.LastProgress == 0 {
		t.Errorf("before the first write: %+v, %v", s, err)
	}
	for _, n := range []int{1, 7, 8, 9, 100, MaxStatusText, 3} {
		want := strings.Repeat("x", n-1) + "y"
		if err := m.WriteStatusPage([]byte(want)); err != nil {
			t.Fatal(err)
		}
		s, err := p.StatusPage()
		if err != nil || string(s.Text) != want || s.WrittenAt < s.LastProgress {
			t.Errorf("%d bytes: %+v, %v", n, s, err)
		}
	}
	m.NoteProgress()
	if s, err := p.StatusPage(); err != nil || s.LastProgress < s.WrittenAt || s.LastProgress != p.LastProgress() {
		t.Errorf("after progress: %+v, %v", s, err)
	}
	if err := m.WriteStatusPage(make([]byte, MaxStatusText+1)); err == nil {
		t.Error("no error for a text that is too long")
	}
	if s, err := p.StatusPage(); err != nil || string(s.Text) != "xxy" {
		t.Errorf("after a write that failed: %q, %v", s.Text, err)
	}
}

// A read returns one whole text or, rarely, an error.
func TestStatusPageIsReadWhole(t *testing.T) {
	m, p := reporter(t)
	done := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
				if err := m.WriteStatusPage(bytes.Repeat([]byte{byte(i)}, 1+i%999)); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for changes, last := 0, byte(0); changes < 2000; {
		s, err := p.StatusPage()
		if err != nil || len(s.Text) == 0 {
			continue // it changed during every attempt, or nothing is written yet
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
	writer.Wait()
}

// A page that a member left half written is an error, and the next member in the slot resets it.
func TestStatusPagePartlyWrittenIsDamaged(t *testing.T) {
	m, p := reporter(t)
	if err := m.WriteStatusPage([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	m.statusPage.seq.Add(1)
	if _, err := p.StatusPage(); !errors.Is(err, ErrDamaged) {
		t.Errorf("half written: %v", err)
	}
	m.statusPage.reset()
	if s, err := p.StatusPage(); err != nil || s.Text != nil {
		t.Errorf("after a reset: %+v, %v", s, err)
	}
	m.statusPage.length.Store(MaxStatusText + 1)
	if _, err := p.StatusPage(); !errors.Is(err, ErrDamaged) {
		t.Errorf("longer than the page: %v", err)
	}
}

func TestStacksArePublished(t *testing.T) {
	m, p := reporter(t)
	if m.StacksRequested() {
		t.Error("stacks are requested before any request")
	}
	for i := range 3 {
		request := p.RequestStacks()
		if !m.StacksRequested() {
			t.Error("the request is not seen")
		}
		if b, ok, err := p.Stacks(request); ok || err != nil {
			t.Errorf("before they are published: %q, %v, %v", b, ok, err)
		}
		want := fmt.Sprint("stacks ", i)
		if err := m.PublishStacks([]byte(want)); err != nil {
			t.Fatal(err)
		}
		if b, ok, err := p.Stacks(request); !ok || err != nil || string(b) != want || m.StacksRequested() {
			t.Errorf("stacks: %q, %v, %v", b, ok, err)
		}
	}
	other, err := m.heap.Alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	m.statusPage.stacks.Store(uint64(other)) // a peer overwrites the offset
	if err := m.PublishStacks([]byte("stacks")); err != nil {
		t.Error(err)
	}
	if err := m.heap.Free(other); err != nil {
		t.Errorf("the object whose offset a peer wrote was freed: %v", err)
	}
	m.statusPage.stacks.Store(uint64(m.arena.geo.heap) + 1<<20) // in a free chunk
	if b, ok, err := p.Stacks(1); !ok || !errors.Is(err, ErrDamaged) {
		t.Errorf("stacks in a free chunk: %q, %v, %v", b, ok, err)
	}
	m.statusPage.stacksLength.Store(1 << 62)
	if b, ok, err := p.Stacks(1); !ok || !errors.Is(err, ErrDamaged) {
		t.Errorf("stacks of 2^62 bytes: %q, %v, %v", b, ok, err)
	}
}

// If there is no memory for the stacks, the answer is empty.
func TestStacksWithoutMemoryAreEmpty(t *testing.T) {
	m, p := reporter(t)
	request := p.RequestStacks()
	if err := m.PublishStacks(make([]byte, m.arena.geo.size)); !isNoMemory(err) {
		t.Errorf("error %v", err)
	}
	if b, ok, err := p.Stacks(request); !ok || err != nil || b != nil {
		t.Errorf("stacks: %d bytes, %v, %v", len(b), ok, err)
	}
}
