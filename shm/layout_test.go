package shm

import (
	"bytes"
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/softnd/softnd/internal/doorbell"
	"github.com/softnd/softnd/internal/layout"
	"github.com/softnd/softnd/internal/layout/layouttest"
)

func TestLayoutDescribesTheStructs(t *testing.T) {
	layouttest.Check(t, []string{"shm.", "doorbell."},
		layouttest.Struct[header]("shm.header"),
		layouttest.Struct[memberRecord]("shm.memberRecord"),
		layouttest.Struct[rankRecord]("shm.rankRecord"),
		layouttest.Struct[nameEntry]("shm.nameEntry"),
		fmt.Sprintf("shm.numberEntry %d bytes\n     0    8 word\n     8    8 dest\n", numberEntrySize), // only the C library has the structure
		layouttest.Struct[doorbell.Doorbell]("doorbell.Doorbell"))
}

func TestLayoutDescribesNames(t *testing.T) {
	none, all := netip.AddrFrom4([4]byte{}), netip.AddrFrom4([4]byte{255, 255, 255, 255})
	layouttest.Check(t, []string{"word shm.nameEntry"},
		"word shm.nameEntry.address, 64 bits\n"+
			layouttest.Bits(publishedWord(netip.AddrPortFrom(none, 65535), 0), "port")+
			layouttest.Bits(publishedWord(netip.AddrPortFrom(none, 0), 65535), "number of the use of the entry")+
			layouttest.Bits(publishedWord(netip.AddrPortFrom(all, 0), 0), "IPv4 address"))
}

func TestLayoutDescribesTheFile(t *testing.T) {
	for _, want := range []string{
		fmt.Sprintf("header at 0, %d bytes", headerSize),
		fmt.Sprintf("each rounded up to %d bytes", pageSize),
		fmt.Sprintf("member records %d x %d", maxMembers, memberStride),
		fmt.Sprintf("rank records %d x %d", MaxRanks, rankRecordStride),
		fmt.Sprintf("status pages %d x %d", maxMembers, StatusPageSize),
		fmt.Sprintf("window block words %d x 4 owner of each block of %d", windowBlocks, WindowBlockEntries),
		fmt.Sprintf("window entries %d x %d", WindowEntries, WindowEntrySize),
		fmt.Sprintf("fault rules %d x %d", maxFaultRules, faultRuleSize),
		fmt.Sprintf("number block words %d x 4 owner of each block of %d", numberBlocks, numberBlockEntries),
		fmt.Sprintf("number entries %d x %d", numberEntries, numberEntrySize),
		fmt.Sprintf("chunk words (size / %d) x 4", chunkSize),
		fmt.Sprintf("rounded up to %d: the heap, in chunks of %d", chunkSize, chunkSize),
	} {
		if have := regexp.MustCompile(`\s+`).ReplaceAllString(layouttest.Sections()["file"], " "); !strings.Contains(have, want) {
			t.Errorf("the file section of LAYOUT.txt should contain (spacing apart)\n%s", want)
		}
	}
	if want := fmt.Sprintf("layout, version %d.", layout.Version); !strings.Contains(layout.Text, want) {
		t.Errorf("LAYOUT.txt should contain %q", want)
	}
	var le [8]byte
	for i := range le {
		le[i] = byte(arenaMagic >> (8 * i))
	}
	if !bytes.Equal(le[:], []byte("\xffSOFTND1")) {
		t.Errorf("magic is %q in memory order", le)
	}
}

func TestGeometryPlacesTables(t *testing.T) {
	least := uint64(0)
	for size := uint64(0); ; size += chunkSize {
		if _, err := geometryFor(size); err == nil {
			least = size
			break
		}
	}
	for _, size := range []uint64{least, testSize, 1 << 28, 1<<30 + chunkSize, 1 << 36, maxSize - chunkSize, maxSize} {
		g, err := geometryFor(size)
		if err != nil {
			t.Fatalf("size %d: %v", size, err)
		}
		tables := []struct {
			name      string
			at        Offset
			size, mod uint64
		}{
			{"header", 0, headerSize, 1},
			{"member records", g.memberTable, maxMembers * memberStride, pageSize},
			{"rank records", g.rankRecords, MaxRanks * rankRecordStride, pageSize},
			{"window block words", g.windowOwners, windowBlocks * 4, pageSize},
			{"window entries", g.windowTable, WindowEntries * WindowEntrySize, pageSize},
			{"fault rules", g.faultRules, maxFaultRules * faultRuleSize, pageSize},
			{"number block words", g.numberOwners, numberBlocks * 4, pageSize},
			{"number entries", g.numberTable, numberEntries * numberEntrySize, pageSize},
			{"chunk words", g.chunkOwners, g.chunks * 4, pageSize},
			{"heap", g.heap, g.chunks * chunkSize, chunkSize},
		}
		end := uint64(0)
		for _, table := range tables {
			if uint64(table.at) < end || uint64(table.at)%table.mod != 0 {
				t.Errorf("size %d: %s at %#x: the table before it ends at %#x", size, table.name, table.at, end)
			}
			end = uint64(table.at) + table.size
		}
		if end != size {
			t.Errorf("size %d: the heap ends at %d", size, end)
		}
	}
	for _, size := range []uint64{0, 1, least - chunkSize, least + 1, testSize + pageSize, maxSize + chunkSize, math.MaxUint64 / chunkSize * chunkSize, math.MaxUint64} {
		if g, err := geometryFor(size); err == nil {
			t.Errorf("size %d was accepted: %+v", size, g)
		}
	}
}

func TestHeaderHoldsLayoutHash(t *testing.T) {
	a := newArena(t, 3)
	h := a.header()
	if h.layout != layout.Hash() || h.layout == 0 {
		t.Errorf("header carries hash %#x, the layout's is %#x", h.layout, layout.Hash())
	}
	if h.checksum != h.constants().sum() {
		t.Errorf("header carries checksum %#x", h.checksum)
	}
	// The checksum covers each constant of the header.
	for i, change := range []func(*constants){
		func(c *constants) { c.magic++ }, func(c *constants) { c.layout++ }, func(c *constants) { c.size++ },
		func(c *constants) { c.ranks++ }, func(c *constants) { c.rules++ }, func(c *constants) { c.host++ }, func(c *constants) { c.secret[0]++ }, func(c *constants) { c.secret[1]++ },
		func(c *constants) { c.id[0]++ }, func(c *constants) { c.id[1]++ },
	} {
		c := h.constants()
		change(&c)
		if c.sum() == h.checksum {
			t.Errorf("change %d does not show in the checksum", i)
		}
	}
}
