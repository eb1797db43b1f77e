package checkjournal

import (
	"errors"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/nd/ndcheck"
)

// twice returns the locks of two openings of one journal, which exclude each other as two processes do.
func twice(t *testing.T) (first, second *lock) {
	t.Helper()
	file, err := Create()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	open := func() *lock {
		again, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(int(file.Fd())), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { again.Close() })
		return &lock{file: again}
	}
	return open(), open()
}

func TestLockIsExclusiveAndBounded(t *testing.T) {
	a, b := twice(t)
	if !a.Lock() {
		t.Fatal("the free lock was not taken")
	}
	begin := time.Now()
	if b.Lock() {
		t.Fatal("two processes have the lock")
	}
	if d := time.Since(begin); d < lockTimeout/2 || d > 20*lockTimeout {
		t.Errorf("gave up after %v", d)
	}
	begin = time.Now()
	for range 100 {
		b.Lock()
	}
	if d := time.Since(begin); d > 20*lockTimeout {
		t.Errorf("100 further attempts took %v: each has waited", d)
	}
	a.Unlock()
	if !b.Lock() {
		t.Error("the lock is free again, and was not taken")
	}
	b.Unlock()
}

func TestPresenceEndsWithTheFile(t *testing.T) {
	a, b := twice(t)
	a.Enter(3)
	if !b.IsPresent(3) || b.IsPresent(4) || b.IsPresent(-1) {
		t.Error("want rank 3 only")
	}
	if !b.Lock() {
		t.Error("the mark of a rank is not the lock")
	}
	b.Unlock()
	a.file.Close() // as the kernel does when the process dies
	if b.IsPresent(3) {
		t.Error("rank 3 is still present")
	}
}

// addressed is a provider with an address only.
type addressed struct{ nd.Provider }

func (addressed) QueryAddressList() ([]netip.Addr, error) {
	return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}, nil
}

// A process that joins the job again opens the journal again. The mark of its rank is that of the first time, and stays.
func TestPresenceOfAProcessThatJoinsAgain(t *testing.T) {
	file, err := Create()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for range 2 {
		j, err := Open(int(file.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		ndcheck.Wrap(addressed{}, ndcheck.Options{Rank: 3, Journal: j}).End()
	}
	other, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(int(file.Fd())), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for range 10 {
		runtime.GC() // closes files that nothing refers to
		time.Sleep(time.Millisecond)
		if !(&lock{file: other}).IsPresent(3) {
			t.Fatal("rank 3 is not present")
		}
	}
}

func TestOpen(t *testing.T) {
	file, err := Create()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for range 2 {
		if _, err := Open(int(file.Fd())); err != nil {
			t.Error(err)
		}
	}
	if err := unix.Ftruncate(int(file.Fd()), 0); err == nil {
		t.Error("a process can shrink the journal, and so kill the others")
	}
	other, err := os.Create(t.TempDir() + "/other")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.Truncate(ndcheck.JournalSize); err != nil {
		t.Fatal(err)
	}
	for _, fd := range []int{int(other.Fd()), 9999} {
		if _, err := Open(fd); !errors.Is(err, ErrNone) {
			t.Errorf("descriptor %d: %v", fd, err)
		}
	}
}
