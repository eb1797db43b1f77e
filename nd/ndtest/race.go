//go:build race

package ndtest

// leastPolled is the smallest transfer that a program may wait for in memory under the race
// detector: it takes a store of less than a word for a race with the load.
const leastPolled = 4
