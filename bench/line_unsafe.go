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
	pongAt    = lineBytes / 2 // far from ping: neither adjacent nor prefetched with it
	meetAt    = lineBytes / 4 // the first side's count of meetings; the second's is as far from pong
	stop      = ^uint64(0)
)

// Line is two words, each on a cache line of its own, in memory that two
// processes map. One process bounces, the other echoes; no other process may use it.
type Line struct {
	mem        mmap.MMap
	ping, pong *atomic.Uint64
	value      uint64

	met   [2]*atomic.Uint64 // how often each side has come to a meeting
	meets uint64
}

// NewLineFile makes the memory of a Line, to be handed to both processes. It
// has no name in any file system.
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

// MapLine maps the memory that NewLineFile made. The file may be closed
// afterwards.
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

// Bounce makes one round trip: a word to the other process and back.
func (l *Line) Bounce() {
	l.value++
	l.ping.Store(l.value)          // ORDER ping: pairs with the load in Echo
	for l.pong.Load() != l.value { // ORDER pong: pairs with the store in Echo
	}
}

// Stop ends the other process's Echo.
func (l *Line) Stop() { l.ping.Store(stop) } // ORDER ping: pairs with the load in Echo

// Restart takes Stop back, so that the other process's next Echo answers. Meet
// before and after.
func (l *Line) Restart() { l.ping.Store(l.value) } // ORDER ping: pairs with the load in Echo

// Meet returns when both processes have called it, one with side 0 and the
// other with side 1. A process that waits long yields its core.
func (l *Line) Meet(side int) {
	const eager = 1000
	l.meets++
	l.met[side].Store(l.meets)                                // ORDER meeting: pairs with the load below, in the other process
	for tries := 0; l.met[1-side].Load() < l.meets; tries++ { // ORDER meeting: pairs with the store above
		if tries > eager {
			time.Sleep(50 * time.Microsecond)
		} else {
			runtime.Gosched()
		}
	}
}

// Echo answers round trips until the other process calls Stop.
func (l *Line) Echo() {
	for seen := uint64(0); ; {
		switch v := l.ping.Load(); v { // ORDER ping: pairs with the stores in Bounce and Stop
		case seen:
		case stop:
			return
		default:
			seen = v
			l.pong.Store(v) // ORDER pong: pairs with the load in Bounce
		}
	}
}

// BounceYielding is Bounce for two processes that share a core: each yields the
// core to the other as long as it finds nothing. The other calls EchoYielding.
func (l *Line) BounceYielding() {
	l.value++
	l.ping.Store(l.value)          // ORDER ping: pairs with the load in EchoYielding
	for l.pong.Load() != l.value { // ORDER pong: pairs with the store in EchoYielding
		yield()
	}
}

// EchoYielding is Echo for two processes that share a core.
func (l *Line) EchoYielding() {
	for seen := uint64(0); ; {
		switch v := l.ping.Load(); v { // ORDER ping: pairs with the stores in BounceYielding and Stop
		case seen:
			yield()
		case stop:
			return
		default:
			seen = v
			l.pong.Store(v) // ORDER pong: pairs with the load in BounceYielding
		}
	}
}

// yield gives the core to another process that wants it. The Go runtime
// does not see the call, which does not block.
func yield() { unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// close unmaps the memory.
func (l *Line) close() error { return l.mem.Unmap() }
