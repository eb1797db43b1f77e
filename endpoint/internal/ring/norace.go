//go:build !race

package ring

// Without the race detector these do nothing; see race_unsafe.go.

func raceRelease() {}
func raceAcquire() {}
