//go:build !race

package shm

// Without the race detector these do nothing; see race_unsafe.go.

func raceRelease() {}
func raceAcquire() {}
