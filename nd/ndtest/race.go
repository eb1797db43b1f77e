//go:build race

package ndtest

// minPolledSize is the smallest transfer whose last byte a program polls in memory. The program loads
// that byte with an atomic load of its 4-byte word. The race detector reports a race between this load
// and a shorter store, so the transfer stores the whole word.
const minPolledSize = 4
