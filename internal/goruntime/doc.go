// Package goruntime is what softnd asks of the Go runtime: the build of softnd in this program, the names of its goroutines in
// profiles, and whether a goroutine panics.
package goruntime
