// Package pproflabel names softnd's goroutines in profiles.
package pproflabel

import (
	"context"
	"runtime/pprof"
)

// key is the label's key, also in the documentation.
const key = "softnd"

// Set labels the calling goroutine, and the goroutines that it starts from now on.
func Set(role string) {
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels(key, role)))
}
