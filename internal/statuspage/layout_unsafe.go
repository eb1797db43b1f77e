package statuspage

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/softnd/softnd/shm"
)

// sharedPage is the status page of one member in the arena. Observers write requested, the reporter
// writes everything else.
type sharedPage struct {
	_            structs.HostLayout
	seq          atomic.Uint64 // odd while text, length and writtenAt are being written
	lastProgress atomic.Uint64 // linux.HostClock when the reporter last noted progress
	writtenAt    atomic.Uint64 // linux.HostClock when text was written
	length       atomic.Uint64 // bytes of text
	requested    atomic.Uint32 // number of requests for the stacks so far
	answered     atomic.Uint32 // number of the latest request that stacks answers
	stacks       atomic.Uint64 // shm.Offset in the reporter's heap
	stacksLength atomic.Uint64 // 0: there are none
	_            [8]byte
	text         [textWords]atomic.Uint64
}

const textWords = 1016

func _() { // a constant or index error here means that the shared layout has changed
	var at [1]struct{}
	_, _ = at[unsafe.Offsetof(sharedPage{}.text)-64], at[unsafe.Sizeof(sharedPage{})-shm.StatusPageSize]
}

// pageOf returns the status page of a member.
func pageOf(a *shm.Arena, id shm.MemberID) (*sharedPage, error) {
	return shm.At[sharedPage](a, a.Info().StatusPages+shm.Offset(id.Slot()*shm.StatusPageSize))
}
