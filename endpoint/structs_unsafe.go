package endpoint

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/softnd/softnd/endpoint/internal/wire"
)

// record is one connection, or an attempt at one. Index 0 of each pair is the
// active side's, 1 the passive side's; each side writes its own, before the
// change of state that offers it.
type record struct {
	_        structs.HostLayout
	link     atomic.Uint64 // used by the inbox
	state    atomic.Uint32 // see connState
	_        uint32
	left     [2]atomic.Uint32 // 1: this side has disconnected in good order
	detached [2]atomic.Uint32 // see leftHalf
	member   [2]uint64        // shm.MemberID
	owner    [2]uint64        // window.AdapterID, the adapter
	half     [2]uint64        // offset
	port     [2]uint32
	readIn   [2]uint32 // read limits
	readOut  [2]uint32
	dataLen  [2]uint32 // private data
	data     [2][maxPrivateData]byte
}

// Values of record.detached.
const (
	leftHalf   = 1 + iota // this side never again touches the other's half
	leftRecord            // nor this record; the passive side only
)

// maxPrivateData is the limit of Connect's and of Accept's private data.
const maxPrivateData = 512

func _() { // a constant or index error here means that the shared layout has moved
	var at [1]struct{}
	_, _ = at[unsafe.Offsetof(wire.SharedQP{}.Consumed)-128], at[unsafe.Offsetof(wire.SharedQP{}.Posted)-256]
	_, _ = at[unsafe.Offsetof(wire.SharedQP{}.Hazard)-384], at[unsafe.Offsetof(wire.SharedQP{}.NeedWakeup)-512]
	_ = at[unsafe.Offsetof(wire.SharedQP{}.ReceiveStatus)-640]
	_ = at[unsafe.Offsetof(record{}.data)-112]
	_ = at[unsafe.Sizeof(record{})-recordSize]
}

const recordSize = 112 + 2*maxPrivateData
