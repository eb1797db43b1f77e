package softnd

import (
	"math"
	"runtime/metrics"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/shm"
)

// ballastSize is how much idle memory a rank shows the garbage collector. It goes by the
// size of the heap: a program with little in it is collected after every few megabytes, which
// beside a goroutine that allocates 1 GB/s is hundreds of times a second, and every
// collection stops who polls. With the ballast it is collected after that many bytes.
// Together with a small heap it fits into the address space that the runtime maps at first.
const ballastSize = 32 << 20

// newBallast returns memory that nobody touches, so that it takes none of the machine's.
// It returns nil, and leaves the collector alone, if the user has tuned it (GOGC, GOMEMLIMIT,
// package debug), if the process may not map what it likes, where more than there is for it
// would be fatal, or if the machine has no memory for that much garbage in each rank.
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
	const share = 8 // of the memory that is left, at most the eighth part
	if left, _ := shm.AvailableMemory(); left/share < uint64(ranks)*ballastSize {
		return nil
	}
	ballast := new(strings.Builder) // which, unlike make, clears no memory that has been used before
	ballast.Grow(ballastSize)
	return ballast
}
