// Package ndcompat helps to port programs and drivers from the C interfaces of NetworkDirect to
// package nd. New programs do not need it.
//
//	StatusOf                       the status that has the number of an invalid parameter
//	Query, Control, Batch          the structure version of a query, commands of a provider, request batches
//	Overlapped, OverlappedSet      overlapped requests: start a blocking call, get its outcome later
//	Library                        the helper library ndutil: addresses and adapters of several providers
//	NDKOpFlags, NDKOperationType   the numbers of NDK (NetworkDirect in the Windows kernel), where they
//	                               differ from the numbers of package nd
//
// The optional interfaces that come from NDK, such as [nd.NDKAdapter], are in package nd, because
// providers implement them.
package ndcompat
