//go:build !race

package ndtest

// minPolledSize is the smallest transfer whose last byte a program polls in memory.
const minPolledSize = 1
