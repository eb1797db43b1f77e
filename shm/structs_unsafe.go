package shm

import (
	"structs"
	"sync/atomic"
	"unsafe"
)

// header is the first page of an arena, in host byte order. Everything before
// deaths is written once by the creator, before version, and all but build is
// covered by checksum.
type header struct {
	_        structs.HostLayout
	magic    uint64
	version  atomic.Uint32 // ORDER arena-ready: stored last by Create, loaded first by Attach
	ranks    uint32
	layout   uint64
	size     uint64
	secret   [2]uint64 // seeds the token tags
	id       [2]uint64 // random; tells two arenas apart
	checksum uint64
	build    [56]byte      // name of the creator's build, for messages; stays here in all versions
	deaths   atomic.Uint64 // deaths and departures so far
	_        [120]byte
	arrived  atomic.Uint64 // barrier: arrivals so far, in all rounds; two ranks have place.round instead
	_        [120]byte
	opened   atomic.Uint64 // barrier: how many of them belong to complete rounds
	_        [120]byte
}

// memberRecord is one process (or one test's stand-in for a process).
type memberRecord struct {
	_          structs.HostLayout
	state      atomic.Uint64 // status, incarnation: see memberState
	deathEpoch atomic.Uint64 // value of header.deaths when this member's death was counted; see counted
	deathsSeen atomic.Uint64 // deaths that this member has acted upon
	pid        atomic.Uint32
	rank       atomic.Uint32 // rank + 1; 0 = not a rank
	pidNS      atomic.Uint64 // inode of the PID namespace in which pid means something
	_          [88]byte
	inbox      atomic.Uint64 // head of a list of mail; see Peer.Send
	calls      atomic.Uint32 // incremented when a member joins or leaves that this one may have to watch; see Member.Called
	_          [116]byte
	waiters    doorbellWords
	_          [120]byte
	engine     doorbellWords
	_          [120]byte
}

// place is what one rank tells the others of its group.
type place struct {
	_      structs.HostLayout
	member atomic.Uint64 // MemberID of the rank; 0 = not there yet
	blob   atomic.Uint64 // Offset of the bytes it shares in the current exchange
	length atomic.Uint64 // their number

	round    atomic.Uint64 // barrier of two ranks: how many of them this one has reached
	barriers atomic.Uint32 // 1: its process calls asym.HeavyGlobal before each last look; see Group.Arrive
	_        uint32
	offered  atomic.Uint64 // the barrier after which blob and length may be looked at
	blamed   atomic.Uint64 // MemberID of the peer that it has lost; see Member.Blame
	blamedAt atomic.Uint64 // Clock when it noted that; 0 = never
}

// testimony is what one member tells of itself to onlookers. The onlooker writes asked,
// the member everything else.
type testimony struct {
	_            structs.HostLayout
	seq          atomic.Uint64 // odd while text, length and told are being written
	moved        atomic.Uint64 // Clock when the member last saw that something of its own went on
	told         atomic.Uint64 // Clock when text was written
	length       atomic.Uint64 // bytes of text
	asked        atomic.Uint32 // questions so far
	answered     atomic.Uint32 // the latest of them that stacks answers
	stacks       atomic.Uint64 // Offset in the member's heap
	stacksLength atomic.Uint64 // 0 = none
	_            [8]byte
	text         [testimonyWords]atomic.Uint64
}

// doorbellWords is the shared half of a Doorbell.
type doorbellWords struct {
	armed atomic.Uint32 // whether anybody sleeps or is about to: see Doorbell
	seq   atomic.Uint32 // the futex: changes with each ring
}

// slotWords is one slot of a ring: one 64-byte line.
type slotWords struct {
	_    structs.HostLayout
	seq  atomic.Uint64 // index of the slot since the ring was made, plus one
	data Slot
}

func _() { // a constant or index error here means that the shared layout has moved
	var at [1]struct{}
	_, _ = at[unsafe.Offsetof(header{}.checksum)-64], at[unsafe.Offsetof(header{}.deaths)-128]
	_, _ = at[unsafe.Offsetof(header{}.arrived)-256], at[unsafe.Offsetof(header{}.opened)-384]
	_ = at[unsafe.Sizeof(header{})-512]
	_, _ = at[unsafe.Offsetof(memberRecord{}.inbox)-128], at[unsafe.Offsetof(memberRecord{}.waiters)-256]
	_, _ = at[unsafe.Offsetof(memberRecord{}.engine)-384], at[unsafe.Sizeof(memberRecord{})-memberStride]
	_, _ = at[unsafe.Offsetof(place{}.round)-24], at[unsafe.Offsetof(place{}.barriers)-32]
	_, _ = at[unsafe.Offsetof(testimony{}.text)-64], at[unsafe.Sizeof(testimony{})-testimonyStride]
	_, _ = at[unsafe.Sizeof(place{})-placeStride], at[unsafe.Sizeof(slotWords{})-SlotSize]
}
