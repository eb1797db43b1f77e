package shm

// TWIN c/src/shm/structs.h.

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/softnd/softnd/internal/doorbell"
)

// header is the first page of an arena, in host byte order. The creator writes everything before
// deaths once, and version last. checksum covers all of that except build.
type header struct {
	_        structs.HostLayout
	magic    uint64
	version  atomic.Uint32 // ORDER arena-ready: stored last by Create, loaded first by Attach
	ranks    uint32
	layout   uint64
	size     uint64
	secret   [2]uint64 // seed of the tags of tokens
	id       [2]uint64 // random; identifies the arena
	checksum uint64
	build    [56]byte      // name of the creator's build, for messages; at this offset in all versions
	deaths   atomic.Uint64 // number of deaths and departures so far
	rules    uint32        // number of fault rules; written by Create, before version
	host     uint32        // number of the arena's host in the job; likewise
	relay    atomic.Uint64 // MemberID of the relay; 0 = none so far; see Arena.Relay
	formedBy atomic.Uint64 // MemberID of the rank 0 that has formed the group last, or is forming it; see Group.Formed
	slots    atomic.Uint64 // the member records from this number on have never been in use; it only grows; see Arena.usedSlots
	_        [88]byte
	arrived  atomic.Uint64 // barrier: number of arrivals so far, in all rounds; two ranks use rankRecord.round instead
	_        [120]byte
	opened   atomic.Uint64 // barrier: number of arrivals that belong to complete rounds
	_        [120]byte
}

// memberRecord represents one member: a process, or in tests one of several in a process.
type memberRecord struct {
	_                structs.HostLayout
	state            atomic.Uint64 // status and incarnation: see memberState
	deathEpoch       atomic.Uint64 // value of header.deaths when this member's death was counted; see counted
	deathsSeen       atomic.Uint64 // this member has acknowledged all deaths up to this number
	pid              atomic.Uint32
	rank             atomic.Uint32 // rank + 1; 0 = not a rank
	pidNS            atomic.Uint64 // inode of the PID namespace in which pid means something
	names            atomic.Uint64 // Offset of namesPerMember name entries in the member's heap; 0 = none. See Member.PublishName
	_                [80]byte
	inbox            atomic.Uint64 // head of a list of mail; see Peer.SendMail
	livenessRequests atomic.Uint32 // incremented when a member that this one may have to watch joins or leaves; see Member.LivenessCheckDue
	_                [52]byte
	bytes, requests  atomic.Uint64 // that queue pairs of verbs programs have transferred, in all processes that had the slot. Only C writes them
	_                [48]byte
	waiters          doorbell.Doorbell
	_                [120]byte
	engine           doorbell.Doorbell
	_                [120]byte
}

// rankRecord is what one rank shows the other ranks of its group.
type rankRecord struct {
	_      structs.HostLayout
	member atomic.Uint64 // MemberID of the member that has the rank, with bits and a number: see rankWord; 0 = none yet
	blob   atomic.Uint64 // Offset of the published bytes, in the member's heap
	length atomic.Uint64 // number of published bytes

	round          atomic.Uint64 // barrier of two ranks: number of barriers that this rank has reached
	membarrier     atomic.Uint32 // 1: before its last check for work, its process calls asym.HeavyGlobal; see Group.Arrive
	_              [4]byte
	publishedRound atomic.Uint64 // number of the barrier after which other ranks may read blob and length
	lostPeer       atomic.Uint64 // MemberID of the peer that the rank lost; see Member.RecordLostPeer
	lostPeerAt     atomic.Uint64 // linux.HostClock when the rank recorded that; 0 = never
}

// nameEntry is a name that a member has published.
type nameEntry struct {
	_       structs.HostLayout
	address atomic.Uint64 // see publishedWord; 0 = the entry is free
	_       [56]byte
	name    [nameLength / 8]atomic.Uint64 // zeros behind it
}

func _() { // a compile error here (constant or index) means that a field or size of the shared layout has changed
	var at [1]struct{}
	_, _ = at[unsafe.Offsetof(header{}.checksum)-64], at[unsafe.Offsetof(header{}.deaths)-128]
	_, _ = at[unsafe.Offsetof(header{}.host)-140], at[unsafe.Offsetof(header{}.relay)-144]
	_, _ = at[unsafe.Offsetof(header{}.formedBy)-152], at[unsafe.Offsetof(header{}.slots)-160]
	_, _ = at[unsafe.Offsetof(header{}.arrived)-256], at[unsafe.Offsetof(header{}.opened)-384]
	_ = at[unsafe.Sizeof(header{})-512]
	_, _ = at[unsafe.Offsetof(nameEntry{}.name)-64], at[unsafe.Sizeof(nameEntry{})-nameEntrySize]
	_, _ = at[unsafe.Offsetof(memberRecord{}.inbox)-128], at[unsafe.Offsetof(memberRecord{}.waiters)-256]
	_, _ = at[unsafe.Offsetof(memberRecord{}.bytes)-192], at[unsafe.Offsetof(memberRecord{}.requests)-200]
	_, _ = at[unsafe.Offsetof(memberRecord{}.engine)-384], at[unsafe.Sizeof(memberRecord{})-memberStride]
	_, _ = at[unsafe.Offsetof(rankRecord{}.round)-24], at[unsafe.Offsetof(rankRecord{}.membarrier)-32]
	_ = at[unsafe.Offsetof(rankRecord{}.publishedRound)-40]
	_ = at[unsafe.Sizeof(rankRecord{})-rankRecordStride]
}
