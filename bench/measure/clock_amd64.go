package measure

// ticks reads the processor's time stamp counter once everything before it has
// been done.
//
//go:noescape
func ticks() uint64
