package endpoint

import (
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

// noNode is a placement that no machine can fulfil.
var noNode = nd.OnNode(1022)

// TestPlacement: Allocate fulfils what the machine can of a placement, and says what. With RequirePlacement it fails instead, says
// why, and leaves nothing behind.
func TestPlacement(t *testing.T) {
	const size = 3<<20 + 1
	s := newUnconnected(t)
	before := s.member.InUse()
	for flags, why := range map[nd.RegionFlags]string{
		nd.HugePages: "huge pages: ",
		nd.Prefault:  "prefault: ",
		nd.OnNode(0): "NUMA node 0: ",
		noNode:       "NUMA node 1022: ",
		nd.HugePages | nd.Prefault | nd.OnNode(0): ": ",
		nd.HugePages | nd.Prefault | noNode:       "NUMA node 1022: ",
	} {
		mr := must(s.adapter.Allocate(s.ctx, size, flags|nd.AllowRemoteWrite))
		got, mem := mr.Placement(), mr.Bytes()
		if got&^flags != 0 || flags.Has(noNode) && got.Has(noNode) {
			t.Errorf("%v: placement %v", flags, got)
		}
		t.Logf("%v: placement %v", flags, got)
		if got.Has(nd.HugePages) && (shm.AddressOf(mem)%(2<<20) != 0 || hugeBytes(t, shm.AddressOf(mem)) < size) {
			t.Errorf("%v: %d bytes at %#x are in huge pages", flags, hugeBytes(t, shm.AddressOf(mem)), shm.AddressOf(mem))
		}
		if len(mem) != size {
			t.Errorf("%v: %d bytes, want %d", flags, len(mem), size)
		}
		for i := range mem {
			if mem[i] != 0 {
				t.Fatalf("%v: byte %d is not zero", flags, i)
			}
			mem[i] = 7
		}
		wantStatus(t, mr.Close(s.ctx), nd.Success)

		mr, err := s.adapter.Allocate(s.ctx, size, flags|nd.RequirePlacement)
		if got == flags {
			wantStatus(t, err, nd.Success)
			wantStatus(t, mr.Close(s.ctx), nd.Success)
			continue
		}
		wantStatus(t, err, nd.NotSupported)
		if err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "ndinfo") {
			t.Errorf("%v: error %v, want one with %q", flags, err, why)
		}
	}
	if after := s.member.InUse(); after != before {
		t.Errorf("%d bytes in use, %d before", after, before)
	}
	if mr := must(s.adapter.Allocate(s.ctx, size, 0)); mr.Placement() != 0 {
		t.Errorf("placement %v without flags", mr.Placement())
	}
}

// hugeBytes returns how much of the mapping at an address is in huge pages.
func hugeBytes(t *testing.T, address uint64) int {
	inside := false
	for line := range strings.Lines(string(must(os.ReadFile("/proc/self/smaps")))) {
		fields := strings.Fields(line)
		if from, to, ok := strings.Cut(fields[0], "-"); ok {
			first, _ := strconv.ParseUint(from, 16, 64)
			last, _ := strconv.ParseUint(to, 16, 64)
			inside = first <= address && address < last
		}
		if inside && fields[0] == "ShmemPmdMapped:" {
			return must(strconv.Atoi(fields[1])) << 10
		}
	}
	t.Fatalf("no mapping at %#x", address)
	return 0
}

// missingPages returns how many pages of mem are not in memory.
func missingPages(t *testing.T, mem []byte) (n int) {
	t.Helper()
	states := make([]byte, len(mem)/os.Getpagesize())
	if _, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&mem[0])), uintptr(len(mem)), uintptr(unsafe.Pointer(&states[0]))); e != 0 {
		t.Fatal(e)
	}
	for _, state := range states {
		n += 1 - int(state&1)
	}
	return n
}

// TestPrefaultOfRegister: Prefault works for any memory, and the other placements for none.
func TestPrefaultOfRegister(t *testing.T) {
	const size = 8 << 20
	s := newUnconnected(t)
	for _, prot := range []int{unix.PROT_READ | unix.PROT_WRITE, unix.PROT_READ} {
		mem := must(unix.Mmap(-1, 0, size, prot, unix.MAP_SHARED|unix.MAP_ANON))
		defer unix.Munmap(mem)
		if missingPages(t, mem) != size/os.Getpagesize() {
			t.Fatal("memory that was never used is there")
		}
		mr := must(s.adapter.Register(s.ctx, mem[1:], nd.Prefault))
		if mr.Placement() == 0 {
			t.Log("this kernel cannot prefault")
		} else if n := missingPages(t, mem); n > 0 {
			t.Errorf("%d pages of %d bytes are not in memory", n, size)
		}
		wantStatus(t, mr.Deregister(s.ctx), nd.Success)
		wantStatus(t, mr.Register(s.ctx, mem, 0), nd.Success)
		if mr.Placement() != 0 {
			t.Errorf("placement %v of a registration without flags", mr.Placement())
		}
		for _, flags := range []nd.RegionFlags{nd.HugePages, nd.OnNode(0)} {
			_, err := s.adapter.Register(s.ctx, mem, flags)
			wantStatus(t, err, nd.InvalidParameter)
		}
		wantStatus(t, mr.Close(s.ctx), nd.Success)
	}
	_, err := s.adapter.Register(s.ctx, make([]byte, 8), nd.RequirePlacement)
	wantStatus(t, err, nd.Success)
}

// TestRegisterAfterAllocate: a region of Allocate that gets other memory has the placement of that memory.
func TestRegisterAfterAllocate(t *testing.T) {
	s := newUnconnected(t)
	mem := must(unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_SHARED|unix.MAP_ANON))
	defer unix.Munmap(mem)
	mr := must(s.adapter.Register(s.ctx, mem, nd.Prefault))
	want := mr.Placement() // 0 if this kernel cannot prefault
	wantStatus(t, mr.Close(s.ctx), nd.Success)

	mr = must(s.adapter.Allocate(s.ctx, 8, nd.HugePages|nd.OnNode(0)))
	t.Logf("allocated: placement %v", mr.Placement())
	for flags, want := range map[nd.RegionFlags]nd.RegionFlags{0: 0, nd.Prefault: want} {
		wantStatus(t, mr.Deregister(s.ctx), nd.Success)
		wantStatus(t, mr.Register(s.ctx, mem, flags), nd.Success)
		if got := mr.Placement(); got != want {
			t.Errorf("%v: placement %v of memory that the region did not allocate, want %v", flags, got, want)
		}
	}
	wantStatus(t, mr.Close(s.ctx), nd.Success)
}

// TestTransferToPlacedMemory: peers use placed memory as any other, also after its owner has freed and allocated it again.
func TestTransferToPlacedMemory(t *testing.T) {
	const size = 2 << 20
	p := newPair(t, setup{})
	for range 3 {
		s := p.b
		mr := must(s.adapter.Allocate(s.ctx, size, nd.HugePages|nd.Prefault|nd.OnNode(0)|nd.AllowRemoteWrite))
		p.a.must(order{Do: doFillByte, Len: 64, N: 9})
		far := nd.DescriptorOf(mr)
		far.Address += size - 64
		p.a.must(order{Do: doWrite, Parts: []part{{Len: 64}}, Far: far})
		p.a.results(initiatorQueue, 1)
		if mem := mr.Bytes(); mem[size-65] != 0 || mem[size-64] != 9 || mem[size-1] != 9 {
			t.Errorf("memory after the Write: % x", mem[size-66:])
		}
		wantStatus(t, mr.Close(s.ctx), nd.Success)
		proctest.Eventually(t, "the memory is free", func() bool { return s.member.InUse() < size })
	}
}
