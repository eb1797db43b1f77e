package shm

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// isDumped reports whether core dumps contain the mapping at the address of mem.
func isDumped(t *testing.T, mem []byte) bool {
	t.Helper()
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	at, within := AddressOf(mem), false
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var start, end uint64
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x ", &start, &end); n == 2 {
			within = start <= at && at < end
		} else if flags, ok := strings.CutPrefix(lines.Text(), "VmFlags:"); ok && within {
			return !slices.Contains(strings.Fields(flags), "dd")
		}
	}
	t.Fatalf("no mapping at %#x has flags (%v)", at, lines.Err())
	return false
}

func TestCoreDumpContainsArena(t *testing.T) {
	for value, want := range map[string]bool{"": false, "0": false, "1": true} {
		t.Run(envDumpArena+"="+value, func(t *testing.T) {
			t.Setenv(envDumpArena, value)
			created, err := Create(Config{Size: testSize})
			if err != nil {
				t.Fatal(err)
			}
			defer created.Close()
			attached, err := Attach(t.Context(), created.File())
			if err != nil {
				t.Fatal(err)
			}
			member, err := attached.Join(NoRank)
			if err != nil {
				t.Fatal(err)
			}
			off, err := member.Alloc(4 * chunkSize)
			if err != nil {
				t.Fatal(err)
			}
			allocated, rest := attached.mem[off:], attached.mem[off+4*chunkSize:]
			if got := isDumped(t, allocated); got != want {
				t.Errorf("allocated memory: in core dumps: %v, want %v", got, want)
			}
			if isDumped(t, rest) {
				t.Error("memory that is not allocated is in core dumps")
			}
			if err := member.Free(off); err != nil {
				t.Error(err)
			}
			if isDumped(t, allocated) {
				t.Error("freed memory is in core dumps")
			}
			if err := member.Leave(); err != nil {
				t.Error(err)
			}
			alias, unmap, err := attached.MapPages([]Offset{0, PageSize})
			if err != nil {
				t.Fatal(err)
			}
			for name, mem := range map[string][]byte{"created": created.mem, "attached": attached.mem, "alias": alias} {
				if got := isDumped(t, mem); got != want {
					t.Errorf("%s: in core dumps: %v, want %v", name, got, want)
				}
			}
			if err := unmap(); err != nil {
				t.Error(err)
			}
			if err := attached.Close(); err != nil {
				t.Error(err)
			}
			if isDumped(t, attached.mem) {
				t.Error("closed: in core dumps")
			}
		})
	}
}
