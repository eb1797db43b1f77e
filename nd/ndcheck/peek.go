//go:build !race

package ndcheck

// peek returns the bytes of a buffer. A request in flight may fill them at the same time.
func peek(b []byte) []byte { return b }
