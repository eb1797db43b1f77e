//go:build !amd64 || race

package asym

import "sync/atomic"

// Register does nothing: there is no help to be had.
func Register() {}

// Light is the frequent side's barrier between its store and its load.
func Light() { dear.Add(1) }

var dear atomic.Uint32

// Heavy is the rare side's barrier between its store and its load. The frequent side has paid.
func Heavy() {}

// ForAll tells whether [HeavyForAll] does what it says, and reaches this process when another calls it.
func ForAll() bool { return false }

// HeavyForAll is Heavy for all processes in which ForAll is true, if it is in this one.
func HeavyForAll() {}
