package statuspage

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/softnd/softnd/internal/layout/layouttest"
	"github.com/softnd/softnd/internal/testkit/scale"
	"github.com/softnd/softnd/shm"
)

// pair returns the reporter of a member, and an observer with a mapping of its own.
func pair(t *testing.T) (*Reporter, *Observer) {
	t.Helper()
	a, err := shm.Create(shm.Config{Size: 1 << 28})
	if err != nil {
		t.Fatal(err)
	}
	b, err := shm.Attach(t.Context(), a.File())
	if err != nil {
		t.Fatal(err)
	}
	m, err := a.Join(shm.NoRank)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(m.Leave(), a.Close(), b.Close()); err != nil {
			t.Error(err)
		}
	})
	r, err := NewReporter(m)
	if err != nil {
		t.Fatal(err)
	}
	o, err := Observe(b, m.ID())
	if err != nil {
		t.Fatal(err)
	}
	return r, o
}

func TestLayoutDescribesTheStatusPage(t *testing.T) {
	layouttest.Check(t, []string{"statuspage."}, layouttest.Struct[sharedPage]("statuspage.sharedPage"))
}

func TestPageIsRead(t *testing.T) {
	r, o := pair(t)
	if p, ok, err := o.Read(); ok || err != nil || o.LastProgress() == 0 {
		t.Errorf("before the first write: %+v, %v, %v; last progress %d", p, ok, err, o.LastProgress())
	}
	r.Write(Page{Omitted: 3, Manual: true})
	if p, ok, err := o.Read(); !ok || err != nil || p.Omitted != 3 {
		t.Errorf("a page: %+v, %v, %v", p, ok, err)
	}
	r.NoteProgress()
	if p, ok, err := o.Read(); ok || err != nil || !p.Manual || p.Omitted != 0 || o.LastProgress() < int64(o.page.writtenAt.Load()) {
		t.Errorf("after progress: %+v, %v, %v", p, ok, err)
	}
	r.page.write([]byte("x"))
	if p, ok, err := o.Read(); ok || err == nil {
		t.Errorf("text that is no page: %+v, %v, %v", p, ok, err)
	}
}

func TestTextIsRead(t *testing.T) {
	r, o := pair(t)
	for _, n := range []int{1, 7, 8, 9, 100, maxText, 3} {
		want := strings.Repeat("x", n-1) + "y"
		r.page.write([]byte(want))
		text, writtenAt, err := o.page.read()
		if err != nil || string(text) != want || writtenAt < o.LastProgress() {
			t.Errorf("%d bytes: %q written at %d, %v", n, text, writtenAt, err)
		}
	}
}

// A read returns one whole text or, rarely, an error.
func TestTextIsReadWhole(t *testing.T) {
	r, o := pair(t)
	done := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
				r.page.write(bytes.Repeat([]byte{byte(i)}, 1+i%999))
			}
		}
	})
	most := scale.Of(500, 2000)
	if testing.Short() {
		most = 200
	}
	for changes, last := 0, byte(0); changes < most; {
		text, _, err := o.page.read()
		if err != nil || len(text) == 0 {
			continue // it changed during every attempt, or nothing is written yet
		}
		for i, c := range text {
			if c != text[0] {
				t.Fatalf("byte %d of %d is %d, the first is %d", i, len(text), c, text[0])
			}
		}
		if text[0] != last {
			changes, last = changes+1, text[0]
		}
	}
	close(done)
	writer.Wait()
}

// A page that a member left half written is an error, and the next member in the slot resets it.
func TestPagePartlyWrittenIsDamaged(t *testing.T) {
	r, o := pair(t)
	r.Write(Page{})
	r.page.seq.Add(1)
	if _, _, err := o.Read(); !errors.Is(err, shm.ErrDamaged) {
		t.Errorf("half written: %v", err)
	}
	r.page.reset()
	if p, ok, err := o.Read(); ok || err != nil {
		t.Errorf("after a reset: %+v, %v, %v", p, ok, err)
	}
	r.page.length.Store(maxText + 1)
	if _, _, err := o.Read(); !errors.Is(err, shm.ErrDamaged) {
		t.Errorf("longer than the page: %v", err)
	}
}

func TestStacksArePublished(t *testing.T) {
	r, o := pair(t)
	if r.StacksRequested() {
		t.Error("stacks are requested before any request")
	}
	for i := range 3 {
		request := o.RequestStacks()
		if !r.StacksRequested() {
			t.Error("the request is not seen")
		}
		if b, ok, err := o.Stacks(request); ok || err != nil {
			t.Errorf("before they are published: %q, %v, %v", b, ok, err)
		}
		want := fmt.Sprint("stacks ", i)
		if err := r.PublishStacks([]byte(want)); err != nil {
			t.Fatal(err)
		}
		if b, ok, err := o.Stacks(request); !ok || err != nil || string(b) != want || r.StacksRequested() {
			t.Errorf("stacks: %q, %v, %v", b, ok, err)
		}
	}
	other, err := r.member.Alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	r.page.stacks.Store(uint64(other)) // a peer overwrites the offset
	if err := r.PublishStacks([]byte("stacks")); err != nil {
		t.Error(err)
	}
	if err := r.member.Free(other); err != nil {
		t.Errorf("the object whose offset a peer wrote was freed: %v", err)
	}
	r.page.stacks.Store(uint64(r.member.Arena().Info().HeapStart) + 1<<20) // in a free chunk
	if b, ok, err := o.Stacks(1); !ok || !errors.Is(err, shm.ErrDamaged) {
		t.Errorf("stacks in a free chunk: %q, %v, %v", b, ok, err)
	}
	r.page.stacksLength.Store(1 << 62)
	if b, ok, err := o.Stacks(1); !ok || !errors.Is(err, shm.ErrDamaged) {
		t.Errorf("stacks of 2^62 bytes: %q, %v, %v", b, ok, err)
	}
}

// TestOnlyStacksAnswer, not a new reporter, before which an observer may have asked, nor the end of an old answer.
func TestOnlyStacksAnswer(t *testing.T) {
	r, o := pair(t)
	for name, step := range map[string]func() error{
		"a new reporter": func() error { r.page.reset(); return nil },
		"memory freed":   r.FreeStacks,
	} {
		if err := r.PublishStacks([]byte("old")); err != nil {
			t.Fatal(err)
		}
		request := o.RequestStacks()
		if err := step(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if b, ok, err := o.Stacks(request); ok || err != nil || !r.StacksRequested() {
			t.Errorf("%s: the request is answered with %q, %v", name, b, err)
		}
		if err := r.PublishStacks([]byte("new")); err != nil {
			t.Fatal(err)
		}
		if b, ok, err := o.Stacks(request); !ok || err != nil || string(b) != "new" {
			t.Errorf("%s: stacks: %q, %v, %v", name, b, ok, err)
		}
	}
}

// The work of the next member with the record is not taken for that of the one that has left.
func TestNextMemberIsNotObserved(t *testing.T) {
	a, err := shm.Create(shm.Config{Ranks: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	join := func(rank int) *shm.Member {
		m, err := a.Join(rank)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	left := join(0)
	other := join(shm.NoRank)
	defer other.Leave()
	r, err := NewReporter(left)
	if err != nil {
		t.Fatal(err)
	}
	o, err := Observe(a, left.ID())
	if err != nil {
		t.Fatal(err)
	}
	r.Write(Page{Omitted: 3})
	if err := left.Leave(); err != nil {
		t.Fatal(err)
	}
	other.CheckLiveness(func(shm.MemberID) {})
	if p, ok, err := o.Read(); !ok || err != nil || p.Omitted != 3 || o.LastProgress() == 0 {
		t.Errorf("before the record is taken: %+v, %v, %v; last progress %d", p, ok, err, o.LastProgress())
	}
	request := o.RequestStacks()
	next := join(0)
	defer next.Leave()
	if next.ID().Slot() != left.ID().Slot() {
		t.Fatalf("%v has not the slot of %v", next.ID(), left.ID())
	}
	r, err = NewReporter(next)
	if err != nil {
		t.Fatal(err)
	}
	r.Write(Page{Omitted: 5})
	if err := r.PublishStacks([]byte("stacks")); err != nil {
		t.Fatal(err)
	}
	defer r.FreeStacks()
	if p, ok, err := o.Read(); ok || err != nil {
		t.Errorf("the page of the next member: %+v, %v", p, err)
	}
	if at := o.LastProgress(); at != 0 {
		t.Errorf("the last progress of the next member, %d", at)
	}
	if b, ok, err := o.Stacks(request); !ok || err != nil || len(b) != 0 {
		t.Errorf("the stacks of the next member: %q, %v, %v", b, ok, err)
	}
}

// If there is no memory for the stacks, the answer is empty.
func TestStacksWithoutMemoryAreEmpty(t *testing.T) {
	r, o := pair(t)
	request := o.RequestStacks()
	if err := r.PublishStacks(make([]byte, r.member.Arena().Info().Size)); err == nil {
		t.Error("no error")
	} else if _, ok := errors.AsType[*shm.NoMemoryError](err); !ok {
		t.Errorf("error %v", err)
	}
	if b, ok, err := o.Stacks(request); !ok || err != nil || b != nil {
		t.Errorf("stacks: %d bytes, %v, %v", len(b), ok, err)
	}
}
