//go:build !race

package ndtest

// minPolledSize is the smallest transfer that a program waits for in memory.
const minPolledSize = 1
