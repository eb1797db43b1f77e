package ring

import (
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"golang.org/x/sys/unix"
)

const processSlots = 64

// sharedRing is the memory that the two processes of the test share.
type sharedRing struct {
	slots    [processSlots]Slot
	released atomic.Uint64
	_        [120]byte
	stop     atomic.Bool
}

func mapRing(fd uintptr) (*sharedRing, error) {
	mem, err := unix.Mmap(int(fd), 0, int(unsafe.Sizeof(sharedRing{})), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return (*sharedRing)(unsafe.Pointer(unsafe.SliceData(mem))), nil
}

// roleProducer publishes the number of entries in the argument, or fewer if the consumer says stop, and
// prints how many.
var roleProducer = proctest.Role("producer", func(s *proctest.Self) error {
	n, err := strconv.ParseUint(s.Args[0], 10, 64)
	if err != nil {
		return err
	}
	r, err := mapRing(s.File(0).Fd())
	if err != nil {
		return err
	}
	p, err := NewProducer(r.slots[:], &r.released, true)
	if err != nil {
		return err
	}
	for p.Published() < n && !r.stop.Load() {
		if !p.Push(wordsOf(p.Published())) {
			proctest.Yield()
		}
	}
	s.Say("%d", p.Published())
	return nil
})

func TestMain(m *testing.M) {
	proctest.Main()
	os.Exit(m.Run())
}

func TestRingPassesEntriesBetweenProcesses(t *testing.T) {
	entries := uint64(10_000_000)
	if testing.Short() || raceEnabled {
		entries = 200_000
	}
	fd, err := unix.MemfdCreate("ring", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "ring")
	defer f.Close()
	if err := f.Truncate(int64(unsafe.Sizeof(sharedRing{}))); err != nil {
		t.Fatal(err)
	}
	r, err := mapRing(f.Fd())
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewConsumer(r.slots[:], &r.released)
	if err != nil {
		t.Fatal(err)
	}
	producer := proctest.StartWith(t, f, roleProducer, entries)
	begun := time.Now()
	var w Words
	for i := uint64(0); i < entries; {
		if !peek(c, &w) {
			if r.stop.Load() {
				said := producer.Hear()
				if _, err := fmt.Sscan(said, &entries); err != nil {
					t.Fatalf("%q: %v", said, err)
				}
			}
			r.stop.Store(time.Since(begun) > 3*time.Second) // on a busy machine
			if time.Since(begun) > proctest.Timeout {
				t.Fatalf("stuck at entry %d", i)
			}
			proctest.Yield()
			continue
		}
		if w != *wordsOf(i) {
			t.Fatalf("entry %d holds %v", i, w)
		}
		c.Advance()
		if c.Unreleased() == processSlots/4 {
			c.Release()
		}
		if i++; i%(1<<14) == 0 {
			r.stop.Store(time.Since(begun) > 3*time.Second)
		}
	}
	producer.Wait()
	none(t, c)
	t.Logf("%d entries", entries)
}
