// Package wire defines what the two endpoints of a connection exchange: the entries of their rings,
// scatter/gather entries as they cross process boundaries, and the shared queue-pair state.
//
// The package only encodes, decodes and lays out. Package endpoint decides what the words mean for a
// request. Everything decoded here was written by another process: [Entry.Decode] rejects entries that
// no correct peer writes, and the caller checks all addresses and tokens before it uses them.
package wire
