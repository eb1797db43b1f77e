// Package ring implements the queue of 64-byte entries that one process fills and another empties.
// Each direction of a connection has one: the requester is the producer, the responder the consumer.
//
//	slot      sequence number (8 bytes) + words of the entry (56 bytes); the producer stores the
//	          sequence number last: the number of the entry, from 0, plus one
//	released  a word elsewhere, stored by the consumer only: number of entries released
//
// A slot holds an entry together with its sequence number, so an entry moves between cores as one
// cache line. The slots are in the producer's memory, the released word is in the consumer's.
//
// Either side may be hostile. The producer ignores an impossible number of released entries. The
// consumer only detects that an entry is there. The caller checks the meaning of its words.
package ring
