package shm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/testkit/proctest"
)

func TestArenaSizeRespectsLimits(t *testing.T) {
	total, ok := linux.TotalMemory()
	if !ok {
		t.Fatal("/proc/meminfo has no MemTotal")
	}
	if size, err := arenaSize(0); err == nil && (size%chunkSize != 0 || size > 1<<36 || size > max(total, 1<<28)+chunkSize) {
		t.Errorf("default size %d on a machine with %d bytes", size, total)
	}
	if size, err := arenaSize(testSize + 1); err != nil || size != testSize+chunkSize {
		t.Errorf("odd size is rounded to %d, %v", size, err)
	}
}

var roleFileSizeLimit = proctest.Role("limit file size", func(self *proctest.Self) error {
	const limit = 128 << 20
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
		return err
	}
	arena, err := Create(Config{Size: 256 << 20})
	short, ok := errors.AsType[*NoMemoryError](err)
	if !ok {
		return fmt.Errorf("create beyond the limit: %v, %v", arena, err)
	}
	if short.Requested != 256<<20 || short.Available != limit || !strings.Contains(short.Limit, "ulimit -f") {
		return fmt.Errorf("wanted %d, left %d, limit %q", short.Requested, short.Available, short.Limit)
	}
	// The default size stays within the limit.
	arena, err = Create(Config{})
	if err != nil {
		return err
	}
	if arena.geo.size > limit {
		return fmt.Errorf("size %d", arena.geo.size)
	}
	if err := arena.Close(); err != nil {
		return err
	}
	// The limit does not apply to an arena that another process created.
	m, err := joinInherited(self, NoRank)
	if err != nil {
		return err
	}
	off, err := m.heap.Alloc(1 << 20)
	if err != nil {
		return err
	}
	b, err := m.Arena().Bytes(off, 1<<20)
	if err != nil {
		return err
	}
	fill(b, 1)
	return m.Leave()
})

func TestFileSizeLimitIsReported(t *testing.T) {
	a := newArena(t, 0)
	proctest.StartWith(t, a.File(), roleFileSizeLimit).Wait()
}

var roleFileSizeLimitTiny = proctest.Role("limit file size, tiny", func(self *proctest.Self) error {
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}); err != nil {
		return err
	}
	arena, err := Create(Config{})
	if !isNoMemory(err) || !strings.Contains(err.Error(), "ulimit -f") {
		return fmt.Errorf("%v, %v", arena, err)
	}
	return nil
})

func TestFileSizeLimitTooSmallForArena(t *testing.T) {
	proctest.Start(t, proctest.Command(roleFileSizeLimitTiny)).Wait()
}

var roleAddressSpaceLimit = proctest.Role("limit address space", func(self *proctest.Self) error {
	const limit = 8 << 30
	if err := unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
		return err
	}
	if size, err := arenaSize(0); err != nil || size > limit/4 {
		return fmt.Errorf("default size %d, %v", size, err)
	}
	arena, err := Create(Config{Size: limit})
	if !isNoMemory(err) || !strings.Contains(err.Error(), "ulimit -v") {
		return fmt.Errorf("create beyond the limit: %v, %v", arena, err)
	}
	if err := checkArenaFull(0, limit/4, ", the part of the address space limit (ulimit -v) that arenas may take,", "raise the limit: ndinfo recommends a value"); err != nil {
		return err
	}
	if err := checkArenaFull(testSize, testSize, "", "start the job with a larger arena (ndrun --arena-size)"); err != nil {
		return err
	}
	// An mmap beyond the limit says what to change.
	small, err := Create(Config{Size: testSize})
	if err != nil {
		return err
	}
	_, err = mapWhole(small.File(), 2*limit)
	if err == nil || checkShortage(err, 2*limit) != nil || !strings.Contains(err.Error(), "the address space limit (ulimit -v)") {
		return fmt.Errorf("mmap beyond the limit: %w", err)
	}
	return small.Close()
})

// roleLittleAddressSpace has an arena of the default size under a limit of which a quarter is nearly all that the process has left. The Go
// runtime still finds room for its heap; else it would end the process.
var roleLittleAddressSpace = proctest.Role("little address space", func(self *proctest.Self) error {
	limit := keptAddressSpace + uint64(400<<20)
	if err := unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
		return err
	}
	arena, err := Create(Config{})
	if err != nil {
		return err
	}
	m, err := arena.Join(NoRank)
	if err != nil {
		return err
	}
	runtime.KeepAlive(make([]byte, 64<<20))
	self.Say("%d bytes", arena.geo.size)
	return errors.Join(m.Leave(), arena.Close())
})

func TestLittleAddressSpace(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector needs more address space than the limit leaves")
	}
	proctest.Start(t, proctest.Command(roleLittleAddressSpace)).Wait()
}

// checkArenaFull creates an arena of asked bytes, which has size bytes then, and checks the message of
// an allocation that is too large for it.
func checkArenaFull(asked, size uint64, limit, remedy string) error {
	total, _ := linux.TotalMemory()
	if asked == 0 && total < size {
		return nil // the machine's memory is the default, not the limit
	}
	arena, err := Create(Config{Size: asked})
	if err != nil {
		return err
	}
	m, err := arena.Join(NoRank)
	if err != nil {
		return err
	}
	_, err = m.Alloc(size)
	want := fmt.Sprintf("not enough under the arena's size of %d bytes%s for one contiguous range (asked %d bytes, have ", size, limit, size)
	if err == nil || !strings.Contains(err.Error(), want) || !strings.HasSuffix(err.Error(), "): free memory, or "+remedy) {
		return fmt.Errorf("message %w, want %q and %q", err, want, remedy)
	}
	return errors.Join(m.Leave(), arena.Close())
}

var roleDescriptorLimit = proctest.Role("limit descriptors", func(self *proctest.Self) error {
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: 1 << 10}); err != nil {
		return err
	}
	_, err := Create(Config{Size: testSize})
	if err == nil || err.Error() != "shm: create arena: memfd_create: too many open files: raise the limit of open files (ulimit -Hn)" {
		return fmt.Errorf("message: %w", err)
	}
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1 << 10, Max: 1 << 10})
})

func TestDescriptorLimitIsReported(t *testing.T) {
	proctest.Start(t, proctest.Command(roleDescriptorLimit)).Wait()
}

func TestDumpVariableIsChecked(t *testing.T) {
	t.Setenv(envDumpArena, "yes")
	if a, err := Create(Config{Size: testSize}); err == nil || !strings.HasSuffix(err.Error(), `SOFTND_DUMP_ARENA: invalid value "yes": want 0 or 1`) {
		t.Errorf("%v, %v", a, err)
	}
}

func TestAddressSpaceLimitIsReported(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector needs more address space than the limit leaves")
	}
	proctest.Start(t, proctest.Command(roleAddressSpaceLimit)).Wait()
}

// cgroupLimit is the limit of the test's memory cgroup, in bytes.
const cgroupLimit = 256 << 20

var cgroupSteps = []uint64{cgroupLimit + 1, 16 << 20, chunkSize}

var roleCgroup = proctest.Role("limit by cgroup", func(self *proctest.Self) error {
	if _, err := self.Hear(); err != nil { // until the test has moved this process into the cgroup
		return err
	}
	m, err := joinInherited(self, NoRank)
	if err != nil {
		return err
	}
	// First far too much at once, then small steps until one fails, then the last free bytes.
	for _, n := range cgroupSteps {
		for total := uint64(0); ; total += n {
			off, err := m.heap.Alloc(n)
			if short, ok := errors.AsType[*NoMemoryError](err); ok {
				if short.Requested != roundUp(n, chunkSize) || short.Available >= short.Requested || !strings.Contains(short.Limit, "cgroup's limit") {
					return fmt.Errorf("wanted %d, left %d under %q", short.Requested, short.Available, short.Limit)
				}
				self.Say("%v", err)
				break
			}
			if err != nil {
				return err
			}
			if total > cgroupLimit {
				return fmt.Errorf("%d bytes were allocated under a limit of %d", total, cgroupLimit)
			}
			b, err := m.Arena().Bytes(off, n)
			if err != nil {
				return err
			}
			fill(b, 1) // all pages are allocated
		}
	}
	// The margin for the process itself is still available.
	if !raceEnabled { // the race detector needs several times as much
		fill(make([]byte, cgroupLimit/32), 1)
	}
	return m.Leave()
})

// ownCgroup creates a memory cgroup with a limit in bytes below this process's, or returns why it cannot.
func ownCgroup(t *testing.T, bytes uint64) (dir string, limitFile string, err error) {
	err = errors.New("no memory controller")
	for _, parent := range linux.CgroupDirs("memory") {
		dir := filepath.Join(parent, fmt.Sprintf("softnd-shm-test-%d", os.Getpid()))
		if e := os.Mkdir(dir, 0o755); e != nil {
			err = e
			continue
		}
		t.Cleanup(func() { // the kernel removes ended processes with a delay
			proctest.Eventually(t, "the cgroup is empty and removed", func() bool { return unix.Rmdir(dir) == nil })
		})
		for _, limit := range []string{"memory.max", "memory.limit_in_bytes"} { // of versions 2 and 1
			if err = os.WriteFile(filepath.Join(dir, limit), []byte(fmt.Sprint(bytes)), 0); err == nil {
				return dir, limit, nil
			}
		}
	}
	return "", "", err
}

func TestMemoryCgroupLimitIsReported(t *testing.T) {
	dir, limit, err := ownCgroup(t, cgroupLimit)
	if err != nil {
		t.Skipf("no memory cgroup can be made here: %v", err)
	}
	a, err := Create(Config{Size: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	c := proctest.StartWith(t, a.File(), roleCgroup)
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(fmt.Sprint(c.PID())), 0); err != nil {
		c.Kill()
		t.Skipf("the cgroup %s takes no process: %v", dir, err)
	}
	c.Say("go")
	for range cgroupSteps {
		if said := c.Hear(); !strings.Contains(said, limit) || !strings.Contains(said, dir) {
			t.Errorf("the error does not name %s in %s: %s", limit, dir, said)
		}
	}
	c.Wait()
}

// To read the limits takes far more allocations than to reserve a page.
func TestReserveRarelyReadsLimits(t *testing.T) {
	if left, _ := linux.AvailableMemory(); left < 1<<30 {
		t.Skip("less than 1 GiB of memory is available, so the limits are read for each page")
	}
	a := newArena(t, 0)
	reserve := func() {
		if err := a.reserve(a.geo.heap, pageSize); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(250, reserve); n > 10 {
		t.Errorf("%v allocations for each page", n)
	}
}

func TestReserveReportsWholeRange(t *testing.T) {
	short := &NoMemoryError{Requested: 10, Available: 4}
	err := forWholeRange(100, short)
	if !isNoMemory(err) || short.Requested != 100 || short.Available != 94 {
		t.Errorf("%v", err)
	}
	if plain := errors.New("x"); forWholeRange(1, plain) != plain {
		t.Error("another error was changed")
	}
}
