// Package window decides who may touch which memory, and moves every byte.
//
// A [Space] is the set of tokens of one adapter. A [Region] is registered
// memory, a [Window] grants peers a part of one. Both own entries of the
// shared window table, where peers look tokens up. What requests give and take
// back, bound windows and fast registrations, is a [Loan]. All copies go
// through [Guard.Copy], the one guarded access:
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
// Nothing here blocks: a drain is asked for with [Space.Drained] as often as
// its caller likes.
package window
