package shm

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/linux"
	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/internal/testkit/scale"
)

// Under every limit from 1 MiB to 2 GiB, an allocation either succeeds or fails with an error. After a success, its
// bytes can be written: a page that is not there would raise SIGBUS, which ends the role. With SOFTND_STRESS=1 all bytes are written.
// Without it, a process writes all bytes until it has written some 48 MiB, and then the first and the last of each allocation. The
// error says how much was wanted, how much there is, and which limit it was.

// sweepFill is how many bytes one process writes at most, apart from the first and last ones. With SOFTND_STRESS there is no limit.
var sweepFill = scale.Of[uint64](48<<20, math.MaxUint64)

// sweepSteps is how many allocations one process makes. A large one costs what it takes to clear its bytes.
var sweepSteps = scale.Of(80, 200)

// sweepHeld is how many bytes one process holds when it begins to free the oldest allocation after each.
const sweepHeld = 48 << 20

// sweepLimits are the limits that a process can have, by the name of the case.
var sweepLimits = map[string]func(bytes uint64) error{
	"arena size": func(uint64) error { return nil }, // the role asks for that size
	"file size":  func(n uint64) error { return unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: n, Max: n}) },
	"address space": func(n uint64) error { // in addition to what the Go runtime has and needs
		growRuntime()
		n += linux.AddressSpaceInUse() + 64<<20
		return unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: n, Max: n})
	},
	"locked memory": func(n uint64) error { // softnd locks no memory
		var l unix.Rlimit
		err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l)
		l.Cur = min(n, l.Max)
		return errors.Join(err, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &l))
	},
	"memory cgroup": func(uint64) error { return nil }, // the test has moved the process
}

// growRuntime starts threads and grows the heap. The Go runtime keeps both, and so needs no more address space later. It ends the
// process if it finds none, which happens if an arena takes all but a few bytes.
func growRuntime() {
	var ready, ended sync.WaitGroup
	stop := make(chan struct{})
	for range 16 {
		ready.Add(1)
		ended.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ready.Done()
			<-stop
		})
	}
	ready.Wait()
	close(stop)
	ended.Wait()
	runtime.KeepAlive(make([]byte, 64<<20))
}

// sweepArena is the size of a second arena under the larger limits, in addition to one of the default size.
const sweepArena = 1 << 30

var roleSweep = proctest.Role("limits", runSweep)

func runSweep(self *proctest.Self) error {
	kind := self.Args[0]
	limit, err := strconv.ParseUint(self.Args[1], 10, 64)
	if err != nil {
		return err
	}
	if _, err := self.Hear(); err != nil {
		return err
	}
	if err := sweepLimits[kind](limit); err != nil {
		return err
	}
	switch kind {
	case "arena size":
		return errors.Join(sweep(self, limit), sweepTooLarge(limit, limit))
	case "locked memory":
		return sweep(self, sweepArena/4)
	}
	err = errors.Join(sweep(self, 0), sweepTooLarge(limit, 0))
	if err == nil && limit >= sweepArena/2 {
		err = errors.Join(sweep(self, sweepArena), sweepTooLarge(limit, sweepArena))
	}
	return err
}

// sweepTooLarge creates an arena that is larger than the limit, if the limit applies to it.
func sweepTooLarge(limit, asked uint64) error {
	a, err := Create(Config{Size: max(asked, 4*limit)}) // twice would leave nothing at all of an address space of twice the limit
	if err == nil {
		return a.Close()
	}
	return checkShortage(err, 0)
}

// sweep creates an arena of the default size, or of asked bytes, and allocates.
func sweep(self *proctest.Self, asked uint64) error {
	a, err := Create(Config{Size: asked})
	if err != nil {
		self.Say("%v", err)
		return checkShortage(err, 0)
	}
	m, err := a.Join(NoRank)
	if err != nil {
		self.Say("%v", err)
		return errors.Join(checkShortage(err, 0), a.Close())
	}
	r := rand.New(rand.NewPCG(asked, 1))
	var held []Offset
	var written uint64
	said := "no allocation failed"
	for range sweepSteps {
		n := 1 + r.Uint64N(1<<(6+r.IntN(20)))
		if r.IntN(10) == 0 {
			n = a.geo.size * uint64(1+r.IntN(4)) / 2
			if r.IntN(2) == 0 { // more than any limit
				n += 1 << 40
			}
		}
		if off, err := m.Alloc(n); err != nil {
			said = err.Error()
			if err := checkShortage(err, n); err != nil {
				return err
			}
		} else if b, err := a.Bytes(off, n); err != nil {
			return err
		} else {
			if written < sweepFill && n < sweepFill-written {
				fill(b, byte(n))
			} else {
				b[0], b[n-1] = 1, 1
			}
			written += n
			held = append(held, off)
		}
		if len(held) > 0 && (r.IntN(4) == 0 || written > sweepHeld) {
			if err := m.Free(held[0]); err != nil {
				return err
			}
			held = held[1:]
		}
	}
	self.Say("%s", said)
	return errors.Join(m.Leave(), a.Close())
}

// checkShortage checks an error of an allocation of n bytes; 0 = it does not know how many.
func checkShortage(err error, n uint64) error {
	short, ok := errors.AsType[*NoMemoryError](err)
	switch {
	case !ok && strings.Contains(err.Error(), "arena size: want at least ") && strings.Contains(err.Error(), "(asked "):
		return nil // an arena of that size holds nothing
	case !ok:
		return fmt.Errorf("no NoMemoryError: %w", err)
	case short.Requested < n || short.Requested == 0 || short.Available >= short.Requested || short.Limit == "" || short.Hint == "":
		return fmt.Errorf("wanted %d, left %d, limit %q, hint %q: %w", short.Requested, short.Available, short.Limit, short.Hint, err)
	}
	return nil
}

func TestEveryLimit(t *testing.T) {
	tried, skipped := 0, make(map[string]int) // by reason
	skip := func(t *testing.T, format string, args ...any) {
		t.Helper()
		reason := fmt.Sprintf(format, args...)
		skipped[reason]++
		t.Skip(reason)
	}
	defer func() {
		t.Logf("%d limits tried", tried)
		for reason, n := range skipped {
			t.Logf("%d limits skipped: %s", n, reason)
		}
	}()
	for kind := range sweepLimits {
		for mib := uint64(1); mib <= 2048; mib *= 2 {
			t.Run(fmt.Sprintf("%s/%d MiB", kind, mib), func(t *testing.T) {
				if raceEnabled && kind != "arena size" && kind != "file size" {
					skip(t, "the race detector itself needs more memory")
				}
				if kind == "memory cgroup" && mib < 64 {
					skip(t, "a Go process itself needs more memory than a cgroup of less than 64 MiB has")
				}
				p := proctest.Start(t, proctest.Command(roleSweep, kind, strconv.FormatUint(mib<<20, 10)))
				if kind == "memory cgroup" {
					dir, _, err := ownCgroup(t, mib<<20)
					if err == nil {
						err = os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(p.PID())), 0)
					}
					if err != nil {
						skip(t, "no memory cgroup can be made here: %v", err)
					}
				}
				tried++
				p.Say("go")
				p.Wait()
				t.Log(p.Out.String())
			})
		}
	}
}
