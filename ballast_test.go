package softnd

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/linux"
)

// untuned gives a test the collector as the runtime starts it, whatever the environment says.
func untuned(t *testing.T) {
	percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(math.MaxInt64)
	t.Cleanup(func() { debug.SetGCPercent(percent); debug.SetMemoryLimit(limit) })
}

var litter []byte // global, so that the compiler allocates each value on the heap

// collections counts them while so many bytes of garbage are made.
func collections(bytes int) uint32 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for made := 0; made < bytes; made += len(litter) {
		litter = make([]byte, 16<<10)
	}
	runtime.ReadMemStats(&after)
	return after.NumGC - before.NumGC
}

func TestBallastDelaysCollections(t *testing.T) {
	untuned(t)
	if left, _ := linux.AvailableMemory(); left < 1<<30 {
		t.Skipf("%d bytes of memory are left here, too few for a ballast", left)
	}
	const garbage = 512 << 20
	without := collections(garbage)
	var start, end unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &start); err != nil {
		t.Fatal(err)
	}
	ballast := newBallast(1)
	if err := unix.Getrusage(unix.RUSAGE_SELF, &end); err != nil {
		t.Fatal(err)
	}
	if ballast == nil || ballast.Cap() < ballastSize {
		t.Fatalf("no ballast, or not enough: %v", ballast)
	}
	if pages := int(end.Minflt-start.Minflt) * os.Getpagesize(); pages > ballastSize/8 {
		t.Errorf("%d bytes of it were touched", pages)
	}
	const few = 2 * garbage / ballastSize
	with := collections(garbage)
	delayed := func() bool { return with <= few && (without <= few || without >= 2*with) } // without it there are few, too, if the heap is large
	for range 4 {                                                                          // goroutines that other tests have left may collect, too
		if !delayed() {
			with = min(with, collections(garbage))
		}
	}
	if runtime.KeepAlive(ballast); !delayed() {
		t.Errorf("%d collections with it, %d without", with, without)
	}
}

func TestBallastNeedsUntunedCollectorAndFreeMemory(t *testing.T) {
	var space unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &space); err != nil {
		t.Fatal(err)
	}
	for name, tune := range map[string]func() (ranks int){
		"percentage": func() int { debug.SetGCPercent(50); return 1 },
		"off":        func() int { debug.SetGCPercent(-1); return 1 },
		"limit":      func() int { debug.SetMemoryLimit(1 << 40); return 1 },
		"many ranks": func() int { return 1 << 20 },
		"space": func() int {
			if err := unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: 1 << 45, Max: space.Max}); err != nil {
				t.Fatal(err)
			}
			return 1
		},
	} {
		t.Run(name, func(t *testing.T) {
			untuned(t)
			defer unix.Setrlimit(unix.RLIMIT_AS, &space)
			if newBallast(tune()) != nil {
				t.Error("there is ballast")
			}
		})
	}
}
