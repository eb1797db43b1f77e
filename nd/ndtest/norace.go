//go:build !race

package ndtest

// leastPolled is the smallest transfer that a program waits for in memory.
const leastPolled = 1
