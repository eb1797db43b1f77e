package shm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/goruntime"
	"github.com/softnd/softnd/internal/layout"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

func TestCreateRefusesBadConfigs(t *testing.T) {
	for _, tc := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"negative ranks", Config{Ranks: -1, Size: testSize}, "-1 ranks"},
		{"too many ranks", Config{Ranks: MaxRanks + 1, Size: testSize}, "1025 ranks"},
		{"negative host", Config{Host: -1, Size: testSize}, "host number -1"},
		{"too high a host", Config{Host: maxHost + 1, Size: testSize}, "host number 179"},
		{"too small", Config{Size: 1 << 20}, "at least"},
		{"too large", Config{Size: maxSize + 1}, "at most"},
		{"so large that rounding wraps", Config{Size: ^uint64(0)}, "at most"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, err := Create(tc.cfg)
			if err == nil {
				a.Close()
				t.Fatal("was accepted")
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %q does not contain %q", err, tc.want)
			}
		})
	}
}

func TestCreateGivesEachArenaAnIdentity(t *testing.T) {
	a, b := newArena(t, 0), newArena(t, 2)
	if a.id == b.id || a.secret == b.secret {
		t.Errorf("ids %x and %x, secrets %x and %x", a.id, b.id, a.secret, b.secret)
	}
	if a.Ranks() != 0 || b.Ranks() != 2 || a.geo.size != testSize {
		t.Errorf("ranks %d and %d, size %d", a.Ranks(), b.Ranks(), a.geo.size)
	}
	if err := unix.Ftruncate(int(a.File().Fd()), testSize/2); !errors.Is(err, unix.EPERM) {
		t.Errorf("shrinking the arena: %v", err)
	}
	if err := unix.Ftruncate(int(a.File().Fd()), testSize*2); !errors.Is(err, unix.EPERM) {
		t.Errorf("growing the arena: %v", err)
	}
	if _, err := unix.FcntlInt(a.File().Fd(), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE); !errors.Is(err, unix.EPERM) {
		t.Errorf("sealing the arena further: %v", err)
	}
}

func TestCreateReservesTablesOnly(t *testing.T) {
	a, err := Create(Config{Ranks: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if got := blocks(t, a); got > 16<<20 {
		t.Errorf("an arena of %d bytes takes %d bytes of memory when it is new", a.geo.size, got)
	}
}

func TestAttachSharesTheMemory(t *testing.T) {
	a := newArena(t, 5)
	b := again(t, a)
	if a.id != b.id || a.secret != b.secret || a.Ranks() != b.Ranks() || a.geo.size != b.geo.size {
		t.Errorf("attached %x %x %d %d", b.id, b.secret, b.Ranks(), b.geo.size)
	}
	m := join(t, a, 0)
	off, err := m.heap.Alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	ours, _ := a.Bytes(off, 100)
	theirs, _ := b.Bytes(off, 100)
	copy(ours, "hello")
	if string(theirs[:5]) != "hello" {
		t.Errorf("the other mapping reads %q", theirs[:5])
	}
}

func TestAttachRefusesOtherFiles(t *testing.T) {
	const sealed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	random := make([]byte, testSize>>8)
	rng := rand.NewChaCha8([32]byte{1})
	rng.Read(random)
	crafted := func(change func(*header)) []byte { return headerPage(testSize, change) }
	damaged := func(at int) []byte {
		page := crafted(nil)
		page[at] ^= 1
		return page
	}
	for _, tc := range []struct {
		name  string
		file  func(t *testing.T) *os.File
		want  error
		words string
	}{
		{"a pipe", func(t *testing.T) *os.File {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { r.Close(); w.Close() })
			return r
		}, errNotArena, "mode p"},
		{"a directory", func(t *testing.T) *os.File { return open(t, t.TempDir(), os.O_RDONLY) }, errNotArena, "mode d"},
		{"a device", func(t *testing.T) *os.File { return open(t, "/dev/null", os.O_RDWR) }, errNotArena, "mode D"},
		{"a file on disk", func(t *testing.T) *os.File {
			name := filepath.Join(t.TempDir(), "image")
			if err := os.WriteFile(name, make([]byte, 1<<20), 0o600); err != nil {
				t.Fatal(err)
			}
			return open(t, name, os.O_RDWR)
		}, errNotArena, "no seals"},
		{"an empty file", image(nil, 0, sealed), errNotArena, "0 bytes"},
		{"less than a header", image(crafted(nil), headerSize-1, sealed), errNotArena, "4095 bytes"},
		{"random bytes", image(random, int64(len(random)), sealed), errNotArena, "magic"},
		{"random bytes, no version", image(append(append([]byte{}, random[:8]...), make([]byte, 4088)...), headerSize, sealed), errNotArena, "magic"},
		{"not sealed", image(crafted(nil), testSize, 0), errUnsealed, "seals"},
		{"sealed against growing only", image(crafted(nil), testSize, unix.F_SEAL_GROW), errUnsealed, "seals 0x4"},
		{"shorter than its header says", image(crafted(nil), testSize-chunkSize, sealed), errTruncated, "100663296 bytes"},
		{"only a header", image(crafted(nil), headerSize, sealed), errTruncated, "has 4096"},
		{"longer than its header says", image(crafted(nil), testSize+chunkSize, sealed), ErrDamaged, "has"},
		{"of another version", image(crafted(func(h *header) { h.version.Store(layout.Version + 1); copy(h.build[:], "v7.8.9\a") }), testSize, sealed), ErrVersion,
			"the arena was made by softnd v7.8.9?, this program contains softnd " + goruntime.BuildName() + ": arena of another version (the arena's layout has version 3, this program's 2): build"},
		{"of another layout", image(crafted(func(h *header) { h.layout++ }), testSize, sealed), ErrVersion, "of an unnamed build, this program"},
		{"with a damaged checksum", image(damaged(64), testSize, sealed), ErrDamaged, "checksum"},
		{"with a damaged size", image(damaged(24), testSize, sealed), ErrDamaged, "checksum"},
		{"with a damaged secret", image(damaged(32), testSize, sealed), ErrDamaged, "checksum"},
		{"with a damaged rank count", image(damaged(12), testSize, sealed), ErrDamaged, "checksum"},
		{"with too many ranks", image(crafted(func(h *header) { h.ranks = MaxRanks + 1 }), testSize, sealed), ErrDamaged, "1025 ranks"},
		{"with very many ranks", image(crafted(func(h *header) { h.ranks = 1 << 31 }), testSize, sealed), ErrDamaged, "ranks"},
		{"with a damaged count of fault rules", image(damaged(136), testSize, sealed), ErrDamaged, "checksum"},
		{"with too many fault rules", image(crafted(func(h *header) { h.rules = maxFaultRules + 1 }), testSize, sealed), ErrDamaged, "129 fault rules"},
		{"with too high a host", image(crafted(func(h *header) { h.host = maxHost + 1 }), testSize, sealed), ErrDamaged, "host number 179"},
		{"too small for its tables", image(headerPage(chunkSize, nil), chunkSize, sealed), ErrDamaged, "tables"},
		{"not of whole chunks", image(headerPage(testSize+pageSize, nil), testSize+pageSize, sealed), ErrDamaged, "multiple"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, err := Attach(proctest.Context(t), tc.file(t))
			if err == nil {
				a.Close()
				t.Fatal("was accepted")
			}
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.words) {
				t.Errorf("error %q, want one that is %q and contains %q", err, tc.want, tc.words)
			}
		})
	}
	t.Run("sound", func(t *testing.T) {
		a, err := Attach(proctest.Context(t), image(crafted(nil), testSize, sealed)(t))
		if err != nil {
			t.Fatalf("the image that the others are variants of: %v", err)
		}
		a.Close()
	})
	t.Run("closed file", func(t *testing.T) {
		f := memfd(t, nil, headerSize, sealed)
		f.Close()
		if _, err := Attach(proctest.Context(t), f); !errors.Is(err, os.ErrClosed) {
			t.Errorf("error %v", err)
		}
	})
}

func image(content []byte, size int64, seals int) func(*testing.T) *os.File {
	return func(t *testing.T) *os.File { return memfd(t, content, size, seals) }
}

func open(t *testing.T, name string, flag int) *os.File {
	t.Helper()
	f, err := os.OpenFile(name, flag, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestAttachWaitsForTheCreator(t *testing.T) {
	page := headerPage(testSize, func(h *header) { h.version.Store(0) })
	for name, content := range map[string][]byte{"nothing written yet": nil, "all but the version": page} {
		t.Run(name, func(t *testing.T) {
			f := memfd(t, content, testSize, unix.F_SEAL_SHRINK)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			_, err := Attach(ctx, f)
			if !errors.Is(err, errNotReady) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("never ready: %v", err)
			}

			made := make(chan error, 1)
			go func() { // a creator that is late
				time.Sleep(5 * time.Millisecond)
				_, err := f.WriteAt(page, 0)
				version := binary.NativeEndian.AppendUint32(nil, layout.Version)
				_, err2 := f.WriteAt(version, 8)
				made <- errors.Join(err, err2)
			}()
			a, err := Attach(proctest.Context(t), f)
			if err != nil {
				t.Fatal(err)
			}
			a.Close()
			if err := <-made; err != nil {
				t.Fatal(err)
			}
		})
	}
}

var roleAttach = proctest.Role("attach", func(self *proctest.Self) error {
	m, err := joinInherited(self, NoRank)
	if err != nil {
		return err
	}
	arena := m.Arena()
	self.Say("%x %x %d %d", arena.id, arena.secret, arena.Ranks(), arena.geo.size)
	if _, err := self.Hear(); err != nil {
		return err
	}
	return errors.Join(m.Leave(), arena.Close())
})

func TestAttachUsesInheritedDescriptor(t *testing.T) {
	a := newArena(t, 7)
	m := join(t, a, 0)
	c := proctest.StartWith(t, a.File(), roleAttach)
	c.Expect(fmt.Sprintf("%x %x %d %d", a.id, a.secret, a.Ranks(), a.geo.size))
	if got := a.LiveMemberCount(); got != 2 {
		t.Errorf("%d live members", got)
	}
	c.Say("leave")
	c.Wait()
	if got := a.LiveMemberCount(); got != 1 || a.Deaths() != 1 {
		t.Errorf("%d live members and %d deaths after one has left", got, a.Deaths())
	}
	m.CheckLiveness(noDrop)
}

func TestCloseFailsWhileMembersRemain(t *testing.T) {
	a, err := Create(Config{Size: testSize})
	if err != nil {
		t.Fatal(err)
	}
	m, err := a.Join(NoRank)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err == nil || !strings.Contains(err.Error(), "1 of its members") {
		t.Fatalf("close with a member: %v", err)
	}
	if _, err := m.heap.Alloc(1); err != nil {
		t.Fatalf("the refused close has done something: %v", err)
	}
	if err := m.Leave(); err != nil {
		t.Fatal(err)
	}
	if err := m.Leave(); !errors.Is(err, errClosed) {
		t.Errorf("second leave: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); !errors.Is(err, errClosed) {
		t.Errorf("second close: %v", err)
	}
}

// A call that uses the arena's descriptor while the arena is being closed succeeds or fails with
// errClosed. The race detector checks that it never takes the number of a
// descriptor that is being closed.
func TestCallsRaceWithArenaClose(t *testing.T) {
	for name, call := range map[string]func(*Arena) error{
		"reserve": func(a *Arena) error { return a.reserve(a.geo.heap, PageSize) },
		"punch":   func(a *Arena) error { return a.punch(a.geo.heap, PageSize) },
		"locked":  func(a *Arena) error { return map[bool]error{true: errClosed}[a.locked(0)] }, // unknown counts as locked
		"map pages": func(a *Arena) error {
			_, unmap, err := a.MapPages([]Offset{a.geo.heap})
			if err == nil {
				err = unmap()
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := Create(Config{Size: testSize})
			if err != nil {
				t.Fatal(err)
			}
			if err := call(a); err != nil {
				t.Fatalf("before Close: %v", err)
			}
			called := make(chan error)
			go func() {
				var err error
				for called <- nil; err == nil; {
					err = call(a)
				}
				called <- err
			}()
			<-called
			if err := a.Close(); err != nil {
				t.Error(err)
			}
			if err := <-called; !errors.Is(err, errClosed) {
				t.Errorf("after Close: %v, want errClosed", err)
			}
		})
	}
}

func FuzzAttachHeader(f *testing.F) {
	f.Add([]byte{}, uint64(testSize), false)
	f.Add(headerPage(testSize, nil), uint64(testSize), false)
	f.Add(headerPage(testSize, nil), uint64(testSize), true)
	f.Add(headerPage(testSize, func(h *header) { h.version.Store(0) }), uint64(testSize), false)
	f.Add(headerPage(testSize, func(h *header) { h.ranks = MaxRanks + 1 }), uint64(testSize), true)
	f.Add(headerPage(chunkSize, nil), uint64(chunkSize), true)
	f.Add(headerPage(1<<41, nil), uint64(1<<41), true)
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // no process will finish this header
	f.Fuzz(func(t *testing.T, content []byte, fileSize uint64, honest bool) {
		page := make([]byte, headerSize)
		copy(page, content)
		h := (&Arena{mem: page}).header()
		if honest { // passes the first checks
			h.magic, h.layout = arenaMagic, layout.Hash()
			h.version.Store(layout.Version)
			h.checksum = h.constants().sum()
		}
		c, geo, err := readHeader(ctx, h, fileSize)
		if err != nil {
			for _, want := range []error{errNotArena, errNotReady, ErrVersion, errTruncated, ErrDamaged} {
				if errors.Is(err, want) {
					return
				}
			}
			t.Fatalf("an unexpected error: %v", err)
		}
		if geo.size != fileSize || c.ranks > MaxRanks || c.host > maxHost || geo.chunks == 0 || uint64(geo.heap)+geo.chunks*chunkSize != geo.size {
			t.Fatalf("accepted %+v with %+v for a file of %d bytes", c, geo, fileSize)
		}
		if fileSize > 1<<32 {
			return
		}
		// The same arena through a file.
		file := memfd(t, page, int64(fileSize), unix.F_SEAL_SHRINK)
		defer file.Close()
		a, err := Attach(ctx, file)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestFaultRulesAreInTheArena(t *testing.T) {
	for _, n := range []int{-1, maxFaultRules + 1} {
		if _, err := Create(Config{Size: testSize, FaultRules: n}); err == nil {
			t.Errorf("%d rules are accepted", n)
		}
	}
	reserved := func(rules int) (blocks int64) {
		a, err := Create(Config{Size: testSize, FaultRules: rules})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		b, err := Attach(t.Context(), a.File())
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		if i := b.Info(); i.FaultRuleCount != rules || i.FaultRules != b.geo.faultRules {
			t.Errorf("%d rules at %#x", i.FaultRuleCount, i.FaultRules)
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(a.File().Fd()), &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * 512
	}
	if without, with := reserved(0), reserved(maxFaultRules); with-without != maxFaultRules*faultRuleSize {
		t.Errorf("%d bytes are reserved for the rules", with-without)
	}
}
