package wire

import (
	"structs"
	"sync/atomic"
	"unsafe"
)

// SharedQP is the shared queue-pair state: the part of an endpoint that its peer reads. Only the
// endpoint's process writes it. Each group of words has cache lines of its own, because the groups
// are written at different times.
type SharedQP struct {
	_ structs.HostLayout

	// Where the ring and the receive descriptors lie. The endpoint writes these words before it
	// offers the state to a peer. The peer copies them once and checks the copies.
	Ring          uint64 // offset of the outbound ring
	RingSlots     uint64 // a power of two
	Receives      uint64 // offset of the receive descriptors
	ReceiveCount  uint64 // a power of two
	ReceiveStride uint64 // bytes, a multiple of 64
	Endpoint      uint64 // the endpoint's number in its process
	SharedReceive uint64 // 1: the endpoint takes receives from a shared receive queue and describes none here
	Membarrier    uint64 // 1: its process calls asym.HeavyGlobal where others rely on that; see ring.NewProducer

	ResponderCopies uint64 // 1: the peer copies nothing itself, and sends every request through the ring
	Extended        uint64 // 1: this side understands immediate data and entries of kinds WritePlaced and Atomic

	// Of an endpoint of the C library that has a number. They are 0 in all others.
	Number   uint64        // see shm.number in LAYOUT.txt
	Access   atomic.Uint64 // rights of requests of the peer, as in an access entry
	RnrTimer uint64        // nanoseconds for which the peer waits for a receive before it retries
	_        [24]byte

	Released    atomic.Uint64 // number of entries of the peer's ring that this side has released; see ring.Consumer.Release
	Fault       atomic.Uint64 // number of the entry that failed here, plus one; stored before the abort
	FaultStatus atomic.Uint32 // status of the peer's request that the entry belongs to
	EndCause    atomic.Uint32 // why an endpoint with a number has ended the connection; see LAYOUT.txt. Stored before the abort
	_           [40]byte

	ReadHashes [8]atomic.Uint64 // hashes of data that the peer has read; see FlagHashed

	Posted            atomic.Uint64 // receives posted so far
	SmallReceivesEnd  atomic.Uint64 // number after the last receive that may be smaller than MaxSendInEntry
	SmallReceiveBytes atomic.Uint64 // bytes that each uncompleted receive before SmallReceivesEnd can hold
	_                 [104]byte

	Hazard atomic.Uint64 // tokens that this side's copies are using; see window.NewGuard
	_      [120]byte

	NeedWakeup atomic.Uint32 // 1: this side waits for ring slots or for a receive; the peer must ring
	_          [60]byte

	Results [Results]atomic.Uint64 // old values of the peer's Atomics

	// Why this side has ended the connection. Stored before the abort.
	ReceiveStatus atomic.Uint32 // of the peer's receive that this side could not fill; 0 = none
	ReasonLength  atomic.Uint32 // bytes
	Reason        [376]byte
}

// Results is how many Atomics of one direction may have old values that the requester has not taken. Atomic n, counted from 0, uses
// place n modulo Results.
const Results = 8

// SharedQPSize is the size of SharedQP in bytes.
const SharedQPSize = 1024

func _() { // a constant or index error here means that the shared layout has moved
	var at [1]struct{}
	_, _ = at[unsafe.Offsetof(SharedQP{}.Released)-128], at[unsafe.Offsetof(SharedQP{}.ReadHashes)-192]
	_, _ = at[unsafe.Offsetof(SharedQP{}.Number)-80], at[unsafe.Offsetof(SharedQP{}.EndCause)-148]
	_ = at[unsafe.Offsetof(SharedQP{}.Posted)-256]
	_, _ = at[unsafe.Offsetof(SharedQP{}.Hazard)-384], at[unsafe.Offsetof(SharedQP{}.NeedWakeup)-512]
	_ = at[unsafe.Offsetof(SharedQP{}.Results)-576]
	_, _ = at[unsafe.Offsetof(SharedQP{}.ReceiveStatus)-640], at[unsafe.Sizeof(SharedQP{})-SharedQPSize]
}
