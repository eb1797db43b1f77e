package shm

import (
	"errors"
	"fmt"
)

// What can be wrong with an arena or a member; errors.Is finds them in the
// errors of this package.
var (
	// ErrNotArena: the descriptor does not hold an arena at all.
	ErrNotArena = errors.New("not a softnd arena")
	// ErrNotReady: the creator has not finished (or died before it did).
	ErrNotReady = errors.New("arena is not ready")
	// ErrVersion: the arena has another layout version or layout hash.
	ErrVersion = errors.New("arena of another version")
	// ErrTruncated: the file is smaller than its header says.
	ErrTruncated = errors.New("arena is truncated")
	// ErrUnsealed: the file may be shrunk by a peer, which would crash us.
	ErrUnsealed = errors.New("arena is not sealed against shrinking")
	// ErrDamaged: a word in shared memory has a value that no sound peer writes.
	ErrDamaged = errors.New("shared memory is damaged")
	// ErrFull: a table of the arena has no free entry.
	ErrFull = errors.New("table is full")
	// ErrTaken: what may belong to one member only is another live member's.
	ErrTaken = errors.New("already taken")
	// ErrGone: the member has died or left.
	ErrGone = errors.New("member is gone")
	// ErrNothingOffered: a rank has come to a barrier without the bytes that this one wants.
	ErrNothingOffered = errors.New("nothing is offered")
	// ErrTooLong: a rank offers more bytes than this one takes.
	ErrTooLong = errors.New("too many bytes are offered")
	// ErrClosed: this process has closed the object.
	ErrClosed = errors.New("already closed")
	// ErrUser: the fabric of this name is another user's.
	ErrUser = errors.New("fabric of another user")
	// ErrNotFabric: whoever answers under the name breaks the protocol.
	ErrNotFabric = errors.New("not a softnd fabric")
	// ErrNoFabric: no process of this user holds the name.
	ErrNoFabric = errors.New("no fabric of this name")
	// ErrNoAnswer: no member of the fabric answered in time.
	ErrNoAnswer = errors.New("no member of the fabric answers")
	// ErrShortage: memory could not be reserved; see ShortageError.
	ErrShortage = errors.New("out of memory")
)

// ShortageError tells which limit stopped a reservation. errors.Is finds
// [ErrShortage] in it.
type ShortageError struct {
	Wanted uint64 // bytes asked for
	Left   uint64 // bytes that were left under Limit
	Limit  string // the limit that was hit, in words
	Next   string // what can be done about it
}

func (e *ShortageError) Error() string {
	return fmt.Sprintf("shm: reserving memory: wanted %d bytes, %d left under %s; %s", e.Wanted, e.Left, e.Limit, e.Next)
}

func (e *ShortageError) Unwrap() error { return ErrShortage }
