//go:build !race

package shm

import "sync/atomic"

// Without the race detector these do nothing; see race_unsafe.go.

func raceFence(*atomic.Uint32) {}

func raceRelease() {}
func raceAcquire() {}
