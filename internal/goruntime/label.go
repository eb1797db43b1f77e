package goruntime

import (
	"context"
	"runtime/pprof"
)

// key is the label's key, also in the documentation.
const key = "softnd"

// SetLabel labels the calling goroutine, and the goroutines that it starts from now on.
func SetLabel(role string) {
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels(key, role)))
}
