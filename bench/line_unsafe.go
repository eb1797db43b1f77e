package bench

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/edsrzf/mmap-go"
	"golang.org/x/sys/unix"
)

const (
	lineBytes = 4096
	pongAt    = lineBytes / 2   // far from ping: neither adjacent nor prefetched with it
	meetAt    = lineBytes / 4   // side 0's count of meetings; side 1's is as far from pong
	meeting   = uint64(1) << 63 // in ping: side 0 has arrived at the meeting whose number follows
)

// Line is two words in memory that two processes map, each on a cache line of its own. Side 0 bounces a number, and side 1
// echoes it. No other process may use the memory.
type Line struct {
	mem        mmap.MMap
	ping, pong *atomic.Uint64
	value      uint64 // of the last round trip

	met   [2]*atomic.Uint64 // number of meetings at which each side has arrived
	meets uint64            // the same of this side
}

// NewLineFile creates the memory of a Line, which both processes map. It has no name in any file system.
func NewLineFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("softnd-line", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("bench: memory for a line: %w", err)
	}
	f := os.NewFile(uintptr(fd), "softnd-line")
	if err := f.Truncate(lineBytes); err != nil {
		f.Close()
		return nil, fmt.Errorf("bench: memory for a line: %w", err)
	}
	return f, nil
}

// MapLine maps the memory that NewLineFile has created. The caller may then close the file.
func MapLine(f *os.File) (*Line, error) {
	mem, err := mmap.MapRegion(f, lineBytes, mmap.RDWR, 0, 0)
	if err != nil {
		return nil, fmt.Errorf("bench: map a line: %w", err)
	}
	return &Line{
		mem:  mem,
		ping: (*atomic.Uint64)(unsafe.Pointer(&mem[0])),
		pong: (*atomic.Uint64)(unsafe.Pointer(&mem[pongAt])),
		met: [2]*atomic.Uint64{
			(*atomic.Uint64)(unsafe.Pointer(&mem[meetAt])),
			(*atomic.Uint64)(unsafe.Pointer(&mem[pongAt+meetAt])),
		},
	}, nil
}

// Bounce makes one round trip: a number to the other process and back.
func (l *Line) Bounce() {
	l.value++
	l.ping.Store(l.value)          // ORDER ping: pairs with the load in Echo
	for l.pong.Load() != l.value { // ORDER pong: pairs with the store in Echo
	}
}

// BounceYielding is Bounce for two processes that share a core: while it waits, it yields the core to the other process.
func (l *Line) BounceYielding() {
	l.value++
	l.ping.Store(l.value)          // ORDER ping: pairs with the load in echoYielding
	for l.pong.Load() != l.value { // ORDER pong: pairs with the store in echoYielding
		yield()
	}
}

// Echo answers the round trips of side 0 until side 0 calls Meet. If yielding is set, it yields its core while there is
// nothing to answer.
func (l *Line) Echo(yielding bool) {
	if yielding {
		l.echoYielding()
		return
	}
	seen, end := meeting|l.meets, meeting|(l.meets+1)
	for {
		switch v := l.ping.Load(); v { // ORDER ping: pairs with the stores in Bounce and Meet
		case seen:
		case end:
			return
		default:
			seen = v
			l.pong.Store(v) // ORDER pong: pairs with the load in Bounce
		}
	}
}

// echoYielding is Echo with yielding set. It is a loop of its own, because any other check between two loads changes the time
// of a round trip by some percent.
func (l *Line) echoYielding() {
	seen, end := meeting|l.meets, meeting|(l.meets+1)
	for {
		switch v := l.ping.Load(); v { // ORDER ping: pairs with the stores in BounceYielding and Meet
		case seen:
			yield()
		case end:
			return
		default:
			seen = v
			l.pong.Store(v) // ORDER pong: pairs with the load in BounceYielding
		}
	}
}

// Meet blocks until both processes have called it, one as side 0 and the other as side 1. On side 0, it also ends the
// other's Echo. A process that waits for long sleeps between its checks.
func (l *Line) Meet(side int) {
	const eager = 1000
	l.meets++
	if side == 0 {
		l.ping.Store(meeting | l.meets) // ORDER ping: pairs with the loads in Echo and echoYielding
	}
	l.met[side].Store(l.meets)                                // ORDER meeting: pairs with the load below, in the other process
	for tries := 0; l.met[1-side].Load() < l.meets; tries++ { // ORDER meeting: pairs with the store above
		if tries > eager {
			time.Sleep(50 * time.Microsecond)
		} else {
			runtime.Gosched()
		}
	}
}

// yield gives the core to another process that can run. The call does not block, so the Go runtime need not know of it.
func yield() { unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
