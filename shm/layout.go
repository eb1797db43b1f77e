package shm

import (
	"fmt"
)

const (
	// arenaMagic is the first word of every arena.
	arenaMagic uint64 = 0x31444e54464f53ff // "\xffSOFTND1", read as little-endian bytes

	// chunkSize is the unit in which members own heap memory, in bytes.
	chunkSize = 64 << 10

	// MaxRanks is the maximum number of ranks in a group.
	MaxRanks = 1024

	// maxMembers is the number of member records: one for each rank, and as many again for
	// processes that join through a named fabric.
	maxMembers = 2 * MaxRanks

	// WindowEntries is the number of entries of the window table, of WindowEntrySize bytes each.
	// Members claim them in blocks of WindowBlockEntries.
	WindowEntries      = 1 << 20
	WindowEntrySize    = 64
	WindowBlockEntries = 256
	windowBlocks       = WindowEntries / WindowBlockEntries

	// numberEntries is the number of number entries, of numberEntrySize bytes each. Members claim them in blocks of
	// numberBlockEntries, a page each.
	numberEntries      = 1 << 16
	numberEntrySize    = 64
	numberBlockEntries = 64
	numberBlocks       = numberEntries / numberBlockEntries

	// StatusPageSize is the size of a member's status page, in bytes.
	StatusPageSize = 8192

	// maxFaultRules is the number of records for fault rules, of faultRuleSize bytes each.
	maxFaultRules = 128
	faultRuleSize = 512

	pageSize         = 4096
	headerSize       = pageSize
	memberStride     = 512
	rankRecordStride = 64
	nameEntrySize    = 128

	minHeap = 16 * chunkSize
	maxSize = 1 << 40
)

// Offset is a position in the arena, in bytes from its start. 0 means "none": the header is there,
// so no object has this offset.
type Offset uint64

// geometry holds the positions of the tables in an arena of a given size. It is computed from the
// size and never read from shared memory.
type geometry struct {
	size         uint64
	memberTable  Offset
	rankRecords  Offset // one per rank
	statusPages  Offset // one per member record
	windowOwners Offset // one 32-bit word per block of window entries
	windowTable  Offset
	faultRules   Offset
	numberOwners Offset // one 32-bit word per block of number entries
	numberTable  Offset
	chunkOwners  Offset // one 32-bit word per chunk
	heap         Offset
	chunks       uint64
}

func roundUp(n, unit uint64) uint64 { return (n + unit - 1) / unit * unit }

// geometryFor computes the geometry of an arena of size bytes, a multiple of chunkSize.
func geometryFor(size uint64) (geometry, error) {
	g := geometry{size: size}
	if size%chunkSize != 0 || size > maxSize {
		return g, fmt.Errorf("arena size: want a multiple of %d and at most %d bytes", chunkSize, uint64(maxSize))
	}
	at := uint64(headerSize)
	table := func(bytes uint64) Offset {
		o := Offset(at)
		at = roundUp(at+bytes, pageSize)
		return o
	}
	g.memberTable = table(maxMembers * memberStride)
	g.rankRecords = table(MaxRanks * rankRecordStride)
	g.statusPages = table(maxMembers * StatusPageSize)
	g.windowOwners = table(windowBlocks * 4)
	g.windowTable = table(WindowEntries * WindowEntrySize)
	g.faultRules = table(maxFaultRules * faultRuleSize)
	g.numberOwners = table(numberBlocks * 4)
	g.numberTable = table(numberEntries * numberEntrySize)
	g.chunkOwners = table(size / chunkSize * 4) // a few words more than chunks
	at = roundUp(at, chunkSize)
	if at+minHeap > size {
		return g, fmt.Errorf("arena size: want at least %d bytes, because the tables take %d", at+minHeap, at)
	}
	g.heap = Offset(at)
	g.chunks = (size - at) / chunkSize
	return g, nil
}
