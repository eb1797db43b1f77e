package softnd

import (
	"math"
	"runtime/metrics"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/linux"
)

// ballastSize is the size of an allocation that is never used, in bytes. The garbage collector runs
// when the heap has grown by its own size. With a small heap that is after every few megabytes: next
// to a goroutine that allocates 1 GB/s, hundreds of times a second. Each collection stops the
// goroutines that poll. With the ballast, at least ballastSize bytes are allocated between two
// collections. Ballast and a small heap fit into the address space that the runtime maps first.
const ballastSize = 32 << 20

// newBallast returns memory whose pages are never touched, so it needs no memory of the machine. It
// returns nil in three cases:
//
//   - the user has tuned the collector (GOGC, GOMEMLIMIT, package debug);
//   - a limit on the address space or data of the process is set, where a larger heap could be fatal;
//   - the machine has too little memory for that much garbage in each rank.
func newBallast(ranks int) *strings.Builder {
	tuned := []metrics.Sample{{Name: "/gc/gogc:percent"}, {Name: "/gc/gomemlimit:bytes"}}
	metrics.Read(tuned)
	if tuned[0].Value.Uint64() != 100 || tuned[1].Value.Uint64() != math.MaxInt64 {
		return nil
	}
	for _, resource := range []int{unix.RLIMIT_AS, unix.RLIMIT_DATA} {
		var l unix.Rlimit
		if unix.Getrlimit(resource, &l) != nil || l.Cur != unix.RLIM_INFINITY {
			return nil
		}
	}
	const share = 8 // the ballasts of all ranks may be an eighth of the memory available
	if left, _ := linux.AvailableMemory(); left/share < uint64(ranks)*ballastSize {
		return nil
	}
	ballast := new(strings.Builder) // unlike make, it does not clear memory
	ballast.Grow(ballastSize)
	return ballast
}
