// Package window decides who may touch which memory, and moves every byte.
//
// A [Space] is the set of tokens of one adapter. A [Region] is registered
// memory, a [Window] grants peers a part of one. Both own entries of the
// shared window table, where peers look tokens up. What requests give and take
// back, bound windows and fast registrations, is a [Loan]. All copies go
// through a [Guard], by the steps of Guard.Copy, the one guarded access, which
// Guard.Put and Guard.Get take a short way for what is small:
//
//	HAZARD-PUBLISH   the executor stores the tokens that it is about to use
//	ENTRY-CHECK      it loads the entries and compares the tokens, rights, range
//	COPY             it moves one chunk
//	ENTRY-RECHECK    it compares the tokens again; changed: the transfer fails
//	HAZARD-CLEAR     it clears its hazard
//
// and, on the owner's side,
//
//	ENTRY-INVALIDATE the owner stores the entry's new state
//	HAZARD-DRAIN     it waits until no live hazard names the old token
//
// When the drain has ended nobody touches that memory through that token any
// more. docs/model proves the handshake, and shows that each step is needed.
//
// Between a local token's memory and memory that needs no token, Guard.Take and
// Guard.Fill do the same with a hazard that only this process looks at.
//
// Nothing here blocks: a drain is asked for with [Space.Drained] as often as
// its caller likes.
package window
