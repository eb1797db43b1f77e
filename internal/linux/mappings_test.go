package linux

import (
	"errors"
	"os"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

const page = 4096

// sources are both ways to ask the kernel.
func sources(t *testing.T) map[string]func() source {
	file, err := os.Open("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	all := map[string]func() source{
		"list": func() source {
			text, err := os.ReadFile("/proc/self/maps")
			if err != nil {
				t.Fatal(err)
			}
			return list(strings.NewReader(string(text)))
		},
	}
	if _, _, err := query(int(file.Fd()), 0); !errors.Is(err, unix.ENOTTY) {
		all["query"] = func() source { return func(at uint64) (mapping, bool, error) { return query(int(file.Fd()), at) } }
	}
	return all
}

// TestCheck checks ranges over mappings with different permissions and over a gap.
func TestCheck(t *testing.T) {
	mem, err := unix.Mmap(-1, 0, 8*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	base := uint64(uintptr(unsafe.Pointer(&mem[0])))
	for _, p := range []struct{ first, n, prot int }{{2, 1, unix.PROT_READ}, {4, 1, unix.PROT_NONE}} {
		if err := unix.Mprotect(mem[p.first*page:][:p.n*page], p.prot); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.MunmapPtr(unsafe.Pointer(&mem[6*page]), page); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.MunmapPtr(unsafe.Pointer(&mem[0]), 6*page)
		unix.MunmapPtr(unsafe.Pointer(&mem[7*page]), page)
	})
	tests := []struct {
		start, n uint64
		want     Access
		fault    AccessFault // relative to base
	}{
		{0, 2 * page, Read | Write, AccessFault{}},
		{1, 2*page - 1, Read | Write, AccessFault{}},
		{0, 4 * page, Read, AccessFault{}},
		{0, 2*page + 1, Read | Write, AccessFault{2 * page, 2*page + 1, "not writable"}},
		{5, 4 * page, Read | Write, AccessFault{2 * page, 3 * page, "not writable"}},
		{3 * page, 2 * page, Read, AccessFault{4 * page, 5 * page, "not readable"}},
		{4*page + 7, 1, Read, AccessFault{4*page + 7, 4*page + 8, "not readable"}},
		{5 * page, 3 * page, Read | Write, AccessFault{6 * page, 7 * page, "not mapped"}},
		{6*page + 1, 9, Read, AccessFault{6*page + 1, 6*page + 10, "not mapped"}},
		{7 * page, page, Read | Write, AccessFault{}},
	}
	for name, from := range sources(t) {
		for _, c := range tests {
			f, err := check(base+c.start, c.n, c.want, from())
			if err != nil {
				t.Fatal(err)
			}
			got := AccessFault{}
			if f != nil {
				got = AccessFault{f.Start - base, f.End - base, f.Reason}
			}
			if got != c.fault {
				t.Errorf("%s: %d bytes at %d, access %d: got %+v, want %+v", name, c.n, c.start, c.want, got, c.fault)
			}
		}
	}
}

// TestCheckEndOfAddressSpace checks a range that no mapping follows, and one that reaches beyond the largest address.
func TestCheckEndOfAddressSpace(t *testing.T) {
	for name, from := range sources(t) {
		const start = 1<<64 - 2*page
		f, err := check(start, 1<<32, Read, from())
		if err != nil || f == nil || f.Start != start || f.Reason != "not mapped" {
			t.Errorf("%s: got %+v, %v, want a range that is not mapped", name, f, err)
		}
	}
}

// TestParseDamaged checks lines that are not those of the kernel.
func TestParseDamaged(t *testing.T) {
	for _, line := range []string{"", "0", "0-1", "0-1 r", "x-1 rw-p", "0-y rw-p"} {
		if m, err := parse(line); err == nil {
			t.Errorf("parse(%q) = %+v, want an error", line, m)
		}
	}
}

// BenchmarkCheck measures a check of one page in a process with 1,000 more mappings.
func BenchmarkCheck(b *testing.B) {
	mem, err := unix.Mmap(-1, 0, 2000*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Munmap(mem)
	for i := 0; i < 2000; i += 2 {
		if err := unix.Mprotect(mem[i*page:][:page], unix.PROT_READ); err != nil {
			b.Fatal(err)
		}
	}
	at := uint64(uintptr(unsafe.Pointer(&mem[1999*page])))
	for b.Loop() {
		if f, err := CheckAccess(at, page, Read|Write); f != nil || err != nil {
			b.Fatal(f, err)
		}
	}
}
