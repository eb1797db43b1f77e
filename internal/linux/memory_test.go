package linux

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestMemoryIsKnown(t *testing.T) {
	total, ok := TotalMemory()
	if left, limit := AvailableMemory(); !ok || limit == "" || left >= total {
		t.Errorf("%d of %d bytes are left under %q", left, total, limit)
	}
	if _, ok := memoryLine([]byte("MemTotal: 1 kB\n"), "NoSuchLine"); ok {
		t.Error("/proc/meminfo has NoSuchLine")
	}
	if n := AddressSpaceInUse(); n < 1<<20 || n > 1<<47 {
		t.Errorf("the address space of this process has %d bytes", n)
	}
}

func TestCanReserve(t *testing.T) {
	available, name := AvailableMemory()
	if left, limit, ok := CanReserve(1 << 60); ok || limit != name || left >= 1<<60 || available == 0 {
		t.Errorf("an exbibyte: %d left under %q, %v", left, limit, ok)
	}
	if left, limit, ok := CanReserve(4096); !ok {
		t.Errorf("a page: %d left under %q", left, limit)
	}
}

func TestSpareMemoryIsBounded(t *testing.T) {
	var s spareMemory
	const share, start = maxSpare / 2, time.Second
	if s.take(1, start) {
		t.Error("something to spare before the limits were read")
	}
	s.refill(share*spareShare, start)
	for _, step := range []struct {
		wanted uint64
		now    time.Duration
		want   bool
	}{
		{share + 1, start, false}, {share / 2, start, true}, {share/2 + 1, start, false},
		{1, start + spareAge, false}, {share / 2, start + spareAge - 1, true}, {1, start, false},
	} {
		if got := s.take(step.wanted, step.now); got != step.want {
			t.Errorf("%d bytes at %v: %v", step.wanted, step.now, got)
		}
	}
	s.refill(1<<40, start)
	if s.take(maxSpare+1, start) || !s.take(maxSpare, start) {
		t.Error("a process with much memory left can take more or less than maxSpare unchecked")
	}
	s.refill(256<<20-1, start)
	if s.take(64<<10, start) {
		t.Error("a chunk is taken unchecked near the limit")
	}
}

func TestCgroupFilesAreParsed(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, k := range []*cgroupKind{cgroupKindOf(CgroupMembership{}), cgroupKindOf(CgroupMembership{Controllers: []string{"cpu", "memory"}})} {
		expect := func(what string, want uint64, wantOK bool) {
			t.Helper()
			if got, ok := k.available(dir); ok != wantOK || got != want {
				t.Errorf("%s, %s: %d, %v, want %d, %v", k.limit, what, got, ok, want, wantOK)
			}
		}
		expect("no files", 0, false)
		write(k.limit, "1000\n")
		expect("limit only", 0, false)
		write(k.used, "700\n")
		expect("no statistics", 300-62, true) // 62: the margin
		write("memory.stat", "cache 1\n"+k.cache+" 200\nother 5\n")
		expect("with droppable cache", 500-62, true)
		write("memory.stat", k.cache+" 900\n")
		expect("more cache than use", 1000-62, true)
		write("memory.stat", k.cache+" junk\n")
		expect("junk in the statistics", 300-62, true)
		write(k.used, "1200\n")
		expect("over the limit", 0, true)
		write(k.limit, "max\n")
		expect("no limit, version 2", 0, false)
		write(k.limit, "9223372036854771712\n")
		expect("no limit, version 1", 0, false)
		for _, name := range []string{k.limit, k.used, "memory.stat"} {
			os.Remove(filepath.Join(dir, name))
		}
	}
	if k := cgroupKindOf(CgroupMembership{Controllers: []string{"cpu", "cpuacct"}}); k != nil {
		t.Errorf("controllers without memory: %v", k)
	}
}
