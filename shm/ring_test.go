package shm

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/proctest"
	"github.com/softnd/softnd/internal/sched"
)

// fakeRing returns both sides of a ring of n slots in the test's memory.
func fakeRing(t testing.TB, n uint64) (*Producer, *Consumer, *atomic.Uint64) {
	t.Helper()
	a := fakeArena(0)
	head := new(atomic.Uint64)
	p, err := a.NewProducer(a.geo.heap, n, head)
	if err != nil {
		t.Fatal(err)
	}
	c, err := a.NewConsumer(a.geo.heap, n, head)
	if err != nil {
		t.Fatal(err)
	}
	return p, c, head
}

func slotOf(v uint64) *Payload {
	var s Payload
	for i := range s {
		s[i] = v*uint64(i+1) + uint64(i)
	}
	return &s
}

func push(t *testing.T, p *Producer, v uint64, want bool) {
	t.Helper()
	next := p.Published()
	i, ok := p.Push(slotOf(v))
	if ok != want || ok && i != next {
		t.Fatalf("push of %d: message %d, %v, want %d, %v", v, i, ok, next, want)
	}
}

func pop(t *testing.T, c *Consumer, v uint64) {
	t.Helper()
	var s Payload
	if !c.Peek(&s) {
		t.Fatalf("message %d is not there", v)
	}
	if s != *slotOf(v) {
		t.Fatalf("message %d holds %v", v, s)
	}
	next := c.NextIndex()
	if i := c.Advance(); i != next {
		t.Fatalf("consumed message %d, want %d", i, next)
	}
}

func none(t *testing.T, c *Consumer) {
	t.Helper()
	s := *slotOf(77)
	if c.Peek(&s) {
		t.Fatalf("message %d is there: %v", c.NextIndex(), s)
	}
	if s != *slotOf(77) {
		t.Fatal("a peek at nothing has changed the caller's slot")
	}
}

func TestRingFollowsScenarios(t *testing.T) {
	t.Run("empty", func(t *testing.T) {
		p, c, _ := fakeRing(t, 4)
		none(t, c)
		if p.FreeSlots() != 4 || p.Published() != 0 || p.LoadReleased() != 0 || c.Unreleased() != 0 {
			t.Errorf("room %d, pushed %d, consumed %d", p.FreeSlots(), p.Published(), p.LoadReleased())
		}
	})
	t.Run("full", func(t *testing.T) {
		p, c, _ := fakeRing(t, 4)
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
		p, c, _ := fakeRing(t, 1)
		for i := range uint64(5) {
			push(t, p, i, true)
			push(t, p, i, false)
			pop(t, c, i)
			none(t, c)
			c.Release()
		}
	})
	t.Run("wrap", func(t *testing.T) {
		p, c, _ := fakeRing(t, 8)
		in, out := uint64(0), uint64(0)
		for round := range 50 {
			for range round%8 + 1 {
				if _, ok := p.Push(slotOf(in)); ok {
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
		p, c, _ := fakeRing(t, 2)
		push(t, p, 9, true)
		for range 3 {
			if s := (Payload{}); !c.Peek(&s) || s != *slotOf(9) || c.NextIndex() != 0 {
				t.Fatalf("peek: %v, next %d", s, c.NextIndex())
			}
		}
	})
	t.Run("release in batches", func(t *testing.T) {
		p, c, head := fakeRing(t, 4)
		for i := range uint64(4) {
			push(t, p, i, true)
		}
		for i := range uint64(3) {
			pop(t, c, i)
			if c.Unreleased() != i+1 || head.Load() != 0 {
				t.Errorf("unreleased %d, head %d", c.Unreleased(), head.Load())
			}
		}
		c.Release()
		if c.Unreleased() != 0 || head.Load() != 3 || p.LoadReleased() != 3 || p.FreeSlots() != 3 {
			t.Errorf("unreleased %d, head %d, consumed %d, room %d", c.Unreleased(), head.Load(), p.LoadReleased(), p.FreeSlots())
		}
	})
	t.Run("a consumer that lies about its head", func(t *testing.T) {
		p, _, head := fakeRing(t, 4)
		for i := range uint64(3) {
			push(t, p, i, true)
		}
		head.Store(2)
		if p.LoadReleased() != 2 {
			t.Fatalf("consumed %d", p.LoadReleased())
		}
		for _, lie := range []uint64{4, 1, 0, 1 << 63, ^uint64(0), 2 + 1<<32} {
			head.Store(lie)
			if got := p.LoadReleased(); got != 2 {
				t.Errorf("head %d is believed: consumed %d", lie, got)
			}
			if got := p.FreeSlots(); got != 3 {
				t.Errorf("head %d: room %d", lie, got)
			}
		}
		for range 3 {
			push(t, p, 5, true)
		}
		push(t, p, 5, false)
	})
	t.Run("a scribbled head does not confuse the consumer", func(t *testing.T) {
		p, c, head := fakeRing(t, 4)
		push(t, p, 0, true)
		pop(t, c, 0)
		c.Release()
		head.Store(1 << 40)
		if c.Unreleased() != 0 || c.NextIndex() != 1 {
			t.Errorf("unreleased %d, next %d", c.Unreleased(), c.NextIndex())
		}
		c.Release()
		if head.Load() != 1 {
			t.Errorf("head %d", head.Load())
		}
	})
	t.Run("garbage sequence numbers", func(t *testing.T) {
		p, c, _ := fakeRing(t, 4)
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
		p, c, _ := fakeRing(t, 2)
		push(t, p, 1, true)
		var s Payload
		if !c.Peek(&s) {
			t.Fatal("nothing there")
		}
		c.slots[0].data = *slotOf(99)
		if s != *slotOf(1) {
			t.Error("the copied entry has changed")
		}
	})
	t.Run("counters that wrap", func(t *testing.T) {
		p, c, head := fakeRing(t, 4)
		const near = ^uint64(0) - 5 // a ring would reach it after thousands of years
		p.next, p.released, c.released = near, near, near
		c.next.Store(near)
		head.Store(near)
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

func TestRingsAreChecked(t *testing.T) {
	a := fakeArena(0)
	head := new(atomic.Uint64)
	heap := a.geo.heap
	for _, tc := range []struct {
		name string
		off  Offset
		n    uint64
	}{
		{"no slots", heap, 0},
		{"three slots", heap, 3},
		{"too many slots", heap, 2 * maxSlots},
		{"so many that the size wraps", heap, 1 << 58},
		{"not on a line", heap + 8, 4},
		{"odd", heap + 1, 4},
		{"beyond the end", Offset(a.geo.size), 4},
		{"over the end", Offset(a.geo.size) - 64, 2},
		{"far away", 1<<64 - 64, 1},
	} {
		if p, err := a.NewProducer(tc.off, tc.n, head); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v, %v", tc.name, p, err)
		}
		if c, err := a.NewConsumer(tc.off, tc.n, head); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v, %v", tc.name, c, err)
		}
	}
	if c, err := a.NewConsumer(Offset(a.geo.size)-4*SlotSize, 4, head); err != nil || c.Size() != 4 {
		t.Errorf("the last four lines: %v", err)
	}
}

const stressSlots = 64

// stressRing is the shared structure of the two processes in the stress test.
type stressRing struct {
	_    [stressSlots]slotWords
	head atomic.Uint64
	stop atomic.Bool
}

var roleProducer = proctest.Role("producer", func(self *proctest.Self) error {
	var off Offset
	var messages uint64
	if _, err := fmt.Sscan(self.Args[0], &off); err != nil {
		return err
	}
	if _, err := fmt.Sscan(self.Args[1], &messages); err != nil {
		return err
	}
	m, err := joinInherited(self, NoRank)
	if err != nil {
		return err
	}
	r, err := At[stressRing](m.Arena(), off)
	if err != nil {
		return err
	}
	p, err := m.Arena().NewProducer(off, stressSlots, &r.head)
	if err != nil {
		return err
	}
	for p.Published() < messages && !r.stop.Load() {
		if _, ok := p.Push(slotOf(p.Published())); !ok {
			sched.Yield()
		}
	}
	self.Say("%d", p.Published())
	return m.Leave()
})

// In private memory the race detector checks that an entry is complete when it is published, and that a
// slot is released after it was read.
func TestRingPassesEntriesBetweenGoroutines(t *testing.T) {
	p, c, _ := fakeRing(t, 8)
	const messages = 20_000
	var done sync.WaitGroup
	done.Go(func() {
		for i := uint64(0); i < messages; {
			if _, ok := p.Push(slotOf(i)); ok {
				i++
			} else {
				runtime.Gosched()
			}
		}
	})
	var s Payload
	for i := uint64(0); i < messages; {
		if !c.Peek(&s) {
			runtime.Gosched()
			continue
		}
		if s != *slotOf(i) {
			t.Fatalf("message %d holds %v", i, s)
		}
		c.Advance()
		if i%4 == 3 {
			c.Release()
		}
		i++
	}
	done.Wait()
}

func TestRingPassesEntriesBetweenProcesses(t *testing.T) {
	messages := uint64(10_000_000)
	if testing.Short() || raceEnabled {
		messages = 200_000
	}
	a := newArena(t, 0)
	m := join(t, a, NoRank)
	off, err := m.heap.Alloc(uint64(stressSlots*SlotSize + 2*64))
	if err != nil {
		t.Fatal(err)
	}
	r, err := At[stressRing](a, off)
	if err != nil {
		t.Fatal(err)
	}
	c, err := a.NewConsumer(off, stressSlots, &r.head)
	if err != nil {
		t.Fatal(err)
	}
	child := start(t, a, roleProducer, uint64(off), messages)
	ctx := proctest.Context(t)
	enough := time.Now().Add(3 * time.Second) // on a busy machine
	var s Payload
	for i := uint64(0); i < messages; {
		if !c.Peek(&s) {
			if r.stop.Load() {
				said := child.Hear()
				if _, err := fmt.Sscan(said, &messages); err != nil {
					t.Fatalf("%q: %v", said, err)
				}
			}
			r.stop.Store(time.Now().After(enough))
			sched.Yield()
			runtime.Gosched()
			if ctx.Err() != nil {
				t.Fatalf("stuck at message %d", i)
			}
			continue
		}
		if s != *slotOf(i) {
			t.Fatalf("message %d holds %v", i, s)
		}
		c.Advance()
		if c.Unreleased() == stressSlots/4 {
			c.Release()
		}
		if i++; i%(1<<14) == 0 {
			r.stop.Store(time.Now().After(enough))
		}
	}
	child.Wait()
	none(t, c)
	t.Logf("%d messages", messages)
}

func FuzzRing(f *testing.F) {
	f.Add([]byte{}, uint64(0), uint64(4), []byte{0, 1, 2, 3})
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0}, uint64(1), uint64(1), []byte{1, 1, 1, 0, 0})
	f.Add(slices.Repeat([]byte{0xff}, 4*SlotSize), ^uint64(0), uint64(4), []byte{0, 0, 0, 0, 0, 1, 2, 1, 2})
	f.Add([]byte{2, 0, 0, 0, 0, 0, 0, 0}, uint64(3), uint64(2), []byte{0, 3, 0, 3, 0, 3})
	f.Fuzz(func(t *testing.T, slots []byte, lie, n uint64, script []byte) {
		a := fakeArena(0)
		head := new(atomic.Uint64)
		p, err := a.NewProducer(a.geo.heap, n, head)
		if err != nil {
			return
		}
		c, err := a.NewConsumer(a.geo.heap, n, head)
		if err != nil {
			t.Fatal(err)
		}
		copy(a.mem[a.geo.heap:][:n*SlotSize], slots)
		consumed, peeked := uint64(0), uint64(0)
		for _, step := range script[:min(len(script), 200)] {
			var s Payload
			switch step % 6 {
			case 0:
				room := p.FreeSlots()
				if _, ok := p.Push(slotOf(uint64(step))); ok != (room > 0) {
					t.Fatalf("room %d, push %v", room, ok)
				}
			case 1:
				if c.Peek(&s) {
					c.Advance()
					peeked++
				}
			case 2:
				c.Release()
			case 3:
				head.Store(lie)
			case 4:
				head.Store(p.Published() + uint64(int8(step)))
			case 5:
				copy(a.mem[a.geo.heap:][:n*SlotSize], slots)
			}
			now := p.LoadReleased()
			if now < consumed || now > p.Published() || p.Published()-now > n || p.FreeSlots() > n || p.FreeSlots() == 0 && p.Published()-now < n {
				t.Fatalf("of %d slots: pushed %d, consumed %d, room %d", n, p.Published(), now, p.FreeSlots())
			}
			consumed = now
			if c.NextIndex() != peeked || c.Unreleased() > peeked {
				t.Fatalf("consumer is at %d with %d unreleased, peeked %d", c.NextIndex(), c.Unreleased(), peeked)
			}
		}
	})
}
