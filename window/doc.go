// Package window decides which process may access which memory, and copies every byte that moves
// between processes. It is for people who extend softnd; there is no compatibility promise.
//
// A [Domain] is the protection domain of verbs and NDK: the tokens of one adapter. A [Region] is
// registered memory. A [Window] lets peers access a part of a region. Regions and windows own entries
// of the shared window table. Peers look tokens up in this table, as a network adapter looks up keys
// in its memory protection table. Both are [Invalidatable]: one request binds a window or registers a
// region, and another request invalidates it.
//
// # The guarded access
//
// All accesses to registered memory go through a [Guard], which an executor (the requester or the
// responder of a connection) owns. Only a post with nd.Inline copies without a guard: its buffers
// need no token. The page docs/architecture.md has the steps of executor and owner, and says why no
// process accesses memory through a token after its invalidation.
//
// [Guard.Copy] is the general form. [Guard.Put] and [Guard.Get] are its fast path for transfers of
// one chunk. [Guard.Change] is an atomic. [Guard.CopyToEntry] and [Guard.DeliverSend] copy between
// local memory and a ring entry. Only this process can invalidate a local token. Therefore their
// hazard word is one that only this process reads. [Guard.DeliverWrite] stores data of a ring entry
// under a remote token of this process, and publishes that in the same word, by an exchange.
//
// No function of this package blocks: the caller polls [Invalidatable.EndInvalidation].
package window
