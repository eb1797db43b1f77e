package ring

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"
)

// newRing returns both sides of a ring of n slots, and its released word.
func newRing(t testing.TB, n uint64) (*Producer, *Consumer, *atomic.Uint64) {
	t.Helper()
	slots, released := make([]Slot, n), new(atomic.Uint64)
	p, err := NewProducer(slots, released, true)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewConsumer(slots, released)
	if err != nil {
		t.Fatal(err)
	}
	return p, c, released
}

func wordsOf(v uint64) *Words {
	var w Words
	for i := range w {
		w[i] = v*uint64(i+1) + uint64(i)
	}
	return &w
}

func push(t *testing.T, p *Producer, v uint64, want bool) {
	t.Helper()
	published := p.Published()
	ok := p.Push(wordsOf(v))
	if ok {
		published++
	}
	if ok != want || p.Published() != published {
		t.Fatalf("push of %d: %v with %d entries published, want %v with %d", v, ok, p.Published(), want, published)
	}
}

// peek copies the oldest entry into w. It reports whether there is one.
func peek(c *Consumer, w *Words) bool {
	front := c.Front()
	if front != nil {
		*w = *front
	}
	return front != nil
}

func pop(t *testing.T, c *Consumer, v uint64) {
	t.Helper()
	var w Words
	if !peek(c, &w) {
		t.Fatalf("entry %d is not there", v)
	}
	if w != *wordsOf(v) {
		t.Fatalf("entry %d holds %v", v, w)
	}
	consumed := c.Consumed()
	if number := c.Advance(); number != consumed {
		t.Fatalf("consumed entry %d, want %d", number, consumed)
	}
}

func none(t *testing.T, c *Consumer) {
	t.Helper()
	if w := c.Front(); w != nil {
		t.Fatalf("entry %d is there: %v", c.Consumed(), *w)
	}
}

func TestRingFollowsScenarios(t *testing.T) {
	t.Run("empty", func(t *testing.T) {
		p, c, _ := newRing(t, 4)
		none(t, c)
		if p.FreeSlots() != 4 || p.Published() != 0 || p.LoadReleased() != 0 || c.Unreleased() != 0 {
			t.Errorf("room %d, pushed %d, consumed %d", p.FreeSlots(), p.Published(), p.LoadReleased())
		}
	})
	t.Run("full", func(t *testing.T) {
		p, c, _ := newRing(t, 4)
		for i := range uint64(4) {
			push(t, p, i, true)
		}
		push(t, p, 4, false)
		if p.FreeSlots() != 0 {
			t.Errorf("room for %d", p.FreeSlots())
		}
		for i := range uint64(4) {
			pop(t, c, i)
		}
		none(t, c)
		push(t, p, 4, false) // consumed, but not released
		c.Release()
		push(t, p, 4, true)
		pop(t, c, 4)
	})
	t.Run("one slot", func(t *testing.T) {
		p, c, _ := newRing(t, 1)
		for i := range uint64(5) {
			push(t, p, i, true)
			push(t, p, i, false)
			pop(t, c, i)
			none(t, c)
			c.Release()
		}
	})
	t.Run("wrap", func(t *testing.T) {
		p, c, _ := newRing(t, 8)
		in, out := uint64(0), uint64(0)
		for round := range 50 {
			for range round%8 + 1 {
				if p.Push(wordsOf(in)) {
					in++
				}
			}
			for range round % 5 {
				if out < in {
					pop(t, c, out)
					out++
				}
			}
			c.Release()
		}
		for ; out < in; out++ {
			pop(t, c, out)
		}
		none(t, c)
	})
	t.Run("peek does not consume", func(t *testing.T) {
		p, c, _ := newRing(t, 2)
		push(t, p, 9, true)
		for range 3 {
			if s := (Words{}); !peek(c, &s) || s != *wordsOf(9) || c.Consumed() != 0 {
				t.Fatalf("peek: %v, next %d", s, c.Consumed())
			}
		}
	})
	t.Run("release in batches", func(t *testing.T) {
		p, c, released := newRing(t, 4)
		for i := range uint64(4) {
			push(t, p, i, true)
		}
		for i := range uint64(3) {
			pop(t, c, i)
			if c.Unreleased() != i+1 || released.Load() != 0 {
				t.Errorf("unreleased %d, released word %d", c.Unreleased(), released.Load())
			}
		}
		c.Release()
		if c.Unreleased() != 0 || released.Load() != 3 || p.LoadReleased() != 3 || p.FreeSlots() != 3 {
			t.Errorf("unreleased %d, released word %d, consumed %d, room %d", c.Unreleased(), released.Load(), p.LoadReleased(), p.FreeSlots())
		}
	})
	t.Run("a consumer that lies about the released entries", func(t *testing.T) {
		p, _, released := newRing(t, 4)
		for i := range uint64(3) {
			push(t, p, i, true)
		}
		released.Store(2)
		if p.LoadReleased() != 2 {
			t.Fatalf("consumed %d", p.LoadReleased())
		}
		for _, lie := range []uint64{4, 1, 0, 1 << 63, ^uint64(0), 2 + 1<<32} {
			released.Store(lie)
			if got := p.LoadReleased(); got != 2 {
				t.Errorf("%d released entries are believed: %d", lie, got)
			}
			if got := p.FreeSlots(); got != 3 {
				t.Errorf("%d released entries: room %d", lie, got)
			}
		}
		for range 3 {
			push(t, p, 5, true)
		}
		push(t, p, 5, false)
	})
	t.Run("a scribbled released word does not confuse the consumer", func(t *testing.T) {
		p, c, released := newRing(t, 4)
		push(t, p, 0, true)
		pop(t, c, 0)
		c.Release()
		released.Store(1 << 40)
		if c.Unreleased() != 0 || c.Consumed() != 1 {
			t.Errorf("unreleased %d, next %d", c.Unreleased(), c.Consumed())
		}
		c.Release()
		if released.Load() != 1 {
			t.Errorf("released word %d", released.Load())
		}
	})
	t.Run("garbage sequence numbers", func(t *testing.T) {
		p, c, _ := newRing(t, 4)
		for _, seq := range []uint64{2, 3, 5, 1 << 63, ^uint64(0)} {
			c.slots[0].seq.Store(seq)
			none(t, c)
		}
		push(t, p, 0, true)
		pop(t, c, 0)
		c.Release()
		// A slot of the previous round is not an entry.
		for i := range uint64(3) {
			push(t, p, i+1, true)
			pop(t, c, i+1)
		}
		none(t, c)
	})
	t.Run("a producer that scribbles over what it has sent", func(t *testing.T) {
		p, c, _ := newRing(t, 2)
		push(t, p, 1, true)
		var s Words
		if !peek(c, &s) {
			t.Fatal("nothing there")
		}
		c.slots[0].words = *wordsOf(99)
		if s != *wordsOf(1) {
			t.Error("the copied entry has changed")
		}
	})
	t.Run("counters that wrap", func(t *testing.T) {
		p, c, released := newRing(t, 4)
		const near = ^uint64(0) - 5 // a ring would reach it after thousands of years
		p.next, p.released, c.released = near, near, near
		c.next.Store(near)
		released.Store(near)
		for i := range uint64(20) {
			push(t, p, i, true)
			pop(t, c, i)
			if i%3 == 2 {
				c.Release()
			}
		}
		none(t, c)
	})
}

func TestSlotsAreChecked(t *testing.T) {
	slots, released := make([]Slot, 8), new(atomic.Uint64)
	unaligned := unsafe.Slice((*Slot)(unsafe.Add(unsafe.Pointer(&slots[0]), 8)), 4)
	for name, slots := range map[string][]Slot{
		"no slots":      nil,
		"three slots":   slots[:3],
		"seven slots":   slots[1:],
		"not on a line": unaligned,
	} {
		if p, err := NewProducer(slots, released, true); err == nil {
			t.Errorf("%s: producer %v", name, p)
		}
		if c, err := NewConsumer(slots, released); err == nil {
			t.Errorf("%s: consumer %v", name, c)
		}
	}
	if c, err := NewConsumer(slots[4:], released); err != nil || c.Size() != 4 {
		t.Errorf("four slots: %v", err)
	}
}

// In private memory the race detector checks that an entry is complete when it is published, and that a
// slot is released after it was read.
func TestRingPassesEntriesBetweenGoroutines(t *testing.T) {
	p, c, _ := newRing(t, 8)
	const entries = 20_000
	var done sync.WaitGroup
	done.Go(func() {
		for i := uint64(0); i < entries; {
			if p.Push(wordsOf(i)) {
				i++
			} else {
				runtime.Gosched()
			}
		}
	})
	var s Words
	for i := uint64(0); i < entries; {
		if !peek(c, &s) {
			runtime.Gosched()
			continue
		}
		if s != *wordsOf(i) {
			t.Fatalf("entry %d holds %v", i, s)
		}
		c.Advance()
		if i%4 == 3 {
			c.Release()
		}
		i++
	}
	done.Wait()
}

func FuzzRing(f *testing.F) {
	f.Add([]byte{}, uint64(0), uint64(4), []byte{0, 1, 2, 3})
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0}, uint64(1), uint64(1), []byte{1, 1, 1, 0, 0})
	f.Add(slices.Repeat([]byte{0xff}, 4*SlotSize), ^uint64(0), uint64(4), []byte{0, 0, 0, 0, 0, 1, 2, 1, 2})
	f.Add([]byte{2, 0, 0, 0, 0, 0, 0, 0}, uint64(3), uint64(2), []byte{0, 3, 0, 3, 0, 3})
	f.Fuzz(func(t *testing.T, slots []byte, lie, n uint64, script []byte) {
		if n == 0 || n&(n-1) != 0 || n > 4096 {
			return
		}
		p, c, released := newRing(t, n)
		scribble := func() { copy(unsafe.Slice((*byte)(unsafe.Pointer(&c.slots[0])), n*SlotSize), slots) }
		scribble()
		consumed, peeked := uint64(0), uint64(0)
		for _, step := range script[:min(len(script), 200)] {
			var s Words
			switch step % 6 {
			case 0:
				room := p.FreeSlots()
				if ok := p.Push(wordsOf(uint64(step))); ok != (room > 0) {
					t.Fatalf("room %d, push %v", room, ok)
				}
			case 1:
				if peek(c, &s) {
					c.Advance()
					peeked++
				}
			case 2:
				c.Release()
			case 3:
				released.Store(lie)
			case 4:
				released.Store(p.Published() + uint64(int8(step)))
			case 5:
				scribble()
			}
			now := p.LoadReleased()
			if now < consumed || now > p.Published() || p.Published()-now > n || p.FreeSlots() > n || p.FreeSlots() == 0 && p.Published()-now < n {
				t.Fatalf("of %d slots: pushed %d, consumed %d, room %d", n, p.Published(), now, p.FreeSlots())
			}
			consumed = now
			if c.Consumed() != peeked || c.Unreleased() > peeked {
				t.Fatalf("consumer is at %d with %d unreleased, peeked %d", c.Consumed(), c.Unreleased(), peeked)
			}
		}
	})
}

// ReleaseTo releases some of the consumed entries, and ignores a number that releases nothing or too much.
func TestReleaseTo(t *testing.T) {
	p, c, released := newRing(t, 4)
	for i := range 3 {
		push(t, p, uint64(i), true)
		if c.Front() == nil {
			t.Fatal("no entry")
		}
		c.Advance()
	}
	for _, s := range []struct{ end, want uint64 }{{0, 0}, {2, 2}, {1, 2}, {2, 2}, {4, 2}, {1<<64 - 1, 2}, {3, 3}} {
		if c.ReleaseTo(s.end); released.Load() != s.want {
			t.Errorf("after ReleaseTo(%d): %d, want %d", s.end, released.Load(), s.want)
		}
	}
}
