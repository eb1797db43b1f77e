package window

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/softnd/softnd/shm"
)

// entry is what peers see of a token. Only the owner writes it; the fields
// after word change only while word says invalid, or stays the same token's.
type entry struct {
	_      structs.HostLayout
	word   atomic.Uint64 // see entryWord
	base   atomic.Uint64 // address of the first byte, as the owner counts
	length atomic.Uint64 // bytes
	offset atomic.Uint64 // where they lie in the arena; 0 = private to the owner
	owner  atomic.Uint64 // the adapter (Owner) whose connections may use it
	scope  atomic.Uint64 // the endpoint whose peer alone may use it; 0 = any of the adapter's
	binds  atomic.Uint32 // tokens given out so far on this index, by all owners
	_      [12]byte
}

func _() { // a constant or index error here means that the shared layout has moved
	var at [1]struct{}
	_, _ = at[unsafe.Offsetof(entry{}.binds)-48], at[unsafe.Sizeof(entry{})-shm.WindowEntrySize]
}
