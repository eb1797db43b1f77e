package main

import "unsafe"

// floats returns the numbers that lie in b. Registered memory is aligned for them, and b must
// start at a multiple of 8 in it.
func floats(b []byte) []float64 {
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*float64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8)
}
