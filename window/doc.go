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
// All copies go through a [Guard], which an executor (the requester or the responder of a
// connection) owns. The protocol is that of hazard pointers, with a check of permissions inside.
// The labels are those of docs/model/invalidate.pml:
//
//	HAZARD-PUBLISH   store the tokens that are about to be used in the hazard word; full fence
//	ENTRY-CHECK      load the entries of the tokens; check token, access rights and range
//	COPY             copy one chunk
//	ENTRY-RECHECK    load the entries again; if one has changed, fail the transfer, else copy the next chunk
//	HAZARD-CLEAR     store 0 in the hazard word
//
// The owner of a token invalidates it with
//
//	ENTRY-INVALIDATE store the entry's invalid word; full fence
//	HAZARD-DRAIN     load each hazard word until none of a live executor names the token
//
// Each side stores its own word and then loads the word of the other side. So either the executor
// sees that the token is invalid, or the owner sees the hazard and waits. After the drain, no process
// accesses the memory through the token. The models in docs/model check this, and show that each step
// is necessary.
//
// [Guard.Copy] is the general form. [Guard.Put] and [Guard.Get] are its fast path for transfers of
// one chunk. [Guard.CopyToEntry] and [Guard.DeliverSend] copy between local memory and a ring entry.
// Only this process can invalidate a local token. Therefore their hazard word is one that only this
// process reads. [Guard.DeliverWrite] stores data of a ring entry under a remote token of this process,
// and publishes that in the same word, by an exchange.
//
// No function of this package blocks: the caller polls [Invalidatable.Release].
package window
