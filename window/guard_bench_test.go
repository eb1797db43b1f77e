package window

import (
	"fmt"
	"testing"
	"time"

	"github.com/softnd/softnd/shm"
)

func TestCopyDoesNotAllocate(t *testing.T) {
	owner, executor, to := pair(t)
	mem := owner.alloc(t, 4*ChunkSize)
	_, remote := owner.region(t, mem, allRights).Tokens()
	near := make([]byte, 4*ChunkSize)
	local, _ := executor.region(t, near, allRights).Tokens()
	far := remoteOperand(to, remote, Read|Write, shm.AddressOf(mem))
	own := &Operand{Token: local, Rights: Local | Read | Write, Address: shm.AddressOf(near)}
	bad := remoteOperand(to, remote+1<<indexBits, Read, shm.AddressOf(mem))
	for _, n := range []uint64{0, 8, 4096, 4 * ChunkSize} {
		if got := testing.AllocsPerRun(100, func() {
			executor.guard.Copy(far, own, n)
			executor.guard.Copy(own, far, n)
			executor.guard.Copy(own, bad, n)
			executor.guard.Check(far, n)
			executor.guard.IsPrivate(own, n)
		}); got != 0 {
			t.Errorf("copies of %d bytes allocate %v times", n, got)
		}
	}
	token := remote
	if got := testing.AllocsPerRun(100, func() { owner.domain.drained(token) }); got != 0 {
		t.Errorf("Drained allocates %v times", got)
	}
}

var benchmarkSizes = []int{8, 64, 256, 1 << 10, 4 << 10, 64 << 10, 1 << 20}

// BenchmarkCopy compares the guarded copy between two regions with a plain copy of the same bytes: x-copy is the ratio of
// their times.
func BenchmarkCopy(b *testing.B) {
	owner, executor, to := pair(b)
	mem, near := owner.alloc(b, 1<<20), executor.alloc(b, 1<<20)
	_, remote := owner.region(b, mem, allRights).Tokens()
	local, _ := executor.region(b, near, allRights).Tokens()
	far := remoteOperand(to, remote, Write, shm.AddressOf(mem))
	own := &Operand{Token: local, Rights: Local | Read, Address: shm.AddressOf(near)}
	for _, n := range benchmarkSizes {
		b.Run(fmt.Sprintf("bytes=%d", n), func(b *testing.B) {
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				if _, f, g := executor.guard.Copy(far, own, uint64(n)); f|g != NoFault {
					b.Fatal(f, g)
				}
			}
			guarded := b.Elapsed()
			began := time.Now()
			for range b.N {
				copy(mem[:n], near[:n])
			}
			plain := time.Since(began)
			b.ReportMetric(float64(plain.Nanoseconds())/float64(b.N), "ns/copy")
			b.ReportMetric(guarded.Seconds()/plain.Seconds(), "x-copy")
		})
	}
}

// BenchmarkBindInvalidate binds, invalidates and drains a window, with the hazards of 1 to 256 endpoints.
func BenchmarkBindInvalidate(b *testing.B) {
	for _, peers := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("endpoints=%d", peers), func(b *testing.B) {
			owner, executor, _ := pair(b)
			for range peers - 1 {
				owner.admit(b, executor)
			}
			mem := owner.alloc(b, 4096)
			r, w := owner.region(b, mem, allRights), owner.window(b)
			b.ReportAllocs()
			for b.Loop() {
				binding, err := w.Prepare(r, mem, Read|Write, 1, false)
				if err != nil || !binding.Apply() {
					b.Fatal(err)
				}
				if _, done, _ := w.Invalidate(1); !done {
					b.Fatal("not drained")
				}
			}
		})
	}
}
