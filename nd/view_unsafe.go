package nd

import (
	"fmt"
	"reflect"
	"unsafe"
)

// View returns the memory of mem as a slice of T, without a copy. mem is usually a part of
// [MemoryRegion.Bytes]. The slice is valid as long as mem is.
//
// T is an integer, floating-point or complex type, or an array or struct of such types. A struct may
// have padding. Other types are refused: the garbage collector does not follow pointers in registered
// memory, and a byte from a peer need not be a valid bool. Values are in the byte order of the host.
//
// The slice and mem are the same memory. While a request uses mem as a buffer, the rules of [SGE]
// apply to the slice too. The race detector treats an access to the slice as an access to mem.
//
// View allocates nothing, but inspects T in each call. Create one view and slice it, rather than many
// small views.
//
// Errors:
//
//   - [InvalidParameter]: T is refused, or its size is 0.
//   - [InvalidBufferSize]: mem does not begin at a multiple of T's alignment, or its length is not a
//     multiple of T's size. The memory of [Adapter.Allocate] begins at a multiple of 64 bytes.
func View[T any](mem []byte) ([]T, error) {
	typ := reflect.TypeFor[T]()
	if part := unfit(typ); part != "" {
		return nil, viewError(InvalidParameter, fmt.Sprintf("%v has %s", typ, part), "use a type of numbers only")
	}
	size, align := int(typ.Size()), uintptr(typ.Align())
	if size == 0 {
		return nil, viewError(InvalidParameter, fmt.Sprintf("%v has no size", typ), "use a type of numbers only")
	}
	if len(mem)%size != 0 {
		return nil, viewError(InvalidBufferSize, fmt.Sprintf("%d bytes are no multiple of the %d bytes of %v", len(mem), size, typ), "slice the memory first")
	}
	start := unsafe.Pointer(unsafe.SliceData(mem))
	if uintptr(start)%align != 0 {
		return nil, viewError(InvalidBufferSize, fmt.Sprintf("%p is no multiple of the alignment of %v, %d bytes", start, typ, align), "begin at an aligned offset")
	}
	return unsafe.Slice((*T)(start), len(mem)/size), nil
}

func viewError(s Status, detail, next string) error {
	return &OpError{Op: "view", Object: "memory", Status: s, Detail: detail, Next: next}
}

// unfit names the first part of t that a view may not have, "" if there is none.
func unfit(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr,
		reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return ""
	case reflect.Array:
		return unfit(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if part := unfit(t.Field(i).Type); part != "" {
				return part
			}
		}
		return ""
	}
	return "a " + t.Kind().String()
}
