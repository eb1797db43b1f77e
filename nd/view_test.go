package nd

import (
	"errors"
	"testing"
	"unsafe"
)

type plain struct {
	A int32
	B [3]float64
	C struct{ D uint8 }
}

// aligned returns n bytes that begin at a multiple of 8.
func aligned(n int) []byte {
	words := make([]uint64, (n+7)/8+1)
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), n)
}

func TestViewSharesTheMemory(t *testing.T) {
	mem := aligned(64)
	v, err := View[uint64](mem)
	if err != nil || len(v) != 8 || cap(v) != 8 {
		t.Fatalf("%v, %v", v, err)
	}
	v[1] = ^uint64(0)
	if mem[7] != 0 || mem[8] != 0xff || mem[15] != 0xff || mem[16] != 0 {
		t.Errorf("the memory is % x", mem)
	}
	structs, err := View[plain](mem[:unsafe.Sizeof(plain{})])
	if err != nil || len(structs) != 1 {
		t.Errorf("%v, %v", structs, err)
	}
	if v, err := View[float64](nil); err != nil || len(v) != 0 {
		t.Errorf("a view of no memory: %v, %v", v, err)
	}
}

func viewFails[T any](t *testing.T, mem []byte, want Status) {
	t.Helper()
	if v, err := View[T](mem); !errors.Is(err, want) || v != nil {
		t.Errorf("a view of %T: %v, %v, want %v", *new(T), v, err, want)
	}
}

func TestViewRefuses(t *testing.T) {
	mem := aligned(64)
	viewFails[*int](t, mem, InvalidParameter)
	viewFails[string](t, mem, InvalidParameter)
	viewFails[[]byte](t, mem, InvalidParameter)
	viewFails[any](t, mem, InvalidParameter)
	viewFails[map[int]int](t, mem, InvalidParameter)
	viewFails[chan int](t, mem, InvalidParameter)
	viewFails[func()](t, mem, InvalidParameter)
	viewFails[unsafe.Pointer](t, mem, InvalidParameter)
	viewFails[bool](t, mem, InvalidParameter)
	viewFails[[2]*int](t, mem, InvalidParameter)
	viewFails[struct {
		A int
		B [1]struct{ C *int }
	}](t, mem, InvalidParameter)
	viewFails[struct{}](t, mem, InvalidParameter)
	viewFails[[0]int](t, mem, InvalidParameter)
	viewFails[uint64](t, mem[:63], InvalidBufferSize)
	viewFails[uint64](t, mem[4:12], InvalidBufferSize)
	viewFails[uint16](t, mem[1:3], InvalidBufferSize)
}
