// Package ndcompat helps programs and drivers written against the C interfaces of NetworkDirect
// to move to package nd. New programs do not need it.
//
//	Overlapped, OverlappedSet      overlapped requests: start a blocking call, get its result later
//	Library                        the helper library ndutil: addresses and adapters of several providers
//	NDKOpFlags, NDKOperationType   the numbers of NDK, the kernel interface, where they differ from nd's
//
// The optional interfaces of providers that follow NDK, such as [nd.NDKAdapter], are in package nd:
// a provider implements them.
package ndcompat
