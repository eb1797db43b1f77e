package endpoint

import (
	"structs"
	"sync/atomic"
	"unsafe"
)

// half is one endpoint's side of what two endpoints share. Only its owner
// writes it; the peer reads it once the record names it. Each group of words
// has lines of its own, because the groups are written at different times.
type half struct {
	_ structs.HostLayout

	// Where the rest of the half lies. Written before the half is offered, and
	// copied and checked by the peer once.
	ring          uint64 // offset of the outbound ring
	ringSlots     uint64 // a power of two
	receives      uint64 // offset of the receive descriptors
	receiveCount  uint64 // a power of two
	receiveStride uint64 // bytes, a multiple of 64
	endpoint      uint64 // the endpoint's number in its process
	sharedReceive uint64 // 1: the receives are a shared queue's, and none are shown here
	barriers      uint64 // 1: its process calls asym.HeavyGlobal where others rely on that; see shm.Producer.Relax
	_             [64]byte

	consumed    atomic.Uint64 // messages of the peer's ring that are done with
	fault       atomic.Uint64 // number of the message that failed here, plus one; set before the abort
	faultStatus atomic.Uint32 // what the peer's request shows
	_           [108]byte

	posted atomic.Uint64 // receives posted so far
	tight  atomic.Uint64 // the last of them, plus one, that cannot take any inline payload for sure
	room   atomic.Uint64 // how many bytes those can take that are not delivered yet
	_      [104]byte

	hazard atomic.Uint64 // tokens in use by this side's executor; see window.Hazard
	_      [120]byte

	stalled atomic.Uint32 // 1: this side waits for room or for a receive, and wants to be rung
	_       [124]byte

	// Why this side has ended the connection. Stored before the abort.
	receiveStatus atomic.Uint32 // of the peer's receive that this side could not fill; 0 = none
	reasonLength  atomic.Uint32
	reason        [376]byte
}

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
	_, _ = at[unsafe.Offsetof(half{}.consumed)-128], at[unsafe.Offsetof(half{}.posted)-256]
	_, _ = at[unsafe.Offsetof(half{}.hazard)-384], at[unsafe.Offsetof(half{}.stalled)-512]
	_ = at[unsafe.Offsetof(half{}.receiveStatus)-640]
	_, _ = at[unsafe.Sizeof(half{})-halfSize], at[unsafe.Offsetof(record{}.data)-112]
	_ = at[unsafe.Sizeof(record{})-recordSize]
}

const (
	halfSize   = 1024
	recordSize = 112 + 2*maxPrivateData
)
