package shm

import (
	"errors"
	"fmt"
)

// Errors of arenas and members. The errors that this package returns wrap them.
var (
	// ErrVersion: the arena has another layout version or layout hash.
	ErrVersion = errors.New("arena of another version")
	// ErrDamaged: a word in shared memory has a value that no correct peer writes.
	ErrDamaged = errors.New("shared memory is damaged")
	// ErrFull: a table of the arena has no free entry.
	ErrFull = errors.New("table is full")
	// ErrTaken: another live member has the rank, is the relay, or has published the name.
	ErrTaken = errors.New("already taken")
	// ErrNotPublished: a rank reached the barrier without having published bytes for it.
	ErrNotPublished = errors.New("nothing is published")
	// ErrTooLong: a rank published more bytes than the limit.
	ErrTooLong = errors.New("too many bytes are published")

	// errBadName: a name has other characters, or too many.
	errBadName = errors.New("bad name")
	// errNotArena: the descriptor is not that of an arena.
	errNotArena = errors.New("not a softnd arena")
	// errTruncated: the file is smaller than its header says.
	errTruncated = errors.New("arena is truncated")
	// errClosed: this process has closed the object, or the program closed its descriptor.
	errClosed = errors.New("already closed")
	// errNotReady: the creator has not finished, or died before it did.
	errNotReady = errors.New("arena is not ready")
	// errUnsealed: a peer could shrink the file, which would crash this process.
	errUnsealed = errors.New("arena is not sealed against shrinking")
	// errNoRelay: no member has become the relay yet.
	errNoRelay = errors.New("this arena has no relay to other hosts")
	// errGone: the member has died or left.
	errGone = errors.New("member is gone")
	// errUser: the fabric of this name belongs to another user.
	errUser = errors.New("fabric of another user")
	// errNotFabric: the process that answers under the name breaks the protocol.
	errNotFabric = errors.New("not a softnd fabric")
	// errNoFabric: no process of this user holds the name.
	errNoFabric = errors.New("no fabric of this name")
	// errNoAnswer: no member of the fabric answered in time.
	errNoAnswer = errors.New("no member of the fabric answers")
)

// NoMemoryError says which limit stopped a reservation.
type NoMemoryError struct {
	Requested uint64 // bytes requested
	Available uint64 // bytes still available under Limit
	Limit     string // the limit, such as "the machine's available memory"
	Hint      string // advice for the user
}

func (e *NoMemoryError) Error() string {
	return fmt.Sprintf("shm: reserve memory: not enough under %s (asked %d bytes, have %d): %s", e.Limit, e.Requested, e.Available, e.Hint)
}
