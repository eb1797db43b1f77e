package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

// letter is the mail that the tests send.
type letter struct {
	link   atomic.Uint64
	sender atomic.Uint64
	number atomic.Uint64
	read   atomic.Uint64
}

const letterSize = 64

// letterIn returns the linkOf of the tests: mail is aligned to lines of the heap.
func letterIn(a *Arena) func(Offset) (*atomic.Uint64, error) {
	return func(off Offset) (*atomic.Uint64, error) {
		if off < a.geo.heap || off%letterSize != 0 {
			return nil, fmt.Errorf("no letter at %#x: %w", uint64(off), ErrDamaged)
		}
		l, err := At[letter](a, off)
		if err != nil {
			return nil, err
		}
		return &l.link, nil
	}
}

func newLetter(m *Member, number uint64) (Offset, *letter, error) {
	off, err := m.heap.Alloc(letterSize)
	if err != nil {
		return 0, nil, err
	}
	l, err := At[letter](m.Arena(), off)
	if err != nil {
		return 0, nil, err
	}
	l.sender.Store(uint64(m.ID()))
	l.number.Store(number)
	return off, l, nil
}

func TestInboxKeepsOrder(t *testing.T) {
	a := newArena(t, 0)
	m, from := join(t, a, NoRank), join(t, a, NoRank)
	if m.HasMail() {
		t.Error("a new inbox has mail")
	}
	if list, err := m.TakeMail(letterIn(a)); len(list) != 0 || err != nil {
		t.Errorf("an empty inbox holds %v, %v", list, err)
	}
	to := peerOf(t, from, m.ID())
	var sent []Offset
	for i := range uint64(5) {
		off, l, err := newLetter(from, i)
		if err != nil {
			t.Fatal(err)
		}
		m.WaitDoorbell().Arm()
		if err := to.SendMail(off, &l.link); err != nil {
			t.Fatal(err)
		}
		if m.WaitDoorbell().Armed() {
			t.Error("mail came without a ring")
		}
		sent = append(sent, off)
	}
	if !m.HasMail() {
		t.Error("no mail")
	}
	if list, err := m.TakeMail(letterIn(a)); !slices.Equal(list, sent) || err != nil {
		t.Errorf("collected %v, %v, sent %v", list, err, sent)
	}
	if m.HasMail() {
		t.Error("mail is still there")
	}
}

func TestMailToGoneMemberFails(t *testing.T) {
	a := newArena(t, 0)
	from, watcher := join(t, a, NoRank), join(t, a, NoRank)
	m := join(t, a, NoRank)
	to := peerOf(t, from, m.ID())
	off, l, err := newLetter(from, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Leave(); err != nil {
		t.Fatal(err)
	}
	if err := to.SendMail(off, &l.link); !errors.Is(err, errGone) {
		t.Errorf("send to one that has left: %v", err)
	}
	from.CheckLiveness(noDrop)
	watcher.CheckLiveness(noDrop)
	next := join(t, a, NoRank)
	if next.ID().Slot() != to.ID().Slot() {
		t.Fatalf("slot %d was not reused", to.ID().Slot())
	}
	if err := to.SendMail(off, &l.link); !errors.Is(err, errGone) || next.HasMail() {
		t.Errorf("the next owner of the record has got the mail (%v)", err)
	}
}

func TestInboxRefusesHostileLists(t *testing.T) {
	a := newArena(t, 0)
	m := join(t, a, NoRank)
	good, l, err := newLetter(m, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name  string
		head  Offset
		link  Offset
		found int
	}{
		{"a list that ends in itself", good, good, maxMail + 1},
		{"an odd offset", 12345, 0, 0},
		{"the header", 64, 0, 0},
		{"beyond the arena", 1 << 50, 0, 0},
		{"a good one before a bad one", good, 1<<64 - 64, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l.link.Store(uint64(tc.link))
			m.rec.inbox.Store(uint64(tc.head))
			list, err := m.TakeMail(letterIn(a))
			if !errors.Is(err, ErrDamaged) || len(list) != tc.found {
				t.Errorf("%d letters, error %v", len(list), err)
			}
			if m.HasMail() {
				t.Error("the list is still there")
			}
		})
	}
}

// lastLetter marks the number of a sender's last letter.
const lastLetter = 1 << 63

// correspond sends numbered letters from a pool, and reuses each after the receiver has read it. It
// ends when all are sent, or after the budget.
func correspond(m *Member, to *Peer, letters uint64, budget time.Duration) error {
	end := time.Now().Add(budget)
	type sheet struct {
		off Offset
		l   *letter
	}
	var pool []sheet
	for range 16 {
		off, l, err := newLetter(m, 0)
		if err != nil {
			return err
		}
		l.read.Store(1)
		pool = append(pool, sheet{off, l})
	}
	for i := uint64(1); i&lastLetter == 0; i++ {
		s := pool[i%uint64(len(pool))]
		for s.l.read.Load() == 0 {
			linux.Yield()
			runtime.Gosched()
		}
		if i == letters || time.Now().After(end) {
			i |= lastLetter
		}
		s.l.read.Store(0)
		s.l.number.Store(i)
		if err := to.SendMail(s.off, &s.l.link); err != nil {
			return err
		}
	}
	for _, s := range pool {
		for s.l.read.Load() == 0 {
			linux.Yield()
			runtime.Gosched()
		}
	}
	return nil
}

var roleCorrespondent = proctest.Role("correspondent", func(self *proctest.Self) error {
	var id MemberID
	var letters uint64
	if _, err := fmt.Sscan(self.Args[0], &id); err != nil {
		return err
	}
	if _, err := fmt.Sscan(self.Args[1], &letters); err != nil {
		return err
	}
	budget, err := time.ParseDuration(self.Args[2])
	if err != nil {
		return err
	}
	m, err := joinInherited(self, NoRank)
	if err != nil {
		return err
	}
	to, err := m.Arena().Peer(id)
	if err != nil {
		return err
	}
	if err := correspond(m, to, letters, budget); err != nil {
		return err
	}
	return m.Leave()
})

func TestInboxCarriesMailBetweenProcesses(t *testing.T) {
	a := newArena(t, 0)
	m := join(t, a, NoRank)
	letters, budget := uint64(20000), 3*time.Second // on a busy machine
	if testing.Short() || raceEnabled {
		letters = 3000
	}
	const processes, goroutines = 3, 2
	var children []*proctest.Process
	for range processes {
		children = append(children, proctest.StartWith(t, a.File(), roleCorrespondent, uint64(m.ID()), letters, budget.String()))
	}
	var done sync.WaitGroup
	for range goroutines {
		from := join(t, again(t, a), NoRank)
		done.Go(func() {
			if err := correspond(from, peerOf(t, from, m.ID()), letters, budget); err != nil {
				t.Error(err)
			}
		})
	}
	ctx := proctest.Context(t)
	last := map[uint64]uint64{}
	bell := m.WaitDoorbell()
	got, writing := uint64(0), processes+goroutines
	for writing > 0 {
		ticket := bell.Arm()
		if !m.HasMail() {
			bell.Sleep(ticket, proctest.Timeout/4)
			if ctx.Err() != nil {
				t.Fatalf("stuck after %d letters: %v", got, last)
			}
			continue
		}
		list, err := m.TakeMail(letterIn(a))
		if err != nil {
			t.Fatal(err)
		}
		for _, off := range list {
			l, err := At[letter](a, off)
			if err != nil {
				t.Fatal(err)
			}
			from, number := l.sender.Load(), l.number.Load()
			if number&lastLetter != 0 {
				number -= lastLetter
				writing--
			}
			if number != last[from]+1 {
				t.Fatalf("letter %d of %v comes after %d", number, MemberID(from), last[from])
			}
			last[from] = number
			l.read.Store(1)
			got++
		}
	}
	done.Wait()
	for _, c := range children {
		c.Wait()
	}
	if len(last) != processes+goroutines {
		t.Errorf("%d senders", len(last))
	}
	t.Logf("%d letters", got)
}

// A sender that dies has sent whole letters only.
func TestInboxHoldsWholeMailAfterKill(t *testing.T) {
	a := newArena(t, 0)
	m := join(t, a, NoRank)
	for round := range 3 {
		c := proctest.StartWith(t, a.File(), roleCorrespondent, uint64(m.ID()), "1000000000", "1h")
		last := uint64(0)
		read := func() {
			list, err := m.TakeMail(letterIn(a))
			if err != nil {
				t.Fatal(err)
			}
			for _, off := range list {
				l, err := At[letter](a, off)
				if err != nil {
					t.Fatal(err)
				}
				if n := l.number.Load(); n != last+1 {
					t.Fatalf("letter %d after %d", n, last)
				}
				last++
				l.read.Store(1)
			}
		}
		proctest.Eventually(t, "some letters arrive", func() bool { read(); return last > uint64(100*round) })
		c.Kill()
		dropped := false
		m.CheckLiveness(func(MemberID) { read(); dropped = true }) // the dead member's memory is not reclaimed yet
		if !dropped || m.HasMail() {
			t.Errorf("round %d: dropped %v, mail %v", round, dropped, m.HasMail())
		}
	}
}

func FuzzInbox(f *testing.F) {
	line := func(v uint64) []byte { return binary.NativeEndian.AppendUint64(nil, v) }
	heap := uint64(fakeArena(0).geo.heap)
	f.Add([]byte{}, uint64(0))
	f.Add(line(heap), heap)                                  // a list that links to itself
	f.Add(append(line(heap+64), make([]byte, 120)...), heap) // a loop of two
	f.Add(line(^uint64(0)), heap)
	f.Add(line(0), uint64(12))
	f.Fuzz(func(t *testing.T, mail []byte, head uint64) {
		a := fakeArena(0)
		m := fakeMember(a, 0, NoRank)
		copy(a.mem[a.geo.heap:], mail)
		m.rec.inbox.Store(head)
		list, err := m.TakeMail(letterIn(a))
		if err != nil && !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
		if len(list) > maxMail+1 || m.HasMail() {
			t.Fatalf("%d letters, mail left: %v", len(list), m.HasMail())
		}
		for _, off := range list {
			if _, err := letterIn(a)(off); err != nil {
				t.Fatal(err)
			}
		}
	})
}
