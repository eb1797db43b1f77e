package window

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/softnd/softnd/shm"
)

// accessEntry is one entry of the shared window table, which describes a token to peers. Only the
// owner of the entry writes it. It changes base, length, offset, owner, scope and ends only while word is
// invalid.
type accessEntry struct {
	_      structs.HostLayout
	word   atomic.Uint64 // see entryWord
	base   atomic.Uint64 // address of the first byte for peers
	length atomic.Uint64 // bytes
	offset atomic.Uint64 // of the first byte, or the one behind the first of ends, in the arena; 0 = memory that is private to the owner
	owner  atomic.Uint64 // the adapter (Domain.Adapter) over whose connections the token is accepted
	scope  atomic.Uint64 // the endpoint whose peer alone may use the token; 0 = any of the adapter's
	binds  atomic.Uint32 // how many binds the entry has had, of all its owners
	ends   atomic.Uint32 // bytes at the start and at the end that only the owner can access; 0 for owners in Go
	_      [8]byte
}

func _() { // a constant or index error here means that the shared layout has changed
	var at [1]struct{}
	_, _ = at[unsafe.Offsetof(accessEntry{}.binds)-48], at[unsafe.Sizeof(accessEntry{})-shm.WindowEntrySize]
}
