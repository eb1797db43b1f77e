package shm

import (
	_ "embed"
	"fmt"
	"math/bits"
	"reflect"
	"strings"

	"github.com/cespare/xxhash/v2"
)

const (
	// Magic is the first word of every arena.
	Magic uint64 = 0x31444e54464f53ff // "\xffSOFTND1", read as little-endian bytes

	// Version is the layout version. It is the last word that a creator stores.
	Version uint32 = 1

	// CacheLine is the distance, in bytes, that keeps words of different
	// writers apart: two 64-byte lines, because adjacent lines are fetched in
	// pairs.
	CacheLine = 128

	// ChunkSize is the unit, in bytes, in which heap memory changes owners.
	ChunkSize = 64 << 10

	// MaxRanks is the largest number of ranks in one group.
	MaxRanks = 1024

	// MaxMembers is the number of member records: every rank, and as many
	// processes again that joined through a named fabric.
	MaxMembers = 2 * MaxRanks

	// WindowEntries is the number of entries of the window table, of
	// WindowEntrySize bytes each. The entries are claimed in blocks.
	WindowEntries      = 1 << 20
	WindowEntrySize    = 64
	WindowBlockEntries = 256
	windowBlocks       = WindowEntries / WindowBlockEntries

	pageSize     = 4096
	headerSize   = pageSize
	memberStride = 512
	placeStride  = 64

	minHeap = 16 * ChunkSize
	maxSize = 1 << 40
)

// Layout is the description of everything that lies in an arena, with every
// offset. Tests of each package compare it with the compiled structures, and
// its hash is what two processes compare before they share an arena.
//
//go:embed LAYOUT.txt
var Layout string

// LayoutHash returns the hash of [Layout] that an arena's header carries.
func LayoutHash() uint64 { return xxhash.Sum64String(Layout) }

// Offset is a position in the arena, in bytes from its start. 0 is the header
// and so never names an object: it serves as "none".
type Offset uint64

// geometry says where the tables of an arena of a given size lie. It is
// computed, never read from shared memory.
type geometry struct {
	size         uint64
	memberTable  Offset
	places       Offset // one per rank
	testimonies  Offset // one per member record
	windowOwners Offset // one 32-bit word per block of window entries
	windowTable  Offset
	chunkOwners  Offset // one 32-bit word per chunk
	heap         Offset
	chunks       uint64
}

func roundUp(n, unit uint64) uint64 { return (n + unit - 1) / unit * unit }

// geometryFor computes the positions for an arena of size bytes, which must be
// a multiple of ChunkSize.
func geometryFor(size uint64) (geometry, error) {
	g := geometry{size: size}
	if size%ChunkSize != 0 || size > maxSize {
		return g, fmt.Errorf("arena size of %d bytes: want a multiple of %d and at most %d", size, ChunkSize, uint64(maxSize))
	}
	at := uint64(headerSize)
	table := func(bytes uint64) Offset {
		o := Offset(at)
		at = roundUp(at+bytes, pageSize)
		return o
	}
	g.memberTable = table(MaxMembers * memberStride)
	g.places = table(MaxRanks * placeStride)
	g.testimonies = table(MaxMembers * testimonyStride)
	g.windowOwners = table(windowBlocks * 4)
	g.windowTable = table(WindowEntries * WindowEntrySize)
	g.chunkOwners = table(size / ChunkSize * 4) // a few words more than chunks
	at = roundUp(at, ChunkSize)
	if at+minHeap > size {
		return g, fmt.Errorf("arena size of %d bytes: the tables take %d, so at least %d are needed", size, at, at+minHeap)
	}
	g.heap = Offset(at)
	g.chunks = (size - at) / ChunkSize
	return g, nil
}

// DescribeStruct lists the fields of a shared structure, one a line, as they
// appear in [Layout]: offset, size, name. Blank fields are padding and are
// left out. Tests use it to keep the description true.
func DescribeStruct(name string, t reflect.Type) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d bytes\n", name, t.Size())
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Name == "_" {
			continue
		}
		fmt.Fprintf(&b, "  %4d %4d %s\n", f.Offset, f.Type.Size(), f.Name)
	}
	return b.String()
}

func isPowerOfTwo(n uint64) bool { return bits.OnesCount64(n) == 1 }
