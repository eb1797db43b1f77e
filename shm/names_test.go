package shm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/softnd/softnd/internal/testkit/proctest"
)

func addressOf(port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 77, 0, 1}), port)
}

func wantName(t *testing.T, m *Member, name string, port uint16) {
	t.Helper()
	if addr, err := m.LookupName(proctest.Context(t), name); err != nil || addr != addressOf(port) {
		t.Errorf("%q is %v, %v, want port %d", name, addr, err, port)
	}
}

func wantNoName(t *testing.T, m *Member, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if addr, err := m.LookupName(ctx, name); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%q is %v, %v, want none", name, addr, err)
	}
}

func TestNames(t *testing.T) {
	a := newArena(t, 0)
	m, n := join(t, a, NoRank), join(t, a, NoRank)
	publish := func(by *Member, name string, port uint16, want error) (withdraw func()) {
		t.Helper()
		withdraw, err := by.PublishName(name, addressOf(port))
		if !errors.Is(err, want) {
			t.Errorf("publish %q: %v, want %v", name, err, want)
		}
		return withdraw
	}
	longest := strings.Repeat("x", nameLength)
	wantNoName(t, m, "server")
	withdraw := publish(m, "server", 1, nil)
	publish(m, longest, 2, nil)
	publish(m, "server", 3, ErrTaken)
	publish(n, "server", 3, ErrTaken)
	publish(n, longest[1:], 3, nil)
	for _, by := range []*Member{m, n} {
		wantName(t, by, "server", 1)
		wantName(t, by, longest, 2)
		wantName(t, by, longest[1:], 3)
	}
	withdraw()
	wantNoName(t, m, "server")
	wantNoName(t, n, "server")
	publish(m, "server", 1, nil)() // in the same entry
	publish(n, "server", 4, nil)
	withdraw()
	wantName(t, m, "server", 4)
	for i := range namesPerMember - 2 {
		publish(n, fmt.Sprint("more-", i), 5, nil)
	}
	publish(n, "too-many", 5, ErrFull)
	wantNoName(t, n, "too-many")
	for _, name := range []string{"", longest + "x", "a b", "ä", "a\x00"} {
		publish(m, name, 1, errBadName)
		if _, err := m.LookupName(t.Context(), name); !errors.Is(err, errBadName) {
			t.Errorf("look up %q: %v", name, err)
		}
	}
	for _, addr := range []netip.AddrPort{{}, addressOf(0), netip.MustParseAddrPort("[::1]:5"), netip.MustParseAddrPort("0.0.0.0:5")} {
		if _, err := m.PublishName("other", addr); err == nil {
			t.Errorf("%v is published", addr)
		}
	}
}

// A LookupName that begins before the name is published finds it. A name ends with its member.
func TestNameOfOtherProcess(t *testing.T) {
	a := newArena(t, 0)
	m := join(t, a, NoRank)
	found := make(chan netip.AddrPort)
	go func() {
		addr, _ := m.LookupName(proctest.Context(t), "server")
		found <- addr
	}()
	for n, end := range map[uint16]func(*proctest.Process){
		7: func(p *proctest.Process) { p.Kill() },
		8: func(p *proctest.Process) { p.Say("stay"); p.Expect("left") },
	} {
		p, _ := startMember(t, a)
		p.Say(fmt.Sprint("publish ", n))
		p.Expect("published")
		if found != nil {
			if addr := <-found; addr != addressOf(n) {
				t.Errorf("found %v, want port %d", addr, n)
			}
			found = nil
		}
		wantName(t, m, "server", n)
		end(p)
		proctest.Eventually(t, "the name ends", func() bool { // when the kernel has unlocked the member
			m.names.Lock()
			defer m.names.Unlock()
			return m.find("server", nil) == 0
		})
	}
}

// A member that has left uses no names: a LookupName that waits ends, and the memory of the entries is left alone.
func TestNamesAfterLeave(t *testing.T) {
	a := newArena(t, 0)
	m, err := a.Join(NoRank)
	if err != nil {
		t.Fatal(err)
	}
	withdraw, err := m.PublishName("server", addressOf(1))
	if err != nil {
		t.Fatal(err)
	}
	waits := make(chan error)
	go func() {
		_, err := m.LookupName(proctest.Context(t), "other")
		waits <- err
	}()
	entries := m.published
	word := entries[0].address.Load()
	if err := m.Leave(); err != nil {
		t.Fatal(err)
	}
	if err := <-waits; !errors.Is(err, errClosed) {
		t.Errorf("a LookupName during Leave: %v", err)
	}
	if _, err := m.LookupName(proctest.Context(t), "server"); !errors.Is(err, errClosed) {
		t.Errorf("LookupName after Leave: %v", err)
	}
	if _, err := m.PublishName("other", addressOf(2)); !errors.Is(err, errClosed) {
		t.Errorf("PublishName after Leave: %v", err)
	}
	withdraw()
	if entries[0].address.Load() != word || entries[1].address.Load() != 0 {
		t.Error("calls after Leave have changed the entries")
	}
}

// Members publish, look up and withdraw few names at the same time. Only addresses that a name has been given are found.
func TestNamesRace(t *testing.T) {
	a := newArena(t, 0)
	var members sync.WaitGroup
	for i := range 4 {
		m := join(t, a, NoRank)
		members.Go(func() {
			for range 500 {
				k := rand.IntN(3)
				name := strings.Repeat(string(rune('a'+k)), 20*k+1)
				switch withdraw, err := m.PublishName(name, addressOf(uint16(10*(k+1)+i))); {
				case err == nil:
					withdraw()
				case !errors.Is(err, ErrTaken):
					t.Error(err)
				}
				m.names.Lock()
				if word := m.find(name, nil); word != 0 && int(publishedAddress(word).Port())/10 != k+1 {
					t.Errorf("%q is %v", name, publishedAddress(word))
				}
				m.names.Unlock()
			}
		})
	}
	members.Wait()
}

// A peer may store anything.
func TestDamagedNames(t *testing.T) {
	a := newArena(t, 0)
	m, n := join(t, a, NoRank), join(t, a, NoRank)
	off, err := n.Alloc(namesPerMember * nameEntrySize)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.PublishName("server", addressOf(1)); err != nil {
		t.Fatal(err)
	}
	mine := m.rec.names.Load()
	for _, lie := range []uint64{1, uint64(off) + 4, mine, uint64(testSize) - 8, uint64(testSize), 1 << 63, ^uint64(0)} {
		n.rec.names.Store(lie)
		wantName(t, m, "server", 1)
		wantNoName(t, m, "other")
	}
	b, err := a.Bytes(off, namesPerMember*nameEntrySize)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	n.rec.names.Store(uint64(off))
	wantName(t, m, "server", 1)
	wantNoName(t, m, "other")
	n.rec.names.Store(0)
}

// TestNameInFullArena: the first name of a member needs memory.
func TestNameInFullArena(t *testing.T) {
	a := newArena(t, 0)
	m := join(t, a, NoRank)
	for size := uint64(1 << 30); size >= 64; {
		if _, err := m.Alloc(size); err != nil {
			size /= 2
		}
	}
	if _, err := m.PublishName("server", addressOf(1)); err == nil || !strings.Contains(err.Error(), "--arena-size") {
		t.Errorf("publish in a full arena: %v, want the next step", err)
	}
	wantNoName(t, m, "server")
}
