// Package ndc wraps libsoftnd as an nd.Provider, so that the conformance suite of package ndtest runs over it. It is for
// tests only. CGO_LDFLAGS has to name the library.
package ndc

/*
#cgo CFLAGS: -I${SRCDIR}/../../include -DSND_EXPLICIT_SIZES
#cgo LDFLAGS: -lpthread
#include <stdlib.h>
#include "softnd/softnd.h"

*/
import "C"

import (
	"context"
	"runtime"
	"time"
	"unsafe"

	"github.com/softnd/softnd/nd"
)

// status calls f and returns its error for an operation. The text of a failure belongs to the thread.
func status(op string, f func() C.snd_status) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s := f()
	if s == 0 {
		return nil
	}
	return &nd.OpError{Op: op, Status: nd.Status(s), Detail: C.GoString(C.snd_last_error())}
}

func refuse(op string, s nd.Status, why string) error {
	return &nd.OpError{Op: op, Status: s, Detail: why}
}

// The first part of a repeated call, and the longest one.
const firstSlice, longestSlice = time.Millisecond, 128 * time.Millisecond

// repeat repeats a call that may time out until ctx ends. The calls have no effect when they time out. Each takes twice as
// long as the one before. A short wait therefore ends soon after ctx. A long one is seldom outside the library, where it would
// miss an event that ends several calls.
func repeat(ctx context.Context, op string, f func(timeout C.int64_t) C.snd_status) error {
	for slice := firstSlice; ; slice = min(2*slice, longestSlice) {
		err := status(op, func() C.snd_status { return f(C.int64_t(slice)) })
		if nd.StatusOf(err) != nd.IOTimeout {
			return err
		}
		if ctx.Err() != nil {
			return nd.CanceledError(ctx, op, "")
		}
	}
}

// element has the layout of snd_sge.
type element struct {
	buffer uint64
	length uint32
	token  uint32
}

func elements(sge nd.SGL) ([]element, C.uintptr_t, C.uint32_t) {
	list := make([]element, sge.Len()+1)
	for i, e := range sge.Entries() {
		list[i] = element{uint64(uintptr(unsafe.Pointer(unsafe.SliceData(e.Buffer)))), uint32(len(e.Buffer)), uint32(e.Token)}
	}
	return list, C.uintptr_t(uintptr(unsafe.Pointer(&list[0]))), C.uint32_t(sge.Len())
}
