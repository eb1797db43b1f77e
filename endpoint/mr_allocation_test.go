package endpoint

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/softnd/softnd/internal/testkit/proctest"
	"github.com/softnd/softnd/nd"
	"github.com/softnd/softnd/shm"
)

// TestRegistrationKeepsMemory: allocated memory stays in place while a registration covers it. A peer that writes with
// the registration's token never reaches the memory of a third process, and it writes with one copy.
func TestRegistrationKeepsMemory(t *testing.T) {
	t.Parallel()
	const size, old, third, written = 1 << 20, 0x11, 0x33, 0x99
	registrations := map[string]func(s *side, first nd.MemoryRegion) (d nd.WindowDescriptor, end func() error){
		"region": func(s *side, first nd.MemoryRegion) (nd.WindowDescriptor, func() error) {
			second := must(s.adapter.Register(s.ctx, first.Bytes()[64:], nd.AllowRemoteWrite))
			return nd.DescriptorOf(second), func() error { return second.Close(s.ctx) }
		},
		"window": func(s *side, first nd.MemoryRegion) (nd.WindowDescriptor, func() error) {
			second := must(s.adapter.Register(s.ctx, first.Bytes(), nd.AllowRemoteWrite))
			w := must(s.adapter.CreateMemoryWindow(s.ctx))
			must(0, s.endpointAt(0).Bind(1, second, w, second.Bytes()[64:], nd.AllowWrite))
			must(s.collect(s.ctx, initiatorQueue, 1))
			wantStatus(t, second.Close(s.ctx), nd.Success)
			return w.Descriptor(), func() error { return w.Close(s.ctx) }
		},
		"two regions": func(s *side, first nd.MemoryRegion) (nd.WindowDescriptor, func() error) {
			all := must(s.adapter.Register(s.ctx, first.Bytes(), nd.AllowRemoteWrite))
			part := must(s.adapter.Register(s.ctx, first.Bytes()[64:], nd.AllowRemoteWrite))
			wantStatus(t, all.Close(s.ctx), nd.Success)
			return nd.DescriptorOf(part), func() error { return part.Close(s.ctx) }
		},
	}
	for name, register := range registrations {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, setup{})
			c := newSide(t, p.arena, "c", sideOptions{}, true)
			s := p.b
			first := must(s.adapter.Allocate(s.ctx, size, nd.AllowLocalWrite))
			mem, off := first.Bytes(), offsetOf(first)
			for i := range mem {
				mem[i] = old
			}
			d, end := register(s, first)
			wantStatus(t, first.Close(c.ctx), nd.Success)
			var regions []int
			for {
				r := c.do(order{Do: doAllocate, Len: size, Rights: nd.AllowRemoteWrite})
				if r.Status == nd.NoMemory {
					break
				}
				c.must(order{Do: doFillByte, Region: r.N, Len: size, N: third})
				regions = append(regions, r.N)
			}
			p.a.must(order{Do: doFillByte, Len: 64, N: written})
			p.a.must(order{Do: doWrite, Context: 1, Far: d, Parts: []part{{Len: 64}}})
			p.a.results(initiatorQueue, 1)
			for _, r := range regions {
				if n := c.must(order{Do: doLongestRun, Region: r, Len: size, N: third}).N; n != size {
					t.Fatal("the Write has changed memory of the third process")
				}
			}
			if !bytes.Equal(mem[64:128], bytes.Repeat([]byte{written}, 64)) || mem[63] != old || mem[128] != old {
				t.Errorf("memory after the Write: % x", mem[60:132])
			}
			if stats, ok := nd.StatsOf(p.a.endpointAt(0)); !ok || stats.Fragments != 0 {
				t.Errorf("%d parts of the Write were copied by the owner of the memory, want one copy by the requester", stats.Fragments)
			}
			wantStatus(t, end(), nd.Success)
			proctest.Eventually(t, "the memory is free", func() bool { return !s.member.Owns(off, size) })
			_, err := s.adapter.Register(s.ctx, mem, nd.AllowRemoteRead)
			wantStatus(t, err, nd.AccessViolation)
		})
	}
}

// TestRegistrationByOtherProvider: a registration also keeps the memory that another provider of the process has
// allocated, until it or its provider is closed.
func TestRegistrationByOtherProvider(t *testing.T) {
	for name, end := range map[string]func(s *side, mr nd.MemoryRegion) error{
		"close of the region":   func(_ *side, mr nd.MemoryRegion) error { return mr.Close(t.Context()) },
		"close of the provider": func(s *side, _ nd.MemoryRegion) error { return s.provider.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			arena := newArena(t)
			owner := newSide(t, arena, "owner", sideOptions{}, false)
			other := newSide(t, arena, "other", sideOptions{}, false)
			first := must(owner.adapter.Allocate(owner.ctx, 1<<20, nd.AllowLocalWrite))
			off := offsetOf(first)
			second := must(other.adapter.Register(other.ctx, first.Bytes(), nd.AllowRemoteWrite))
			wantStatus(t, first.Close(t.Context()), nd.Success)
			if !owner.member.Owns(off, 1<<20) {
				t.Fatal("the memory is freed while it is registered")
			}
			wantStatus(t, end(other, second), nd.Success)
			proctest.Eventually(t, "the memory is free", func() bool { return !owner.member.Owns(off, 1<<20) })
		})
	}
}

// TestRegisterInaccessibleMemory: Register refuses memory that the process itself must not access in the same way, and
// names the range.
func TestRegisterInaccessibleMemory(t *testing.T) {
	s := newUnconnected(t)
	page := os.Getpagesize()
	mapped := func(prot int) []byte {
		mem := must(unix.Mmap(-1, 0, 3*page, prot, unix.MAP_PRIVATE|unix.MAP_ANON))
		t.Cleanup(func() { unix.Munmap(mem) })
		return mem
	}
	guarded, readOnly, none := mapped(unix.PROT_READ|unix.PROT_WRITE), mapped(unix.PROT_READ), mapped(unix.PROT_NONE)
	must(0, unix.Mprotect(guarded[page:2*page], unix.PROT_NONE))
	file := must(unix.MemfdCreate("sealed", unix.MFD_ALLOW_SEALING|unix.MFD_CLOEXEC))
	defer unix.Close(file)
	must(0, unix.Ftruncate(file, int64(page)))
	must(unix.FcntlInt(uintptr(file), unix.F_ADD_SEALS, unix.F_SEAL_WRITE))
	sealed := must(unix.Mmap(file, 0, page, unix.PROT_READ, unix.MAP_SHARED))
	t.Cleanup(func() { unix.Munmap(sealed) })
	gap := must(unix.Mmap(-1, 0, 3*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON))
	must(0, unix.MunmapPtr(unsafe.Pointer(&gap[page]), uintptr(page)))
	t.Cleanup(func() {
		unix.MunmapPtr(unsafe.Pointer(&gap[0]), uintptr(page))
		unix.MunmapPtr(unsafe.Pointer(&gap[2*page]), uintptr(page))
	})
	text := unsafe.Slice(unsafe.StringData("a constant"), 10)

	tests := map[string]struct {
		mem   []byte
		flags nd.RegionFlags
		want  string // a part of the error; empty means none
	}{
		"read-only, write":  {readOnly, nd.AllowRemoteWrite, "are not writable"},
		"read-only, local":  {readOnly, nd.AllowLocalWrite, "are not writable"},
		"read-only, bit 4":  {readOnly, nd.AllowRemoteWrite &^ nd.AllowLocalWrite, "are not writable"},
		"read-only, atomic": {readOnly, nd.AllowRemoteAtomic &^ nd.AllowLocalWrite, "are not writable"},
		"read-only, read":   {readOnly, nd.AllowRemoteRead, ""},
		"no access":         {none, nd.AllowRemoteRead, "are not readable"},
		"no access, write":  {none, nd.AllowRemoteWrite, "are not readable"},
		"guard page":        {guarded, nd.AllowRemoteWrite, "bytes 4096 to 8191 of 12288"},
		"guard page, read":  {guarded, 0, "are not readable"},
		"beside the guard":  {guarded[:page], nd.AllowRemoteWrite, ""},
		"gap":               {gap, nd.AllowRemoteRead, "bytes 4096 to 8191 of 12288"},
		"sealed":            {sealed, nd.AllowRemoteWrite, "are not writable"},
		"sealed, read":      {sealed, nd.AllowRemoteRead, ""},
		"constant":          {text, nd.AllowRemoteWrite, "are not writable"},
		"constant, read":    {text, nd.AllowRemoteRead, ""},
		"memory of Go":      {make([]byte, 100), nd.AllowRemoteWrite, ""},
		"memory of a stack": {new([100]byte)[:], nd.AllowRemoteWrite, ""},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			mr, err := s.adapter.Register(s.ctx, c.mem, c.flags)
			if c.want == "" {
				wantStatus(t, err, nd.Success)
				wantStatus(t, mr.Close(s.ctx), nd.Success)
				return
			}
			wantStatus(t, err, nd.AccessViolation)
			if err == nil || page == 4096 && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v does not contain %q", err, c.want)
			}
		})
	}
}

// TestRegisterSparseMemory: a registration does not commit memory.
func TestRegisterSparseMemory(t *testing.T) {
	s := newUnconnected(t)
	const size = 64 << 30
	mem := must(unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE))
	defer unix.Munmap(mem)
	before := residentPages(t)
	mr := must(s.adapter.Register(s.ctx, mem, nd.AllowRemoteWrite))
	if n := residentPages(t) - before; n > 16384 {
		t.Errorf("%d pages more are resident", n)
	}
	wantStatus(t, mr.Close(s.ctx), nd.Success)
}

func residentPages(t *testing.T) int {
	text := must(os.ReadFile("/proc/self/statm"))
	n, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// offsetOf returns the offset of allocated memory in its arena.
func offsetOf(mr nd.MemoryRegion) shm.Offset {
	off, _ := mr.(*memoryRegion).adapter.provider.arena.Locate(mr.Bytes())
	return off
}
